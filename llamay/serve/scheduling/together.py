"""Several requests at once over an executor that nobody else uses, in the caller's thread: for measuring and verifying."""

from collections.abc import Callable

from llamay.kv import Cache
from llamay.serve.events import Done
from llamay.serve.request import Asked
from llamay.serve.scheduling.scheduler import CHUNK, RUNNING, Scheduler
from llamay.serve.scheduling.sequence import Mute
from llamay.serve.scheduling.waiting import MOST_WAITING, Gate, Waiting
from llamay.serve.ticket import Ticket
from llamay.tensor.executor import Executor


class Together:
    """A scheduler without an engine, whose turns the caller takes.  It turns no token into text.

    An exception inside a step, Ctrl-C among them, leaves it unusable.
    """

    def __init__(
        self,
        executor: Executor,
        context: int,
        cache: Cache | None = None,
        *,
        chunk: int = CHUNK,
        running: int = RUNNING,
    ) -> None:
        """`context` is in tokens, at most what the executor's pages hold; without `cache` all of those are its own."""
        self.executor = executor
        self.context = context
        self.cache = cache or Cache.over(executor)
        self._gate = Gate(MOST_WAITING)
        self._waiting = Waiting(self._gate)
        self.scheduler = Scheduler(self, self._waiting, chunk=chunk, running=running)
        self._count = 0

    def decoder(self, prompt: tuple[int, ...], stops: tuple[str, ...]) -> Mute:
        """One that says nothing."""
        return Mute()

    def submit(self, asked: Asked) -> Ticket:
        """Puts a request in the queue; the turns that follow carry it out.  QueueFull where there is no place."""
        self._gate.enter()
        self._count += 1
        ticket = Ticket(self._count, asked, self.scheduler.cancel)
        self._waiting.push(ticket)
        return ticket

    def turn(self) -> None:
        """At most one submission and one collection."""
        self.scheduler.turn()

    def until(self, reached: Callable[[], bool]) -> None:
        """Turns until that is so or nothing is left to do, and waits for what is on the device."""
        while self.scheduler.busy and not reached():
            self.scheduler.turn()
        self.scheduler.drain()

    def run(self, *asked: Asked) -> list[Done]:
        """Carries requests out, all submitted at once; raises what would fail one of them."""
        tickets = [self.submit(one) for one in asked]
        self.until(lambda: False)
        return [ticket.result() for ticket in tickets]

    def close(self) -> None:
        """Nothing: the executor is its owner's."""
