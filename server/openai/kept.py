"""Kept: responses that clients may ask for again or go on from, the least recently used ones going first."""

import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

import msgspec

from llamay.errors import ContextLost

MOST = 1024  # responses
MOST_BYTES = 64 << 20  # of all of them, as JSON


@dataclass(frozen=True, slots=True)
class Stored:
    """A finished response: what was told, and what the next one goes on from."""

    reply: dict[str, Any]
    items: list[dict[str, Any]]  # what was put in, as input items
    conversation: list[dict[str, Any]] | None  # messages, the answer last; None where the context alone holds them
    context: str = ""  # the id of the context that holds it, where one does
    size: int = field(init=False)  # bytes of all that a client sent or was told

    def __post_init__(self) -> None:
        size = len(msgspec.json.encode((self.reply, self.items, self.conversation)))
        object.__setattr__(self, "size", size)


class Kept:
    """Stored responses by id.  Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[str, Stored] = OrderedDict()
        self._size = 0

    def put(self, stored: Stored) -> None:
        """Keeps a response; others go where there are too many."""
        with self._lock:
            self._found[stored.reply["id"]] = stored
            self._size += stored.size
            while len(self._found) > MOST or (self._size > MOST_BYTES and len(self._found) > 1):
                _, old = self._found.popitem(last=False)
                self._size -= old.size

    def get(self, id: str) -> Stored:
        """The response; raises ContextLost."""
        with self._lock:
            found = self._found.get(id)
            if found is None:
                raise ContextLost(
                    f"previous_response_not_found: no response with id {id[:80]!a} is kept; send the conversation again"
                )
            self._found.move_to_end(id)
            return found

    def remove(self, id: str) -> Stored:
        """Forgets a response; raises ContextLost."""
        found = self.get(id)
        with self._lock:
            if self._found.pop(id, None) is not None:
                self._size -= found.size
        return found
