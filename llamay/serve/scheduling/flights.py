"""Flights: submissions of decode steps that are on the device, and what of their tokens is not collected yet."""

import time
from collections import deque
from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np

from llamay.serve.scheduling.sequence import Sequence
from llamay.serve.stats import StepTimes
from llamay.tensor.batch import Batch, Ints
from llamay.tensor.executor import Executor

MOST_STEPS = 8  # decode steps a submission
BURST = 0.1  # seconds of decoding that may arrive at once: less than what the device's pace would cut
RECENT = 3  # flights that tell how long a step takes: a late host collects two at once, and the second seems to take no time


@dataclass(frozen=True, slots=True)
class Landed:
    """A submission that was collected."""

    sequences: tuple[Sequence, ...]  # by output slot
    ids: Ints  # [steps, slots]
    at: float  # when the device gave them, by time.perf_counter


@dataclass(frozen=True, slots=True)
class _Flight:
    sequences: tuple[Sequence, ...]
    steps: int
    since: float
    read: bool  # rows of prompts, whose time is not that of a step


class Flights:
    """In the order they were submitted.  The scheduler's thread owns them."""

    def __init__(self, executor: Executor, times: StepTimes) -> None:
        """`times` gets what steps take on the device."""
        self._executor, self._times = executor, times
        self._waiting: deque[_Flight] = deque()
        self._begun: list[Sequence] = []  # whose sampling the slots have
        self._recent: deque[tuple[float, int]] = deque(maxlen=RECENT)  # seconds and steps of flights with these sequences
        self._last = 0.0  # when the last one was collected

    def __len__(self) -> int:
        return len(self._waiting)

    def steps(self, sequences: Many[Sequence]) -> int:
        """Steps for the next submission: what everyone has pages and tokens left for, and takes BURST seconds."""
        seconds = sum(took for took, _ in self._recent)
        burst = int(BURST * sum(steps for _, steps in self._recent) / seconds) if seconds else 1
        return min(max(1, min(MOST_STEPS, burst)), *(sequence.steps() for sequence in sequences))

    def begin(self, sampling: list[Sequence]) -> None:
        """Gives the slots these sequences' sampling, unless they have it."""
        if sampling == self._begun:
            return
        seen = [one.tokens if one.sampling.penalises else () for one in sampling]
        settings = tuple([one.sampling for one in sampling])
        self._executor.begin(settings, tuple([np.array(tokens, np.int32) for tokens in seen]))
        self._begun = sampling
        self._recent.clear()

    def send(self, batch: Batch | None, sequences: Many[Sequence], steps: int) -> None:
        """Submits steps for the sequences whose sampling the slots have, the first of them with a batch if there is one."""
        start = time.perf_counter()
        self._executor.submit(batch, steps)
        spent = time.perf_counter() - start
        self._waiting.append(_Flight(tuple(sequences), steps, start, batch is not None))
        for sequence in sequences:
            sequence.pending += steps
        for ticket in {sequence.ticket for sequence in sequences}:
            ticket.clock.submitted_steps(spent)

    def collect(self) -> Landed:
        """Waits for the oldest one's tokens."""
        start = time.perf_counter()
        flight = self._waiting.popleft()
        ids = self._executor.collect()
        there = time.perf_counter()
        if not flight.read:
            self._recent.append((there - max(flight.since, self._last), flight.steps))
        self._last = there
        for sequence in flight.sequences:
            sequence.pending -= flight.steps
        for ticket in {sequence.ticket for sequence in flight.sequences}:
            ticket.clock.waited(there - start)
        self._times.add(steps=flight.steps, device=there - start)
        return Landed(flight.sequences, ids, there)

    def clear(self) -> None:
        """None of them will be collected."""
        self._waiting.clear()
