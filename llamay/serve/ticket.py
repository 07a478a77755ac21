"""A Ticket: what the asker of one request holds; events come out of it, a cancel goes in."""

import queue
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from llamay.errors import LlamayError
from llamay.serve.events import Done, Ended, Event, Failed, Timings
from llamay.serve.request import Asked, Request

TICK = 0.2  # seconds a wait lasts before it looks up: not every system interrupts a wait for Ctrl-C


@dataclass(slots=True)
class Clock:
    """The times of one request while it runs, by time.perf_counter."""

    submitted: float = field(default_factory=time.perf_counter)
    admitted: float = 0.0
    first: float = 0.0  # when the first token was there
    last: float = 0.0
    prompt: int = 0
    cached: int = 0
    generated: int = 0
    submissions: int = 0
    submit: float = 0.0
    collect: float = 0.0
    preempted: int = 0
    _submit: float = 0.0  # since the last token: of decode only if another comes
    _collect: float = 0.0

    def admit(self, cached: int) -> None:
        """It is its turn, with so many tokens of the prompt in pages already."""
        self.admitted, self.cached = time.perf_counter(), cached

    def submitted_steps(self, seconds: float) -> None:
        """Steps went on the queue, which took so long."""
        self.submissions += 1
        self._submit += seconds if self.generated else 0.0

    def waited(self, seconds: float) -> None:
        """For tokens."""
        self._collect += seconds if self.generated else 0.0

    def sampled(self, tokens: int) -> None:
        """So many tokens of one choice have come."""
        self.last = time.perf_counter()
        self.first = self.first or self.last
        self.generated += tokens
        self.submit, self._submit = self.submit + self._submit, 0.0
        self.collect, self._collect = self.collect + self._collect, 0.0

    def timings(self) -> Timings:
        """The sums so far."""
        now = time.perf_counter()
        admitted = self.admitted or now
        first = self.first or now
        return Timings(
            prompt_tokens=self.prompt,
            cached_tokens=self.cached,
            prompt_seconds=first - admitted if self.admitted else 0.0,
            generated_tokens=self.generated,
            decode_seconds=max(0.0, self.last - first),
            submissions=self.submissions,
            submit_seconds=self.submit,
            collect_seconds=self.collect,
            queue_seconds=admitted - self.submitted,
            preempted=self.preempted,
        )


class Ticket:
    """One request under way.  Iterate over it for the events; the last one is Done or Failed, and there is just one.

    The asker may use it from any one thread; `cancel` may come from any.
    """

    def __init__(
        self,
        id: int,
        asked: Asked,
        cancel: Callable[["Ticket"], None],
        ended: Callable[["Ticket", Done | Failed], None] = lambda ticket, final: None,
    ) -> None:
        """`ended` hears of the final event before the asker does."""
        self.id = id
        self.asked = asked
        self.clock = Clock(prompt=len(asked.tokens))
        self.done = False  # the final event has been posted
        self.choices: list[Ended] = []
        self._cancel, self._ended = cancel, ended
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._final: Done | Failed | None = None  # once it was handed out

    def get(self, timeout: float | None = None) -> Event | None:
        """The next event, None when none came within `timeout` seconds.  After the final one: that again."""
        if self._final is not None:
            return self._final
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            wait = TICK if until is None else min(TICK, max(0.0, until - time.monotonic()))
            try:
                event = self._events.get(timeout=wait)
            except queue.Empty:
                if until is not None and time.monotonic() >= until:
                    return None
                continue
            if isinstance(event, Done | Failed):
                self._final = event
            return event

    def __iter__(self) -> Generator[Event, None, None]:
        """Events to the final one.  Whoever stops earlier, by an exception such as Ctrl-C too, cancels the request."""
        return self.events()

    def events(self) -> Generator[Event, None, None]:
        """The same."""
        try:
            while self._final is None:
                event = self.get()
                if event is not None:
                    yield event
        finally:
            if self._final is None:
                self.cancel()

    def result(self) -> Done:
        """Waits for the end, leaving out what comes before; raises what a Failed carries."""
        for event in self:
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Done):
                return event
        if isinstance(self._final, Failed):
            raise self._final.error
        if self._final is None:
            raise LlamayError(f"request {self.id} ended without its final event")
        return self._final

    def cancel(self) -> None:
        """The rest is not wanted; a Done with the reason `cancel` follows within a step, unless the end came first."""
        if not self.done:
            self._cancel(self)

    # what the engine's thread does

    def post(self, event: Event) -> None:
        """Hands an event to the asker; nothing follows the final one."""
        if self.done:
            return
        if isinstance(event, Done | Failed):
            self.done = True
            if isinstance(self.asked, Request) and self.asked.keeper is not None:
                self.asked.keeper.ended(event)
            self._ended(self, event)
        self._events.put(event)

    def fail(self, error: LlamayError) -> None:
        """Ends it with an error."""
        self.post(Failed(error, self.clock.timings()))
