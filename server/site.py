"""The Site: what all routes of one running server share."""

import threading
import time
from collections import Counter
from dataclasses import dataclass, field

from llamay.errors import Closed, QueueFull
from llamay.serve.contexts.shelf import Shelf
from llamay.serve.models import Models
from llamay.server.configuration import Configuration
from llamay.server.log import Journal
from llamay.server.meter import Meter

WATCHERS = 8  # streams of statistics at once: each keeps a thread


@dataclass(slots=True, eq=False)
class Site:
    """Models, bounds and the state of one server.  Any thread may use it."""

    models: Models
    configuration: Configuration = field(default_factory=Configuration)
    started: float = field(default_factory=time.time)
    closing: threading.Event = field(default_factory=threading.Event)  # no request is taken any more
    cut: threading.Event = field(default_factory=threading.Event)  # those under way are to end now
    meter: Meter = field(default_factory=Meter)
    journal: Journal = field(default_factory=Journal)
    shelf: Shelf = field(init=False)  # contexts that clients go on from
    _inside: int = 0  # generations under way
    _watching: int = 0  # streams of statistics
    _addresses: Counter[str] = field(default_factory=Counter)  # requests under way by the client's address
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.shelf = Shelf(self.models, self.configuration.contexts, self.configuration.most_pinned)

    @property
    def inside(self) -> int:
        """How many generations are under way."""
        return self._inside

    @property
    def visiting(self) -> int:
        """How many requests have no whole reply yet."""
        with self._lock:
            return self._addresses.total()

    def enter(self) -> None:
        """One more generation; QueueFull where all places are taken, so that a thread stays free for those who look.

        Closed where the server is about to end.
        """
        if self.closing.is_set():
            raise Closed("the server is closing; it takes no more requests")
        most = self.configuration.places
        with self._lock:
            if self._inside >= most:
                raise QueueFull(f"{self._inside} requests are under way, and the server takes {most}; try again later")
            self._inside += 1

    def leave(self) -> None:
        """One less."""
        with self._lock:
            self._inside -= 1

    def enter_address(self, address: str) -> None:
        """One more request of a client; QueueFull where it has all that one client may have."""
        most = self.configuration.places_of(address)
        with self._lock:
            if most is not None and self._addresses[address] >= most:
                raise QueueFull(f"{most} requests of your address are under way, which is all it may have; try again later")
            self._addresses[address] += 1

    def leave_address(self, address: str) -> None:
        """One less."""
        with self._lock:
            self._addresses[address] -= 1
            if self._addresses[address] < 1:
                del self._addresses[address]

    def watch(self) -> None:
        """One more stream of statistics; QueueFull where there are enough."""
        with self._lock:
            if self._watching >= WATCHERS:
                raise QueueFull(f"{WATCHERS} streams of statistics are open, which is all; try again later")
            self._watching += 1

    def unwatch(self) -> None:
        """One less."""
        with self._lock:
            self._watching -= 1
