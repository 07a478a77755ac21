"""A Source: what the terminal looks at and acts on; a server, an engine in this process, or a recording."""

import threading
from collections.abc import Callable, Iterator
from typing import Protocol

from llamay.errors import LlamayError
from llamay.tui.moment import Answered, Asked, Installed, News, Parting, Piece, Progress

TICK = 0.25  # seconds between two snapshots
AGAIN = 1.0  # seconds until somebody who did not answer is tried again

Hear = Callable[[News], None]


class NotHere(LlamayError):
    """A source cannot do what was asked of it."""


class Source(Protocol):
    """Every method may wait and may raise a LlamayError: they are called on threads of their own, never the screen's."""

    where: str  # for the header
    live: bool  # False for a recording

    def watch(self, hear: Hear, stop: threading.Event) -> None:
        """Tells what goes on until `stop` is set."""

    def answer(self, asked: Asked, stop: threading.Event) -> Iterator[Piece | Answered]:
        """Asks, and hands on the answer piece by piece; the last value is an Answered, also once `stop` was set."""

    def fork(self, context: str, count: int = 1) -> tuple[str, ...]:
        """Contexts that hold the same; their ids."""

    def rewind(self, context: str, to: int) -> None:
        """Forgets all but the first tokens."""

    def save(self, context: str, name: str) -> str:
        """Saves it, and returns the name."""

    def drop(self, context: str) -> None:
        """Gives it up."""

    def diff(self, left: str, right: str) -> Parting:
        """Where two part."""

    def cancel(self, request: int) -> None:
        """Ends a request."""

    def installed(self) -> tuple[Installed, ...]:
        """The models of the machine."""

    def load(self, model: str) -> None:
        """Has it loaded, and waits for that."""

    def unload(self, model: str) -> None:
        """Has it given back as soon as nobody waits for it."""

    def delete(self, model: str) -> None:
        """Takes it off the disk."""

    def pull(self, name: str) -> Iterator[Progress]:
        """Gets a model."""

    def spelled(self, model: str) -> str:
        """How the command line names a model."""

    def close(self) -> None:
        """Gives everything back.  Safe to call twice."""
