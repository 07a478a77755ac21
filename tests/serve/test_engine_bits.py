"""Logits of real models, bit for bit: alone, in company that comes and goes, by chunks, known, preempted, forked.

Every logit that a token is sampled from is kept, by the seed of who asked and its position.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from llamay import arch, gguf, model
from llamay.kv import Cache
from llamay.sample import Sampling
from llamay.serve.engine import Bounds, Engine
from llamay.serve.events import Done
from llamay.serve.request import Limits, Request
from llamay.serve.sequence import Mute
from llamay.tensor.numpy import NumpyExecutor

MODELS = ("llama-gqa.f16", "qwen2-k.q4_k", "gemma3.f16")
SPAN = 16  # of gemma3
COUNT = 30  # tokens of an answer
LIVELY = Sampling(temperature=1.2, top_k=50, repeat_penalty=1.3, repeat_last_n=20)

Seen = dict[tuple[int, int], bytes]  # (seed, position) -> logits


class Watched(NumpyExecutor):
    """Keeps the logits that tokens are sampled from."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.seen: Seen = {}
        self.widest = 0

    def _choose(self, logits: Any, positions: Any) -> Any:
        self.widest = max(self.widest, len(logits))
        for how, row, position in zip(self._samplings, logits, positions, strict=True):
            words = np.ascontiguousarray(row).tobytes()
            assert self.seen.setdefault((how.seed, int(position)), words) == words  # computed again: the same
        return super()._choose(logits, positions)


@dataclass
class Served:
    """A tiny model with as many pages as wanted."""

    executor: Watched
    cache: Cache
    context: int = 256
    closed: list[str] = field(default_factory=list)

    def decoder(self, prompt: tuple[int, ...], stops: tuple[str, ...]) -> Mute:
        return Mute()

    def close(self) -> None:
        self.closed.append("once")


@pytest.fixture(scope="module", params=MODELS)
def program(request):
    path = f"{__file__.rsplit('/', 2)[0]}/data/models/{request.param}.gguf"
    with gguf.open(path) as file:
        yield model.bind(file, arch.describe(file)).program


@contextmanager
def serving(program, pages: int = 64, **bounds: Any) -> Iterator[tuple[Engine, Watched]]:
    windowed = bool(program.windowed)
    executor = Watched(program, pages, window_pages=pages if windowed else 0)
    cache = Cache(pages, pages if windowed else 0, SPAN if windowed else 0, executor.copy_pages)
    with Engine.of(Served(executor, cache, min(256, 16 * pages)), Bounds(**bounds)) as engine:
        yield engine, executor
        engine.call(lambda scheduler: scheduler.cache.check_integrity())
        assert engine.call(lambda scheduler: len(scheduler.cache.contexts)) == 0


def prompts(count: int) -> list[list[int]]:
    """Prompts of different lengths; every other one begins alike."""
    luck = np.random.default_rng(5)
    stem = luck.integers(0, 320, 40).tolist()
    return [[*(stem if n % 2 else []), *luck.integers(0, 320, 3 + n * 9 % 50).tolist()] for n in range(count)]


def ask(prompt: Sequence[int], seed: int, **more: Any) -> Request:
    how = Sampling(**{**{name: getattr(LIVELY, name) for name in LIVELY.__slots__}, "seed": seed})
    return Request(tuple(prompt), how, Limits(more.pop("count", COUNT)), **more)


def alone(program, count: int) -> tuple[Seen, list[tuple[int, ...]]]:
    """Every prompt by itself, in an engine of its own."""
    seen: Seen = {}
    texts = []
    for seed, prompt in enumerate(prompts(count)):
        with serving(program) as (engine, executor):
            texts.append(engine.submit(ask(prompt, seed)).result().choices[0].tokens)
            seen |= executor.seen
    assert len(seen) == count * COUNT
    return seen, texts


def tokens(done: Done, index: int = 0) -> tuple[int, ...]:
    return done.choices[index].tokens


@pytest.mark.parametrize("count", [2, 3, 8])
def test_in_a_batch_others_joining_and_leaving(program, count: int) -> None:
    seen, texts = alone(program, count)
    with serving(program, pages=128, chunk=16) as (engine, executor):
        tickets, others = [], []
        for seed, prompt in enumerate(prompts(count)):
            tickets.append(engine.submit(ask(prompt, seed)))
            others.append(engine.submit(ask(prompt[::-1], 100 + seed, count=1 + seed * 7 % 20)))
            next(iter(others[seed].events())) if seed % 3 == 0 else None  # heard once, and then given up
        found = [tokens(ticket.result()) for ticket in tickets]
    assert found == texts
    assert executor.widest > 1
    assert {key: executor.seen[key] for key in seen} == seen


@pytest.mark.parametrize("chunk", [1, 7, 32])
def test_by_chunks_of_any_size(program, chunk: int) -> None:
    seen, texts = alone(program, 3)
    with serving(program, chunk=chunk) as (engine, executor):
        tickets = [engine.submit(ask(prompt, seed)) for seed, prompt in enumerate(prompts(3))]
        assert [tokens(ticket.result()) for ticket in tickets] == texts
    assert executor.seen == seen


def test_known_prefixes_and_after_eviction(program) -> None:
    """With the prefix cache on and off, and once more after it has lost everything."""
    seen, texts = alone(program, 4)
    with serving(program) as (engine, executor):
        for known in (True, True, False):
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
    assert executor.seen == seen


def test_after_preemption(program) -> None:
    seen, texts = alone(program, 6)
    with serving(program, pages=8, chunk=16) as (engine, executor):
        tickets = [engine.submit(ask(prompt, seed)) for seed, prompt in enumerate(prompts(6))]
        done = [ticket.result() for ticket in tickets]
    assert [tokens(one) for one in done] == texts
    assert sum(one.timings.preempted for one in done) > 0
    assert executor.seen == seen


def test_forks_of_one_prefill(program) -> None:
    prompt = prompts(2)[1]
    seen: Seen = {}
    texts = []
    for seed in range(4):
        with serving(program) as (engine, executor):
            texts.append(tokens(engine.submit(ask(prompt, seed)).result()))
            seen |= executor.seen
    with serving(program) as (engine, executor):
        done = engine.submit(ask(prompt, 0, choices=4)).result()
    assert [choice.tokens for choice in done.choices] == texts
    assert executor.seen == seen
