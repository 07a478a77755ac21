"""A Session: one sequence of tokens over one executor, prefilled in chunks and decoded in overlapping steps."""

import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from llamay.errors import ContextFull, LlamayError, UsageError
from llamay.sample import Sampling, fresh_seed
from llamay.serve.events import Done, Reason, Text, Timings
from llamay.serve.request import Limits
from llamay.serve.sequence import Decoder
from llamay.tensor.batch import PAGE, Batch
from llamay.tensor.executor import Executor

CHUNK = 128  # prompt tokens a submission: long enough to keep a device busy, short enough for Ctrl-C
MOST_STEPS = 8  # decode steps a submission
BURST = 0.15  # seconds of decoding that may arrive at once


@dataclass(slots=True)
class _Clock:
    """Sums the times of one generation while it runs."""

    prompt: int
    cached: int
    start: float = field(default_factory=time.perf_counter)
    first: float = 0.0
    last: float = 0.0
    generated: int = 0
    submissions: int = 0
    submit: float = 0.0
    collect: float = 0.0

    def timings(self) -> Timings:
        return Timings(
            prompt_tokens=self.prompt,
            cached_tokens=self.cached,
            prompt_seconds=self.first - self.start,
            generated_tokens=self.generated,
            decode_seconds=self.last - self.first,
            submissions=self.submissions,
            submit_seconds=self.submit,
            collect_seconds=self.collect,
        )


class Session:
    """One context of an executor.  Not thread-safe, as the executor is not.

    It remembers the tokens whose keys and values are in its pages, so that a prompt
    which begins with them, like the next turn of a chat, computes only the rest.
    """

    def __init__(self, executor: Executor, context: int, chunk: int = CHUNK) -> None:
        """`context` is in tokens, at most what the executor's pages hold; raises ContextFull otherwise."""
        room = executor.pages * PAGE
        if not 1 <= context <= room:
            raise ContextFull(f"a context of {context} tokens was asked for; this executor's pages hold 1 to {room}")
        self.executor = executor
        self.context = context
        self.chunk = chunk
        self.held: list[int] = []  # tokens whose keys and values are in the pages
        self._table = np.arange(-(-context // PAGE), dtype=np.int32)
        self._in_flight = 0  # submissions not yet collected

    def generate(
        self, prompt: Sequence[int], sampling: Sampling, limits: Limits, decoder: Decoder, seed: int | None = None
    ) -> Generator[Text | Done, None, None]:
        """Yields Text events and one Done.

        `decoder` also finds the stop strings.  `seed` None draws one; Done reports it.
        Closing the iterator, or an exception
        such as Ctrl-C inside it, stops the generation and leaves the session usable.
        Raises ContextFull for a prompt that leaves no room, before anything is computed.
        """
        room = self._room(prompt, limits)
        seed = fresh_seed() if seed is None else seed
        return self._generate(list(prompt), replace(sampling, seed=seed), limits, decoder, room)

    def forget(self) -> None:
        """Drops the remembered tokens; the next prompt is computed from its start."""
        self.held.clear()

    def _room(self, prompt: Sequence[int], limits: Limits) -> int:
        """How many tokens may be generated."""
        if not prompt:
            raise UsageError("the prompt has no tokens, so there is nothing to continue")
        room = self.context - len(prompt)
        if room < 1:
            raise ContextFull(
                f"the prompt has {len(prompt)} tokens and the context {self.context}; "
                f"-c {len(prompt) + (limits.tokens or 256)} would hold it with its answer"
            )
        return room

    def _generate(
        self, prompt: list[int], sampling: Sampling, limits: Limits, decoder: Decoder, room: int
    ) -> Generator[Text | Done, None, None]:
        count = room if limits.tokens is None else min(limits.tokens, room)
        clock = _Clock(len(prompt), self._reuse(prompt))
        reason: Reason = "context" if limits.tokens is None or limits.tokens > room else "length"
        try:
            for token in self._tokens(prompt, sampling, count, clock):
                if token in limits.ends:
                    reason = "end"
                    break
                if text := decoder.push(token):
                    yield Text(text)
                if decoder.stopped is not None:
                    break
        finally:
            self._drain()
        if text := decoder.finish():
            yield Text(text)
        if decoder.stopped is not None:
            reason = "stop"
        yield Done(reason, clock.timings(), sampling.seed)

    def _reuse(self, prompt: list[int]) -> int:
        """Keeps of the held tokens those the prompt begins with; the last prompt token is always computed."""
        same = 0
        for ours, theirs in zip(self.held, prompt[:-1], strict=False):
            if ours != theirs:
                break
            same += 1
        del self.held[same:]
        return same

    def _tokens(self, prompt: list[int], sampling: Sampling, count: int, clock: _Clock) -> Iterator[int]:
        """The sampled tokens, at most `count`.  One submission runs while the one before is read."""
        if count < 1:
            clock.first = clock.last = time.perf_counter()
            return
        self.executor.begin((sampling,), (np.array(prompt, np.int32),))
        self._in_flight = 0  # begin has dropped what an interrupt left on the queue
        self._submit(self._prefill(prompt), 1, clock)
        self.held += prompt[len(self.held) :]
        queued = 1
        newest: list[int] = []  # the last sampled token: not known to have been fed back, so not held
        while clock.generated < count:
            if queued < count:
                steps = min(_steps(clock), count - queued)
                self._submit(None, steps, clock)
                queued += steps
            tokens = self._collect(clock)
            self.held += newest + tokens[:-1]
            newest = tokens[-1:]
            yield from tokens

    def _prefill(self, prompt: list[int]) -> Batch:
        """Computes all of the prompt but its last chunk, and returns that as the batch to sample from."""
        nothing = np.empty(0, np.int32)
        while len(prompt) - len(self.held) > self.chunk:
            first = len(self.held)
            rows = prompt[first : first + self.chunk]
            self.executor.forward(Batch.single(np.array(rows, np.int32), first, self._table, nothing))
            self.held += rows
        first = len(self.held)
        return Batch.single(np.array(prompt[first:], np.int32), first, self._table)

    def _submit(self, batch: Batch | None, steps: int, clock: _Clock) -> None:
        start = time.perf_counter()
        self.executor.submit(batch, steps)
        self._in_flight += 1
        clock.submissions += 1
        if batch is None:
            clock.submit += time.perf_counter() - start

    def _collect(self, clock: _Clock) -> list[int]:
        """The oldest submission's tokens."""
        start = time.perf_counter()
        tokens = [int(token) for token in self.executor.collect()[:, 0]]
        self._in_flight -= 1
        clock.last = time.perf_counter()
        if clock.generated == 0:
            clock.first = clock.last
        else:
            clock.collect += clock.last - start
        clock.generated += len(tokens)
        return tokens

    def _drain(self) -> None:
        """Waits for what is still on the queue; its tokens are of no use."""
        while self._in_flight:
            try:
                self.executor.collect()
            except UsageError:
                self._in_flight = 0  # an interrupt came between a submission and its count
                return
            except LlamayError:
                self._in_flight = 0  # the queue died with the device
                raise
            self._in_flight -= 1


def _steps(clock: _Clock) -> int:
    """Steps for the next submission: as many as decode in BURST seconds at the rate so far."""
    if clock.generated < 2:
        return 1
    rate = (clock.generated - 1) / max(clock.last - clock.first, 1e-6)
    return max(1, min(MOST_STEPS, int(rate * BURST)))
