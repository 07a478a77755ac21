"""How decoding speeds up with the number of requests that decode together."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from llamay.bench.measure import GREEDY, SEED, Progress, Samples, check_reps
from llamay.bench.shared import Room
from llamay.bench.target import Target
from llamay.errors import LlamayError, UsageError
from llamay.serve.request import Limits, Request
from llamay.serve.scheduling.together import Together

MOST = 64  # requests a step may have
LEAST = 24  # tokens to generate: a scheduler may have run two submissions ahead when the clock begins


@dataclass(frozen=True, slots=True)
class Width:
    """What `width` requests at once gave, after all of them had their first token."""

    width: int
    samples: Samples  # the tokens of all of them
    cpu: float  # seconds of this process's threads a token; a software adapter computes in them too
    host: float  # seconds of the scheduler's own thread a token
    same: bool  # the first request's tokens are those it has alone

    def as_json(self, first: "Width") -> dict[str, Any]:
        """Plain data; `first` is the width of one request."""
        return {
            "width": self.width,
            "tokens": self.samples.tokens,
            "seconds": self.samples.seconds,
            "rate": self.samples.rate,
            "best": self.samples.best,
            "speedup": self.samples.rate / first.samples.rate,
            "cpu_seconds_a_token": self.cpu,
            "host_seconds_a_token": self.host,
            "same": self.same,
        }


def widths_to(most: int) -> tuple[int, ...]:
    """1, 2, 4 ... and `most` itself."""
    doubled = (1 << power for power in range(most.bit_length()))
    return tuple(sorted({*(width for width in doubled if width <= most), most}))


def room_of(most: int, prompt: int, generated: int) -> Room:
    """The pages that so many requests take."""
    return Room(prompt + generated, most, 0)


def check(most: int, prompt: int, generated: int, reps: int) -> None:
    """Raises UsageError for counts that measure nothing."""
    if not 1 <= most <= MOST:
        raise UsageError(f"-batch is {most}; it may be 1 to {MOST}")
    check_reps(reps)
    for name, value, least in (("-prompt", prompt, 1), ("-gen", generated, LEAST)):
        if value < least:
            raise UsageError(f"{name} is {value}; with -batch it may be {least} or more")


def run(target: Target, most: int, prompt: int, generated: int, reps: int, say: Progress) -> Iterator[Width]:
    """Yields each width up to `most`: requests of random prompts of their own, `generated` tokens each, greedy.

    Prompts are computed once and found in the prefix cache from then on; what is timed is decoding,
    from when every request has its first token and nothing is under way, to the last token of all.
    """
    check(most, prompt, generated, reps)
    crowd = Together(target.executor, target.context)
    if crowd.scheduler.most < most:
        raise UsageError(f"-batch is {most}; this device takes {crowd.scheduler.most} requests of this length at once")
    ids = np.random.default_rng(SEED).integers(0, target.program.vocabulary, (most, prompt))
    requests = [Request(tuple(row.tolist()), GREEDY, Limits(tokens=generated)) for row in ids]
    alone: tuple[int, ...] | None = None
    for width in widths_to(most):
        say(f"{width} at once: warming up")
        _once(crowd, requests[:width])
        taken = []
        for rep in range(reps):
            say(f"{width} at once: repetition {rep + 1} of {reps}")
            taken.append(_once(crowd, requests[:width]))
        first = taken[0].tokens
        alone = first if alone is None else alone
        count = taken[0].count
        yield Width(
            width,
            Samples(count, tuple(one.seconds for one in taken)),
            cpu=median(one.cpu for one in taken) / count,
            host=median(one.host for one in taken) / count,
            same=all(one.tokens == alone for one in taken),
        )


@dataclass(frozen=True, slots=True)
class _Once:
    """One repetition."""

    count: int  # tokens that were timed
    seconds: float
    cpu: float
    host: float
    tokens: tuple[int, ...]  # of the first request


def _once(crowd: Together, requests: list[Request]) -> _Once:
    """Decodes the requests together; the clock runs from when all have begun."""
    tickets = [crowd.submit(one) for one in requests]
    crowd.until(lambda: all(ticket.clock.generated for ticket in tickets))
    before = sum(ticket.clock.generated for ticket in tickets)
    start, cpu, host = time.perf_counter(), time.process_time(), time.thread_time()
    crowd.until(lambda: False)
    seconds, cpu, host = time.perf_counter() - start, time.process_time() - cpu, time.thread_time() - host
    done = [ticket.result() for ticket in tickets]
    count = sum(ticket.clock.generated for ticket in tickets) - before
    if count < 1:
        raise LlamayError("all tokens had come before the clock ran: ask for more of them with -gen")
    return _Once(count, seconds, cpu, host, done[0].choices[0].tokens)
