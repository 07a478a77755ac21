"""A Turn: one generation for one HTTP request, watched for a client that goes away."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from llamay.errors import Closed, LlamayError
from llamay.serve.events import Done, Ended, Event, Failed, Text, Timings
from llamay.serve.logprobs import Scored
from llamay.serve.request import Request
from llamay.serve.speech import Spoken, spoken
from llamay.serve.ticket import Ticket
from llamay.server import visits
from llamay.server.site import Site
from llamay.tok.thinking import Thinking

POLL = 0.05  # seconds between two looks at the client
LAST = 1.0  # seconds that the engine has to end what is cut: a step on a slow device takes longer
PING = 15.0  # seconds of silence after which a stream says that it is alive


class Gone(LlamayError):
    """The client went away; nobody hears the answer."""

    http_status = 499


@dataclass(frozen=True, slots=True)
class Answer:
    """All of a finished turn: the texts and ends of its choices, and where the time went."""

    texts: tuple[str, ...]
    thoughts: tuple[str, ...]  # what came before them, where it was known how the model thinks
    ended: tuple[Ended, ...]
    timings: Timings
    seed: int
    scored: tuple[tuple[Scored, ...], ...]  # of each choice; empty where logprobs were not asked for


class Turn:
    """Iterate over it once for the events; None stands for PING seconds of silence.

    It takes one of the site's places until it is over.  Raises what made the request fail, and Gone.
    """

    def __init__(self, site: Site, ask: Callable[[], Ticket], gone: Callable[[], bool]) -> None:
        """`ask` submits the request; `gone` tells whether the client is.  QueueFull where there is no place."""
        self._site, self._gone, self._visit = site, gone, visits.current()
        self._open = True
        self._asked, self._spoke = time.monotonic(), 0.0
        self._first: Event | None = None  # came while `begin` waited
        self._until = 0.0  # when it is over whatever the engine does, once it was cut
        site.enter()
        try:
            self.ticket = ask()
        except BaseException:
            self._leave()
            raise
        self.done: Done | None = None

    def begin(self, patience: float = PING) -> None:
        """Waits until it is admitted, at most `patience` seconds, so that what forbids it has a status of its own.

        A stream calls it before its first byte.  Raises what made the request fail, and Gone.
        """
        until = time.monotonic() + patience
        while self._first is None and not self.ticket.clock.admitted and time.monotonic() < until:
            if self._gone():
                self.close()
                raise Gone("the client went away")
            self._first = self.ticket.get(timeout=POLL)
            self._cut(self._first)
        if isinstance(self._first, Failed):
            self._over("failed", self._first.timings)
            raise self._first.error

    def __iter__(self) -> Iterator[Event | None]:
        heard = time.monotonic()
        try:
            while self.done is None:
                event, self._first = self._first, None
                if event is None:
                    event = self.ticket.get(timeout=POLL)
                if self._gone():
                    raise Gone("the client went away")
                self._cut(event)
                if event is None:
                    if time.monotonic() - heard > PING:
                        heard = time.monotonic()
                        yield None
                    continue
                heard = time.monotonic()
                if isinstance(event, Text):
                    self._spoke = self._site.meter.spoke(self._spoke, heard)
                if isinstance(event, Failed):
                    self._over("failed", event.timings)
                    raise event.error
                if isinstance(event, Done):
                    given = event.choices
                    self.done = event = self._complete(event)
                    self._over(event.reason, event.timings)
                    if event.reason == "cancel" and not event.choices:
                        raise Closed("the server was closed before the request's turn came; try again later")
                    yield from event.choices[len(given) :]
                yield event
        finally:
            self.close()

    def answer(self, thinking: Thinking | None = None) -> Answer:
        """Waits for the end; what is thought is told from the texts where it is known how."""
        said = defaultdict[tuple[int, bool], list[str]](list)
        scored = defaultdict[int, list[Scored]](list)
        for event in spoken(self, thinking):
            if isinstance(event, Spoken):
                said[event.index, event.thought].append(event.text)
                scored[event.index] += event.scored
        if self.done is None:
            raise LlamayError("the turn was over before it was waited for")
        ended = self.done.choices
        return Answer(
            tuple(["".join(said[one.index, False]) for one in ended]),
            tuple(["".join(said[one.index, True]) for one in ended]),
            ended,
            self.done.timings,
            self.done.seed,
            tuple([tuple(scored[one.index]) for one in ended]),
        )

    def _cut(self, event: Event | None) -> None:
        """Cancels it where the server is to end; raises Closed where the engine takes longer to hear of that than there is time."""
        if not self._site.cut.is_set():
            return
        self.ticket.cancel()
        self._until = self._until or time.monotonic() + LAST
        if event is None and time.monotonic() > self._until:
            self.close()
            raise Closed("the server was closed before the answer was complete; try again later")

    def _complete(self, done: Done) -> Done:
        """With the ends of choices of which no token was asked for: every answer has one."""
        asked = self.ticket.asked
        if done.choices or done.reason == "cancel" or not isinstance(asked, Request):
            return done
        seeds = [asked.sampling_of(index).seed for index in range(asked.choices)]
        return replace(done, choices=tuple([Ended(index, "length", (), seed) for index, seed in enumerate(seeds)]))

    def close(self) -> None:
        """Cancels what is left.  Safe to call twice."""
        if self.done is None:
            self.ticket.cancel()
        self._over("gone", self.ticket.clock.timings())

    def _over(self, outcome: str, timings: Timings) -> None:
        """Counts it, the first time."""
        if self._open:
            self._site.meter.ended(outcome, timings, time.monotonic() - self._asked)
            if self._visit is not None:
                self._visit.generated_by(self.ticket.asked.model, outcome, timings)
        self._leave()

    def _leave(self) -> None:
        if self._open:
            self._open = False
            self._site.leave()
