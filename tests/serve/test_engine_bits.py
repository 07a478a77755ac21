"""Logits of real models, bit for bit: alone, in company that comes and goes, by chunks, known, preempted, forked.

Every logit that a token is sampled from is kept, by the seed of who asked and its position.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamay import arch, gguf, model
from llamay.kv import Cache
from llamay.sample import Sampling
from llamay.serve.engine import Bounds, Engine
from llamay.serve.events import Done
from llamay.serve.request import Limits, Request
from llamay.serve.scheduling import flights
from llamay.serve.scheduling.sequence import Mute
from llamay.tensor.numpy import NumpyExecutor
from llamay.tensor.program import Program

MODELS = (
    "llama-gqa.f16", "gemma3.f16", "gpt-oss.f16", "deepseek3.f32", "mamba.f32",
    *(pytest.param(name, marks=pytest.mark.soak) for name in ("qwen2-k.q4_k", "falcon-mamba.f16")),
)  # fmt: skip
COUNT = 30  # tokens of an answer
LIVELY = Sampling(temperature=1.2, top_k=50, repeat_penalty=1.3, repeat_last_n=20)

Seen = dict[tuple[int, int], bytes]  # (seed, position) -> logits


class Watch:
    """The logits that tokens were sampled from; what is computed twice must be the same."""

    def __init__(self) -> None:
        self.seen: Seen = {}
        self.widest = 0

    def look(self, samplings: Sequence[Sampling], logits: Any, positions: Any) -> None:
        self.widest = max(self.widest, len(logits))
        for how, row, position in zip(samplings, logits, positions, strict=True):
            words = np.ascontiguousarray(row).tobytes()
            assert self.seen.setdefault((how.seed, int(position)), words) == words


class Watched(NumpyExecutor):
    """Shows every row of logits."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.watch = Watch()

    def _choose(self, logits: Any, positions: Any) -> Any:
        self.watch.look(self._samplings, logits, positions)
        return super()._choose(logits, positions)


@dataclass
class Served:
    """A tiny model with as many pages as wanted."""

    executor: Any
    cache: Cache
    context: int = 256
    closed: list[str] = field(default_factory=list)

    def decoder(self, prompt: tuple[int, ...], stops: tuple[str, ...]) -> Mute:
        return Mute()

    def close(self) -> None:
        self.closed.append("once")


@contextmanager
def opened(name: str) -> Iterator[Program]:
    with gguf.open(Path(__file__).parents[1] / "data" / "models" / f"{name}.gguf") as file:
        yield model.bind(file, arch.describe(file)).program


@pytest.fixture(scope="module", params=MODELS)
def program(request):
    with opened(request.param) as found:
        yield found


@contextmanager
def serving(program, pages: int = 64, make: Callable[..., Any] = Watched, **bounds: Any) -> Iterator[tuple[Engine, Watch]]:
    windowed = bool(program.windowed)
    executor = make(program, pages, window_pages=pages if windowed else 0)
    with Engine.of(Served(executor, Cache.over(executor), min(256, 16 * pages)), Bounds(**bounds)) as engine:
        yield engine, executor.watch
        engine.call(lambda scheduler: scheduler.cache.check_integrity())
        assert engine.call(lambda scheduler: len(scheduler.cache.contexts)) == 0


@contextmanager
def still(engine: Engine) -> Iterator[None]:
    """Meanwhile the engine computes nothing."""
    go_on = threading.Event()
    engine.post(lambda: go_on.wait(60))
    try:
        yield
    finally:
        go_on.set()


def prompts(count: int) -> list[list[int]]:
    """Prompts of different lengths; every other one begins alike."""
    luck = np.random.default_rng(5)
    stem = luck.integers(0, 320, 40).tolist()
    return [[*(stem if n % 2 else []), *luck.integers(0, 320, 3 + n * 9 % 50).tolist()] for n in range(count)]


def ask(prompt: Sequence[int], seed: int, **more: Any) -> Request:
    how = Sampling(**{**{name: getattr(LIVELY, name) for name in LIVELY.__slots__}, "seed": seed})
    return Request(tuple(prompt), how, Limits(more.pop("count", COUNT)), **more)


def alone(program, count: int, **more: Any) -> tuple[Seen, list[tuple[int, ...]]]:
    """Every prompt by itself, in an engine of its own."""
    seen: Seen = {}
    texts = []
    for seed, prompt in enumerate(prompts(count)):
        with serving(program, **more) as (engine, watch):
            texts.append(engine.submit(ask(prompt, seed)).result().choices[0].tokens)
            seen |= watch.seen
    assert len(seen) == count * COUNT
    return seen, texts


def tokens(done: Done, index: int = 0) -> tuple[int, ...]:
    return done.choices[index].tokens


@pytest.fixture(scope="module")
def first(program) -> Callable[[int], tuple[Seen, list[tuple[int, ...]]]]:
    """Logits and tokens of the first prompts, each computed alone."""
    seen, texts = alone(program, 6)
    return lambda count: ({key: words for key, words in seen.items() if key[0] < count}, texts[:count])


@pytest.mark.parametrize("count", [6, pytest.param(2, marks=pytest.mark.soak)])
def test_in_a_batch_others_joining_and_leaving(program, first, count: int) -> None:
    seen, texts = first(count)
    with serving(program, pages=128, chunk=16) as (engine, watch):
        tickets, others = [], []
        for seed, prompt in enumerate(prompts(count)):
            tickets.append(engine.submit(ask(prompt, seed)))
            others.append(engine.submit(ask(prompt[::-1], 100 + seed, count=1 + seed * 7 % 20)))
            next(iter(others[seed].events())) if seed % 3 == 0 else None  # heard once, and then given up
        found = [tokens(ticket.result()) for ticket in tickets]
    assert found == texts
    assert watch.widest > 1
    assert {key: watch.seen[key] for key in seen} == seen


@pytest.mark.parametrize("chunk", [7, pytest.param(1, marks=pytest.mark.soak)])
def test_by_chunks_of_any_size(program, first, chunk: int) -> None:
    seen, texts = first(3)
    with serving(program, chunk=chunk) as (engine, watch):
        tickets = [engine.submit(ask(prompt, seed)) for seed, prompt in enumerate(prompts(3))]
        assert [tokens(ticket.result()) for ticket in tickets] == texts
    assert watch.seen == seen


def test_known_prefixes_and_after_eviction(program, first) -> None:
    """With the prefix cache on and off, and once more after it has lost everything."""
    seen, texts = first(4)
    with serving(program) as (engine, watch):
        for known in (True, False):
            done = [engine.submit(ask(p, seed, prefix_cache=known)).result() for seed, p in enumerate(prompts(4))]
            assert [tokens(one) for one in done] == texts
            cached = [one.timings.cached_tokens for one in done]
        assert max(cached) == 0
        again = engine.submit(ask(prompts(4)[3], 3)).result()
        assert again.timings.cached_tokens > 16
        engine.call(lambda scheduler: [scheduler.cache.evict(64, group.number) for group in scheduler.cache.groups])
        forgotten = engine.submit(ask(prompts(4)[3], 3)).result()
        assert forgotten.timings.cached_tokens == 0
        assert tokens(again) == tokens(forgotten) == texts[3]
    assert watch.seen == seen


def test_after_preemption(program, first) -> None:
    seen, texts = first(6)
    with serving(program, pages=8, chunk=16) as (engine, watch):
        with still(engine):  # so that they are there together
            tickets = [engine.submit(ask(prompt, seed)) for seed, prompt in enumerate(prompts(6))]
        done = [ticket.result() for ticket in tickets]
    assert [tokens(one) for one in done] == texts
    assert sum(one.timings.preempted for one in done) > 0
    assert watch.seen == seen


def test_forks_of_one_prefill(program) -> None:
    prompt = prompts(2)[1]
    seen: Seen = {}
    texts = []
    for seed in range(4):
        with serving(program) as (engine, watch):
            texts.append(tokens(engine.submit(ask(prompt, seed)).result()))
            seen |= watch.seen
    with serving(program) as (engine, watch):
        done = engine.submit(ask(prompt, 0, choices=4)).result()
    assert [choice.tokens for choice in done.choices] == texts
    assert watch.seen == seen


@pytest.mark.parametrize("name", ["gemma3.f16", "mamba2-g2.f32", "granite-4-h.f16", "lfm2.f16", pytest.param("llama-gqa.f16", marks=pytest.mark.soak)])
def test_all_of_it_in_wgsl(gpu, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Company that comes and goes, chunks, known prefixes, preemption and forks, on the device."""
    from llamay.tensor.webgpu.device import Guest
    from llamay.tensor.webgpu.executor import WebGPUExecutor

    monkeypatch.setattr(flights, "MOST_STEPS", 1)  # so that every step's logits are there when it was submitted

    class WatchedDevice(WebGPUExecutor):
        """Reads every step's logits back."""

        def __init__(self, *args: Any, **more: Any) -> None:
            super().__init__(*args, rows=64, **more)
            self.watch = Watch()

        def begin(self, samplings: Any, histories: Any) -> None:
            self.samplings = samplings
            super().begin(samplings, histories)

        def submit(self, batch: Any, steps: int) -> None:
            assert steps == 1
            super().submit(batch, steps)
            self.positions = self.positions + 1 if batch is None else batch.positions[batch.outputs]
            size = len(self.samplings) * self.program.vocabulary
            logits = self.device.read(self.memory.logits, np.float32, size).reshape(len(self.samplings), -1)
            self.watch.look(self.samplings, logits, self.positions)

    guest = Guest(gpu)
    made: dict[int, WatchedDevice] = {}

    def make(program: Program, pages: int, window_pages: int) -> WatchedDevice:
        """One for each number of pages, with nothing seen yet."""
        if pages not in made:
            made[pages] = WatchedDevice(guest, program, pages, window_pages=window_pages)
        made[pages].watch = Watch()
        return made[pages]

    try:
        with opened(name) as program:
            seen, texts = alone(program, 5, make=make)
            with serving(program, make=make, chunk=16) as (engine, watch):
                with still(engine):
                    tickets = [engine.submit(ask(prompt, seed)) for seed, prompt in enumerate(prompts(5))]
                engine.submit(ask(prompts(1)[0], 100)).cancel()
                assert [tokens(ticket.result()) for ticket in tickets] == texts
                again = engine.submit(ask(prompts(5)[3], 3)).result()
                assert again.timings.cached_tokens > 16 and tokens(again) == texts[3]
                assert watch.widest > 1
            assert {key: watch.seen[key] for key in seen} == seen
            with serving(program, pages=8, make=make, chunk=16) as (engine, watch):
                with still(engine):
                    tickets = [engine.submit(ask(prompt, seed)) for seed, prompt in enumerate(prompts(5))]
                done = [ticket.result() for ticket in tickets]
                assert [tokens(one) for one in done] == texts
                assert sum(one.timings.preempted for one in done) > 0
            assert watch.seen == seen
            with serving(program, make=make) as (engine, watch):
                forks = engine.submit(ask(prompts(2)[1], 1, choices=3)).result()
            assert tokens(forks) == texts[1]
            assert {key: words for key, words in watch.seen.items() if key[0] == 1} == {
                key: words for key, words in seen.items() if key[0] == 1
            }
    finally:
        guest.close()
