"""The measurements themselves: prefill, time to the first token, decode, and prefill by tile width."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from statistics import median

import numpy as np

from llamay.bench.resident import rss
from llamay.bench.target import Target
from llamay.errors import UsageError
from llamay.sample import Sampling
from llamay.serve.events import Timings
from llamay.serve.request import Limits, Request
from llamay.serve.scheduling.alone import Alone
from llamay.tensor.batch import Batch, Ints
from llamay.tensor.program import Floats

SEED = 1
GREEDY = Sampling(temperature=0.0, seed=SEED)
NO_ROWS = np.empty(0, np.int32)
MOST_REPS = 1000

Progress = Callable[[str], None]


def check_reps(reps: int) -> None:
    """Raises UsageError for repetitions that measure nothing, or that nobody waits for."""
    if not 1 <= reps <= MOST_REPS:
        raise UsageError(f"-reps is {reps}; it may be 1 to {MOST_REPS}")


@dataclass(frozen=True, slots=True)
class Samples:
    """The seconds of each repetition of something that handles `tokens` tokens."""

    tokens: int
    seconds: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Tokens a second, of the middle repetition."""
        return self.tokens / median(self.seconds)

    @property
    def best(self) -> float:
        """Tokens a second, of the fastest."""
        return self.tokens / min(self.seconds)


@dataclass(frozen=True, slots=True)
class Width:
    """Prefill with one tile width: so many tokens a workgroup."""

    tokens: int
    samples: Samples
    same: bool  # the logits are those of the first width, bit for bit


@dataclass(frozen=True, slots=True)
class Figures:
    """What the repetitions gave."""

    prefill: Samples
    decode: Samples  # the tokens after the first
    first: Samples  # one token: the time until it is there
    timings: tuple[Timings, ...]
    steps: int  # decode steps a submission had, by and large
    grown: int | None  # bytes of resident memory that the repetitions after the first added


def prompt_of(target: Target, length: int) -> Ints:
    """Random token ids [length], always the same."""
    return np.random.default_rng(SEED).integers(0, target.program.vocabulary, length).astype(np.int32)


def warm(target: Target, prompt: Ints, chunk: int) -> None:
    """Compiles and touches everything the repetitions use: both ends of the prompt, and decoding after it."""
    executor, table = target.executor, target.table
    last = (len(prompt) - 1) // chunk * chunk
    for first in {0, max(0, last - chunk), last}:
        rows = prompt[first : first + chunk]
        executor.forward(Batch.single(rows, first, table))
    executor.begin((GREEDY,), (prompt,))
    executor.submit(Batch.single(prompt[last:], last, table), 1)
    executor.submit(None, 2)
    executor.collect()
    executor.collect()


def measure(target: Target, prompt_length: int, generated: int, reps: int, say: Progress) -> Figures:
    """Runs everything `reps` times after a warm-up.

    Prefill computes the prompt in a scheduler's chunks and reads the last row's logits, as
    llama-bench does; the time to the first token and decoding are a scheduler's own, greedy,
    without turning tokens into text.
    """
    prompt = prompt_of(target, prompt_length)
    alone = Alone(target.executor, target.context)
    say("warming up")
    warm(target, prompt, alone.chunk)
    prefills, runs, resident = [], [], []
    for rep in range(reps):
        say(f"repetition {rep + 1} of {reps}")
        start = time.perf_counter()
        prefill(target, prompt, alone.chunk)
        prefills.append(time.perf_counter() - start)
        runs.append(_generate(alone, prompt, generated))
        resident.append(rss())
    submissions = max(sum(run.submissions for run in runs) - reps, 1)
    return Figures(
        prefill=Samples(prompt_length, tuple(prefills)),
        decode=Samples(generated - 1, tuple(run.decode_seconds for run in runs)),
        first=Samples(1, tuple(run.prompt_seconds for run in runs)),
        timings=tuple(runs),
        steps=max(1, round(reps * (generated - 1) / submissions)),
        grown=None if resident[0] is None or resident[-1] is None else resident[-1] - resident[0],
    )


def prefill(target: Target, prompt: Ints, chunk: int) -> Floats:
    """Computes the prompt and returns the logits [1, vocabulary] of its last row."""
    table = target.table
    for first in range(0, len(prompt) - chunk, chunk):
        target.executor.forward(Batch.single(prompt[first : first + chunk], first, table, NO_ROWS))
    first = (len(prompt) - 1) // chunk * chunk
    return target.executor.forward(Batch.single(prompt[first:], first, table))


def sweep(target: Target, prompt: Ints, reps: int, chunk: int, say: Progress) -> tuple[Width, ...]:
    """Prefill with each tile width of the device alone; nothing for NumPy, which has none."""
    found: list[Width] = []
    logits: Floats | None = None
    for width in tile_widths(target):
        say(f"prefill with {width} tokens a workgroup")
        with _only(target, width):
            warm(target, prompt, chunk)
            seconds = []
            for _ in range(reps):
                start = time.perf_counter()
                last = prefill(target, prompt, chunk)
                seconds.append(time.perf_counter() - start)
        logits = last if logits is None else logits
        found.append(Width(width, Samples(len(prompt), tuple(seconds)), last.tobytes() == logits.tobytes()))
    return tuple(found)


def tile_widths(target: Target) -> tuple[int, ...]:
    """The counts of tokens a workgroup that the device's linears are made for."""
    gpu = target.webgpu
    return gpu.device.launch.tokens if gpu else ()


@contextmanager
def _only(target: Target, width: int) -> Iterator[None]:
    """Every step inside computes `width` tokens a workgroup."""
    gpu = target.webgpu
    if gpu is None:
        raise UsageError("NumPy has no tile widths")
    launch = gpu.device.launch
    gpu.device.launch = replace(launch, tokens=(width,))
    try:
        yield
    finally:
        gpu.device.launch = launch


def _generate(alone: Alone, prompt: Ints, count: int) -> Timings:
    """The times of one whole generation, nothing of the prompt kept from before."""
    alone.forget()
    return alone.run(Request(tuple(prompt.tolist()), GREEDY, Limits(tokens=count))).timings
