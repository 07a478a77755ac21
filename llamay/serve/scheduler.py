"""The scheduler of one model: which rows the next step computes, and what its tokens mean for each request.

A step has a row for every decoding sequence, and at most one chunk of prompts: so no token waits
longer than a chunk takes, and the weights are read once for all.  While nothing joins or leaves,
steps follow each other on the device without the host, one submission ahead.
"""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np

from llamay.errors import ContextFull, LlamayError, OutOfMemory
from llamay.kv import Cache, Context
from llamay.serve.admission import Admission, youngest
from llamay.serve.events import Done, Reason, Rows
from llamay.serve.request import Reading, Request
from llamay.serve.sequence import Decoder, Sequence
from llamay.serve.stats import StepTimes
from llamay.serve.step import NO_ROWS, Piece, batch_of
from llamay.serve.ticket import Ticket
from llamay.serve.waiting import Waiting
from llamay.tensor.batch import PAGE
from llamay.tensor.executor import Executor

CHUNK = 128  # prompt tokens a step: long enough to keep a device busy, short enough for those who decode, and Ctrl-C
RUNNING = 64  # sequences a step
MOST_STEPS = 8  # decode steps a submission
BURST = 0.15  # seconds of decoding that may arrive at once
LOGIT_BYTES = 64 << 20  # of the logits that one step of a reading returns


class Model(Protocol):
    """What is scheduled; `llamay.serve.load.Loaded` is one."""

    executor: Executor
    cache: Cache
    context: int  # tokens, at most what the cache's pages hold

    def decoder(self, prompt: tuple[int, ...], stops: tuple[str, ...]) -> Decoder:
        """The decoder of an answer to this prompt."""

    def close(self) -> None:
        """Gives device memory back.  Safe to call twice."""


@dataclass(frozen=True, slots=True)
class _Flight:
    """A submission whose tokens are not collected yet."""

    sequences: tuple[Sequence, ...]  # by output slot
    steps: int
    since: float


class Scheduler:
    """Runs one model's requests.  One thread owns it, with the executor and the cache."""

    def __init__(self, model: Model, waiting: Waiting, *, chunk: int = CHUNK, running: int = RUNNING) -> None:
        self.executor, self.cache = model.executor, model.cache
        room = self.cache.groups[0].pages.count * PAGE
        if not 1 <= model.context <= room:
            raise ContextFull(f"a context of {model.context} tokens was asked for; the pages hold 1 to {room}")
        self.chunk = chunk
        self.most = min(running, self.executor.slots, self.executor.rows_at(model.context - 1))
        vocabulary = self.executor.program.vocabulary
        self.admission = Admission(self.cache, waiting, model.decoder, model.context, vocabulary, chunk)
        self.running: list[Sequence] = []  # in the order of their slots
        self.prefilling: Sequence | None = None  # the one prompt that is computed in part
        self.times = StepTimes()
        self._read_rows = max(1, min(chunk, LOGIT_BYTES // (4 * vocabulary)))
        self._flights: deque[_Flight] = deque()
        self._begun: list[Sequence] = []  # whose sampling the slots have
        self._flowing = False  # the slots are those that run, with the tables they have now
        self._step_seconds = 0.0  # of a decode step, the last time it was measured
        self._last = 0.0  # when the last submission was collected

    @property
    def busy(self) -> bool:
        """Whether there is something to do."""
        return bool(self.running or self._flights or self.prefilling) or self.admission.anyone()

    @property
    def active(self) -> list[Sequence]:
        """Everyone that was admitted."""
        prefilling = [self.prefilling] if self.prefilling else []
        return [*self.running, *prefilling, *self.admission.paused]

    def turn(self) -> None:
        """At most one submission and one collection.  An error of the executor leaves it unusable: `fail` follows."""
        submitted = self._run_ahead() or (not self._flights and self._compose())
        if self._flights and (not submitted or len(self._flights) > 1):
            self._collect()

    def cancel(self, ticket: Ticket) -> None:
        """Ends a request that was admitted; its pages are free when this returns."""
        for sequence in [sequence for sequence in self.active if sequence.ticket is ticket]:
            if sequence.purpose == "answer":
                sequence.end("cancel")
            self._leave(sequence)
        self._finish(ticket, "cancel")

    def drop(self, context: Context) -> None:
        """Gives a context back that belongs to nobody any more."""
        self.cache.drop(context)
        self.admission.gave_back()

    def drain(self) -> None:
        """Waits for what is on the device."""
        while self._flights:
            self._collect()

    def fail(self, error: LlamayError) -> None:
        """Ends everyone that was admitted."""
        for sequence in self.active:
            sequence.ticket.fail(error)
            self._leave(sequence)
        self._flights.clear()

    # -- steps

    def _run_ahead(self) -> bool:
        """Lets the device go on from the tokens it has, where nothing changes."""
        if not self._flowing or not self.running or self._joinable():
            return False
        start = time.perf_counter()
        steps = self._steps()
        if steps < 1:
            return False
        scheduled = time.perf_counter()
        self.executor.submit(None, steps)
        self._sent(self.running, steps, scheduled)
        self.times.add(schedule=scheduled - start, encode=time.perf_counter() - scheduled)
        return True

    def _compose(self) -> bool:
        """Submits a batch of everyone's next rows; False where nothing is to be collected after it."""
        start = time.perf_counter()
        self._grow()
        joining = self._joining()
        pieces = [*joining, *(Piece(sequence, 1) for sequence in self.running)]
        if not pieces:
            return False
        batch = batch_of(pieces)
        complete = [piece.sequence for piece in joining if piece.completes]
        sampling = [piece.sequence for piece in pieces if piece.samples]
        scheduled = time.perf_counter()
        if sampling:
            self._begin(sampling)
            self.running = sampling
            steps = 1 if self._joinable() else self._steps()
            self.executor.submit(batch, steps)
            self._sent(sampling, steps, scheduled)
        else:
            self.executor.forward(batch)
        self.times.add(schedule=scheduled - start, encode=time.perf_counter() - scheduled)
        for piece in pieces:
            self.cache.commit(piece.context, piece.tokens)
        self.times.prefilled += sum(piece.rows for piece in joining)
        for sequence in complete:
            self._prefilled(sequence)
        self._flowing = bool(sampling)
        return bool(sampling)

    def _begin(self, sampling: list[Sequence]) -> None:
        """Gives the slots these sequences' sampling, unless they have it."""
        if sampling == self._begun:
            return
        seen = [one.tokens if one.sampling.penalises else () for one in sampling]
        self.executor.begin(tuple([one.sampling for one in sampling]), tuple([np.array(t, np.int32) for t in seen]))
        self._begun = sampling

    def _sent(self, sequences: list[Sequence], steps: int, start: float) -> None:
        spent = time.perf_counter() - start
        self._flights.append(_Flight(tuple(sequences), steps, start))
        for sequence in sequences:
            sequence.pending += steps
        for ticket in {sequence.ticket for sequence in sequences}:
            ticket.clock.submitted_steps(spent)

    def _collect(self) -> None:
        """The oldest submission's tokens, to those whose they are."""
        start = time.perf_counter()
        flight = self._flights.popleft()
        ids = self.executor.collect()  # [steps, slots]
        there = time.perf_counter()
        self._step_seconds = (there - max(flight.since, self._last)) / flight.steps
        self._last = there
        for ticket in {sequence.ticket for sequence in flight.sequences}:
            ticket.clock.waited(there - start)
        ended: list[tuple[Sequence, Reason]] = []
        listening = []
        for sequence, tokens in zip(flight.sequences, ids.T.tolist(), strict=True):
            sequence.pending -= flight.steps
            if sequence.over:
                continue
            listening.append(sequence)
            reason = self._accept(sequence, tokens)
            if reason is not None:
                ended.append((sequence, reason))
        accepted = time.perf_counter()
        for sequence in listening:
            sequence.say()
        for sequence, reason in ended:
            self._end(sequence, reason)
        self.times.add(steps=flight.steps, device=there - start, sample=accepted - there)
        self.times.add(send=time.perf_counter() - accepted)

    def _accept(self, sequence: Sequence, tokens: list[int]) -> Reason | None:
        before = sequence.generated
        reason: Reason | None = None
        for token in tokens:
            reason = sequence.accept(token)
            if reason is not None:
                break
        sequence.ticket.clock.sampled(sequence.generated - before)
        self.times.generated += sequence.generated - before
        if sequence.context is not None:  # all but the newest have been fed back
            self.cache.commit(sequence.context, sequence.tokens[sequence.held : -1])
        return reason

    def _steps(self) -> int:
        """Steps for the next submission: what everyone has pages and tokens left for, and takes BURST seconds."""
        burst = int(BURST / self._step_seconds) if self._step_seconds else 1
        return min(max(1, min(MOST_STEPS, burst)), *(sequence.steps() for sequence in self.running))

    # -- who takes part

    def _joinable(self) -> bool:
        """Whether a prompt could be computed in the next step."""
        if self.prefilling is not None:
            return True
        return len(self.running) < self.most and self.admission.may_succeed(others=bool(self.running))

    def _grow(self) -> None:
        """A page for every decoding sequence that needs one, the oldest first."""
        for sequence in sorted(self.running, key=lambda one: one.order):
            if sequence in self.running:
                self._secure(sequence, partial(self.admission.grow, sequence, len(self.running)))

    def _secure(self, sequence: Sequence, take: Callable[[], None]) -> bool:
        """Takes pages, the youngest paying where there are too few; False where that was this sequence itself."""
        while True:
            try:
                take()
                return True
            except OutOfMemory as error:
                others = [other for other in self.active if other is not sequence]
                payer = youngest([*others, sequence])
                if payer is None or (payer is sequence and youngest(others) is None):
                    self._fail(sequence.ticket, error)
                    return False
                self._preempt(payer)
                if payer is sequence:
                    return False

    def _joining(self) -> list[Piece]:
        """One chunk of prompts: the one under way, then as many new ones as are complete within it."""
        pieces: list[Piece] = []
        left = self.chunk
        while left > 0:
            sequence, self.prefilling = self.prefilling or self._admitted(pieces), None
            if sequence is None:
                break
            if sequence.purpose == "reading":
                self._read(sequence)
                break
            if sequence.missing < 1:
                self._prefilled(sequence)
                continue
            rows = self._rows(sequence, left, len(self.running) + self.chunk - left)
            if rows < 1:  # the next step has place for it
                self.prefilling = sequence
                break
            if not self._reserve(sequence, rows):
                break
            pieces.append(Piece(sequence, rows))
            left -= rows
            if rows < sequence.missing:
                self.prefilling = sequence
                break
        return pieces

    def _rows(self, sequence: Sequence, left: int, taken: int) -> int:
        """How many rows of a prompt the step has place for, with `taken` of others."""
        rows = min(left, sequence.missing)
        furthest = max((len(one.tokens) for one in self.running), default=0)
        return min(rows, self.executor.rows_at(max(furthest, sequence.held + rows) - 1) - taken)

    def _reserve(self, sequence: Sequence, rows: int) -> bool:
        """Pages for the next rows of a prompt.  Those who run go first: they lose none to it."""
        try:
            self.admission.reserve(sequence, rows)
            return True
        except OutOfMemory:
            if self.running:
                self._preempt(sequence)
                return False
            return self._secure(sequence, partial(self.admission.reserve, sequence, rows))

    def _admitted(self, joining: list[Piece]) -> Sequence | None:
        taking_part = len(self.running) + len(joining)
        return self.admission.admit(others=taking_part > 0) if taking_part < self.most else None

    def _read(self, sequence: Sequence) -> None:
        """A step of its own for a chunk of a reading."""
        asked, first = sequence.ticket.asked, sequence.held
        rows = min(self._read_rows, sequence.missing)
        if not isinstance(asked, Reading) or not self._reserve(sequence, rows):
            return
        piece = Piece(sequence, rows)
        wanted = np.arange(max(0, asked.first - first), rows, dtype=np.int32)
        logits = self.executor.forward(batch_of([piece], wanted if len(wanted) else NO_ROWS))
        self._flowing = False
        self.cache.commit(piece.context, piece.tokens)
        if len(logits):
            sequence.ticket.post(Rows(max(first, asked.first), logits))
        if sequence.missing:
            self.prefilling = sequence
        else:
            self._leave(sequence)
            self._finish(sequence.ticket, "end")

    def _prefilled(self, sequence: Sequence) -> None:
        """All of a prompt is in pages: it is known from now on, and its choices fork from it."""
        self.admission.publish(sequence)
        asked = sequence.ticket.asked
        if sequence.purpose == "answer" or not isinstance(asked, Request):
            return
        if asked.limits.tokens != 0 and sequence.context is not None:
            forks = self.cache.fork(sequence.context, asked.choices)
            self.admission.pause([self.admission.choice(sequence, index, fork) for index, fork in enumerate(forks)])
        self._leave(sequence)
        if asked.limits.tokens == 0:
            self._finish(sequence.ticket, "length")

    def _preempt(self, sequence: Sequence) -> None:
        self._forget(sequence)
        self.admission.preempt(sequence)
        self.times.preempted += 1

    def _end(self, sequence: Sequence, reason: Reason) -> None:
        """One choice is over."""
        sequence.end(reason)
        self._leave(sequence)
        ticket = sequence.ticket
        if isinstance(ticket.asked, Request) and len(ticket.choices) == ticket.asked.choices:
            self._finish(ticket, min(ticket.choices, key=lambda ended: ended.index).reason)

    def _fail(self, ticket: Ticket, error: LlamayError) -> None:
        for sequence in [sequence for sequence in self.active if sequence.ticket is ticket]:
            self._leave(sequence)
        ticket.fail(error)

    def _leave(self, sequence: Sequence) -> None:
        """It takes no further part."""
        sequence.over = True
        self._forget(sequence)
        self.admission.release(sequence)

    def _forget(self, sequence: Sequence) -> None:
        if sequence in self.running:
            self.running = [other for other in self.running if other is not sequence]
            self._flowing = False
        if self.prefilling is sequence:
            self.prefilling = None

    def _finish(self, ticket: Ticket, reason: Reason) -> None:
        choices = tuple(sorted(ticket.choices, key=lambda ended: ended.index))
        asked = ticket.asked
        seed = asked.sampling.seed if isinstance(asked, Request) else 0
        ticket.post(Done(reason, ticket.clock.timings(), seed, choices))
