"""Turns of one HTTP request that asks for several generations: each in its order, some of them under way at once."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from llamay.errors import QueueFull
from llamay.server.turn import Turn


class Turns:
    """Iterate over it once, and over each turn before the next.  The first is there from the start.

    Those that are not heard yet compute meanwhile, `ahead` at a time, or as many as there are places for.
    """

    def __init__(self, asks: Sequence[Callable[[], Turn]], ahead: int) -> None:
        """Raises what the first raises, QueueFull among it."""
        self._waiting = deque(asks)
        self._opened: deque[Turn] = deque()
        self._ahead = ahead
        self._fill()

    def begin(self) -> None:
        """Waits until the first is admitted; raises what forbids that."""
        self._opened[0].begin()

    def __iter__(self) -> Iterator[Turn]:
        try:
            while self._opened:
                yield self._opened[0]
                self._opened.popleft()
                self._fill()
        finally:
            self.close()

    def close(self) -> None:
        """Cancels what is left.  Safe to call twice."""
        self._waiting.clear()
        for turn in self._opened:
            turn.close()

    def _fill(self) -> None:
        try:
            while self._waiting and len(self._opened) < self._ahead:
                try:
                    self._opened.append(self._waiting[0]())
                except QueueFull:
                    if not self._opened:
                        raise
                    break
                self._waiting.popleft()
        except BaseException:
            self.close()
            raise
