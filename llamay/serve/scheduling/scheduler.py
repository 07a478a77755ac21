"""The scheduler of one model: which rows the next step computes, and what its tokens mean for each request.

A step has a row for every decoding sequence, and at most one chunk of prompts: so no token waits
longer than a chunk takes, and the weights are read once for all.  While nothing joins or leaves,
steps follow each other on the device without the host, one submission ahead where that computes beside it.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Protocol

import numpy as np

from llamay.errors import ContextFull, LlamayError, OutOfMemory
from llamay.kv import Cache, Context
from llamay.serve.events import Done, Reason, Rows
from llamay.serve.logprobs import Scored
from llamay.serve.request import Reading, Request
from llamay.serve.scheduling.admission import Admission, youngest
from llamay.serve.scheduling.flights import Flights
from llamay.serve.scheduling.scoring import LOGIT_BYTES, read, scored
from llamay.serve.scheduling.sequence import Decoder, Sequence, no_numbers
from llamay.serve.scheduling.step import NO_ROWS, Piece, batch_of
from llamay.serve.scheduling.waiting import Waiting
from llamay.serve.stats import StepTimes
from llamay.serve.ticket import Ticket
from llamay.tensor.batch import PAGE
from llamay.tensor.executor import NO_TOKEN, Executor

CHUNK = 128  # prompt tokens a step: long enough to keep a device busy, short enough for those who decode, and Ctrl-C
RUNNING = 64  # sequences a step


class Model(Protocol):
    """What is scheduled; `llamay.serve.loading.load.Loaded` is one."""

    executor: Executor
    cache: Cache
    context: int  # tokens, at most what the cache's pages hold

    def decoder(self, prompt: tuple[int, ...], stops: tuple[str, ...]) -> Decoder:
        """The decoder of an answer to this prompt."""

    def close(self) -> None:
        """Gives device memory back.  Safe to call twice."""


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
        self.admission = Admission(self.cache, waiting, model.decoder, model.context, self.executor.program, chunk)
        self.running: list[Sequence] = []  # in the order of their slots
        self.prefilling: Sequence | None = None  # the one prompt that is computed in part
        self.times = StepTimes()
        self._read_rows = max(1, min(chunk, LOGIT_BYTES // (4 * vocabulary)))
        self._flights = Flights(self.executor, self.times)
        self._joined: list[Sequence] = []  # that were taken up for the last step that was composed
        self._flowing = False  # the slots are those that run, with the tables they have now

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
        if self._flights and (not submitted or len(self._flights) > self.executor.ahead):
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
        self.admission.drop(context)

    def drain(self) -> None:
        """Waits for what is on the device."""
        while self._flights:
            self._collect()

    def fail(self, error: LlamayError) -> None:
        """Ends everyone that was admitted, those too whose first step is what failed."""
        joined = [sequence for sequence in self._joined if not sequence.over]
        active = list(dict.fromkeys([*self.active, *joined]))
        for sequence in active:
            self._leave(sequence)
        for sequence in active:
            sequence.ticket.fail(error)
        self._flights.clear()

    # -- steps

    def _run_ahead(self) -> bool:
        """Lets the device go on from the tokens it has, where nothing changes."""
        if not self._flowing or not self.running or self._scoring or self._joinable():
            return False
        start = time.perf_counter()
        steps = self._flights.steps(self.running)
        if steps < 1:
            return False
        scheduled = time.perf_counter()
        self._flights.send(None, self.running, steps)
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
            self._flights.begin(sampling)
            self.running = sampling
            steps = 1 if complete or self._joinable() else self._flights.steps(sampling)  # a first token waits for no other
            self._flights.send(batch, sampling, steps)
        else:
            self.executor.forward(batch)
        self.times.add(schedule=scheduled - start, encode=time.perf_counter() - scheduled)
        for piece in pieces:
            scoring = piece.samples and piece.sequence.alignment is not None  # computes its last row once more
            self.cache.commit(piece.context, piece.tokens[:-1] if scoring else piece.tokens)
        self.times.prefilled += sum(piece.rows for piece in joining)
        for sequence in complete:
            self._prefilled(sequence)
        self._flowing = bool(sampling)
        return bool(sampling)

    def _collect(self) -> None:
        """The oldest submission's tokens, to those whose they are."""
        landed = self._flights.collect()
        found = scored(self.executor, landed.sequences, landed.ids)
        ended: list[tuple[Sequence, Reason]] = []
        listening, wrong = [], list[Sequence]()
        for sequence, tokens in zip(landed.sequences, landed.ids.T.tolist(), strict=True):
            if sequence.over:
                continue
            listening.append(sequence)
            numbers = tokens[: tokens.index(NO_TOKEN)] if NO_TOKEN in tokens else tokens
            reason = self._accept(sequence, numbers, found.get(sequence))
            if reason is not None:
                ended.append((sequence, reason))
            elif len(numbers) < len(tokens):
                wrong.append(sequence)
        accepted = time.perf_counter()
        for sequence in listening:
            sequence.say()
        for sequence, reason in ended:
            self._end(sequence, reason)
        for sequence in wrong:
            self._fail(sequence.ticket, no_numbers(len(sequence.tokens), self.executor.name))
        self.times.add(sample=accepted - landed.at, send=time.perf_counter() - accepted)

    def _accept(self, sequence: Sequence, tokens: list[int], scores: list[Scored] | None) -> Reason | None:
        before = sequence.generated
        reason: Reason | None = None
        for step, token in enumerate(tokens):
            reason = sequence.accept(token, scores[step] if scores else None)
            if reason is not None:
                break
        sequence.ticket.clock.sampled(sequence.generated - before)
        self.times.generated += sequence.generated - before
        if sequence.context is not None:  # all but the newest have been fed back
            self.cache.commit(sequence.context, sequence.tokens[sequence.held : -1])
        return reason

    # -- who takes part

    @property
    def _scoring(self) -> bool:
        """Whether somebody's logits are computed between two submissions, so that none may run ahead."""
        return any(sequence.alignment is not None for sequence in self.running)

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
                if self.admission.spare():
                    continue
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
        self._joined = []
        left = self.chunk
        while left > 0:
            sequence, self.prefilling = self.prefilling or self._admitted(pieces), None
            if sequence is None:
                break
            self._joined.append(sequence)
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
        reserve = partial(self.admission.reserve, sequence, rows)
        while self.running:
            try:
                reserve()
                return True
            except OutOfMemory:
                if not self.admission.spare():
                    self._preempt(sequence)
                    return False
        return self._secure(sequence, reserve)

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
        wanted = np.arange(max(0, sequence.unread - first), rows, dtype=np.int32)
        logits = self.executor.forward(batch_of([piece], wanted if len(wanted) else NO_ROWS))
        self._flowing = False
        self.cache.commit(piece.context, piece.tokens)
        if not np.isfinite(logits).all():
            self._leave(sequence)
            sequence.ticket.fail(no_numbers(first + rows, self.executor.name))
            return
        if len(logits):
            at = max(first, sequence.unread)
            sequence.ticket.post(Rows(at, logits) if asked.logprobs is None else read(asked, at, logits))
            sequence.unread = at + len(logits)  # which lost pages do not change
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
