"""What rendering one chat template may cost: steps, characters made and wall time, counted while it runs."""

import time
from collections.abc import Iterable, MappingView
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, cast

CHECK_EVERY = 1 << 10  # steps between looks at the clock


class Exhausted(Exception):
    """A template used up what it may cost; the message says of what."""


@dataclass(frozen=True, slots=True)
class Limits:
    """steps: loop turns, calls and operations. characters: of all strings made on the way. output: of the result.

    Steps and characters grow with the input.
    """

    steps: int = 1_000_000
    characters: int = 64 << 20
    output: int = 16 << 20
    seconds: float = 5.0


class Budget:
    """The account of one rendering."""

    def __init__(self, limits: Limits, values: int = 0, characters: int = 0) -> None:
        """`values` and `characters` are those of the input."""
        self.limits = limits
        self._steps, self._characters = limits.steps + 200 * values, limits.characters + 32 * characters
        self._look = self._steps - CHECK_EVERY
        self._deadline = time.monotonic() + limits.seconds

    def step(self, count: int = 1) -> None:
        """Pay for work that is about to be done; Exhausted when it cannot be paid."""
        self._steps -= count
        if self._steps < self._look:
            if self._steps < 0:
                raise Exhausted(f"it takes more than {self.limits.steps} steps")
            if time.monotonic() > self._deadline:
                raise Exhausted(f"it takes more than {self.limits.seconds:g} seconds")
            self._look = self._steps - CHECK_EVERY

    def make(self, characters: int) -> None:
        """Pay for a string of this length before it is made, or for what takes as much memory."""
        self._characters -= characters
        if self._characters < 0:
            raise Exhausted(f"it makes more than {self.limits.characters} characters of text")
        self.step(1 + (characters >> 12))

    def read(self, text: str) -> None:
        """Pay for going through a text once."""
        self.step(1 + (len(text) >> 8))

    def weigh(self, value: Any) -> None:
        """Pay for walking through a value: each element, however often it is reached, and its characters."""
        waiting = [value]
        while waiting:
            found = waiting.pop()
            if isinstance(found, str):
                self.read(found)
            elif isinstance(found, dict):
                self.step(1 + len(found))
                waiting += found.keys()
                waiting += found.values()
            elif isinstance(found, (list, tuple, MappingView)):
                self.step(1 + len(found))
                waiting.extend(cast(Iterable[Any], found))
            else:
                self.step()


ELEMENT = 64  # what one more string or slot in a list costs, in characters

ACCOUNT: ContextVar[Budget] = ContextVar("the account of the rendering that runs in this context")
