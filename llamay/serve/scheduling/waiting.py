"""Requests that wait to be admitted: a bound on how many, and clients that take turns."""

import threading
from collections import OrderedDict, deque
from collections.abc import Iterator
from itertools import zip_longest

from llamay.errors import QueueFull
from llamay.serve.ticket import Ticket

MOST_WAITING = 1024


class Gate:
    """Counts those that wait, over all models and threads, and refuses more than `limit`."""

    def __init__(self, limit: int = MOST_WAITING) -> None:
        self.limit = limit
        self._inside = 0
        self._lock = threading.Lock()

    @property
    def inside(self) -> int:
        """How many wait."""
        return self._inside

    def enter(self) -> None:
        """One more; raises QueueFull where there is no place."""
        with self._lock:
            if self._inside >= self.limit:
                raise QueueFull(f"{self._inside} requests are waiting, and the queue holds {self.limit}; try again later")
            self._inside += 1

    def leave(self) -> None:
        """One less."""
        with self._lock:
            self._inside -= 1


class Waiting:
    """The queue of one model.  It holds tickets and nothing of the device.

    Within a client the first to come is the first to go; clients take turns, so that one
    with a thousand requests delays another's first by one.
    """

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self._clients: OrderedDict[str, deque[Ticket]] = OrderedDict()
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def clients(self) -> dict[str, int]:
        """How many of each client wait."""
        return {client: len(tickets) for client, tickets in self._clients.items()}

    def push(self, ticket: Ticket) -> None:
        """To the end of its client's queue; it has passed the gate."""
        self._clients.setdefault(ticket.asked.client, deque()).append(ticket)
        self._count += 1

    def first(self, before: int | None = None) -> Ticket | None:
        """The next to go, of those with an id below `before`."""
        return next((head for head in self.heads() if before is None or head.id < before), None)

    def heads(self) -> Iterator[Ticket]:
        """The first of each client, in the order of their turns."""
        return (tickets[0] for tickets in self._clients.values())

    def take(self, ticket: Ticket) -> None:
        """Takes a ticket that is `first` out; it is the turn of the other clients then."""
        client = ticket.asked.client
        self.remove(ticket)
        if client in self._clients:
            self._clients.move_to_end(client)

    def remove(self, ticket: Ticket) -> bool:
        """Takes a ticket out, wherever it stands; False where it does not wait here."""
        tickets = self._clients.get(ticket.asked.client)
        if tickets is None or ticket not in tickets:
            return False
        tickets.remove(ticket)
        if not tickets:
            del self._clients[ticket.asked.client]
        self._count -= 1
        self._gate.leave()
        return True

    def upcoming(self, most: int) -> list[Ticket]:
        """The first to go, in their order."""
        found: list[Ticket] = []
        for places in zip_longest(*self._clients.values()):
            found += [ticket for ticket in places if ticket is not None]
            if len(found) >= most:
                break
        return found[:most]

    def all(self) -> list[Ticket]:
        """Everyone who waits, client by client."""
        return [ticket for tickets in self._clients.values() for ticket in tickets]
