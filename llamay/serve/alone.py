"""One request at a time over an executor that nobody else uses, in the caller's thread: for measuring and verifying."""

from collections.abc import Iterator

from llamay.errors import LlamayError
from llamay.kv import Cache
from llamay.serve.events import Done, Event, Failed
from llamay.serve.pools import span_of
from llamay.serve.request import Asked
from llamay.serve.scheduler import CHUNK, Scheduler
from llamay.serve.sequence import Mute
from llamay.serve.ticket import Ticket
from llamay.serve.waiting import Gate, Waiting
from llamay.tensor.executor import Executor


class Alone:
    """A scheduler without an engine.  It turns no token into text, and keeps known prefixes between requests.

    An exception inside a step, Ctrl-C among them, leaves it unusable.
    """

    def __init__(self, executor: Executor, context: int, chunk: int = CHUNK) -> None:
        """`context` is in tokens, at most what the executor's pages hold."""
        self.executor = executor
        self.context = context
        self.chunk = chunk
        span = span_of(executor.program) if executor.window_pages else 0
        self.cache = Cache(executor.pages, executor.window_pages, span, executor.copy_pages)
        self._gate = Gate(1)
        self._waiting = Waiting(self._gate)
        self._scheduler = Scheduler(self, self._waiting, chunk=chunk)
        self._count = 0

    def decoder(self, prompt: tuple[int, ...], stops: tuple[str, ...]) -> Mute:
        """One that says nothing."""
        return Mute()

    def events(self, asked: Asked) -> Iterator[Event]:
        """The request's events, the last a Done.  Raises what would fail it; whoever stops earlier cancels it."""
        self._count += 1
        ticket = Ticket(self._count, asked, self._scheduler.cancel)
        self._gate.enter()
        self._waiting.push(ticket)
        try:
            while True:
                while (event := ticket.get(timeout=0)) is None:
                    self._scheduler.turn()
                if isinstance(event, Failed):
                    raise event.error
                if isinstance(event, Done):
                    self._scheduler.drain()
                yield event
                if isinstance(event, Done):
                    return
        except GeneratorExit:
            if not self._waiting.remove(ticket):
                self._scheduler.cancel(ticket)
            self._scheduler.drain()
            raise

    def run(self, asked: Asked) -> Done:
        """Carries a request out."""
        for event in self.events(asked):
            if isinstance(event, Done):
                return event
        raise LlamayError("a request ended without its final event")

    def forget(self) -> None:
        """Every known prefix; the next prompt is computed from its start."""
        for group in self.cache.groups:
            self.cache.evict(group.pages.count, group.number)

    def close(self) -> None:
        """Nothing: the executor is its owner's."""
