"""One request at a time over an executor that nobody else uses, in the caller's thread: for measuring and verifying."""

from collections.abc import Iterator

from llamay.errors import LlamayError
from llamay.serve.events import Done, Event, Failed
from llamay.serve.request import Asked
from llamay.serve.scheduling.scheduler import CHUNK
from llamay.serve.scheduling.together import Together
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
        self._together = Together(executor, context, chunk=chunk)
        self.cache = self._together.cache

    def events(self, asked: Asked) -> Iterator[Event]:
        """The request's events, the last a Done.  Raises what would fail it; whoever stops earlier cancels it."""
        ticket = self._together.submit(asked)
        try:
            while True:
                while (event := ticket.get(timeout=0)) is None:
                    self._together.turn()
                if isinstance(event, Failed):
                    raise event.error
                if isinstance(event, Done):
                    self._together.scheduler.drain()
                yield event
                if isinstance(event, Done):
                    return
        except GeneratorExit:
            self._together.scheduler.cancel(ticket)
            self._together.scheduler.drain()
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
