"""What rendering one chat template may cost: steps, characters made and wall time, counted while it runs."""

import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

CHECK_EVERY = 1 << 10  # steps between looks at the clock


class Exhausted(Exception):
    """A template used up what it may cost; the message says of what."""


@dataclass(frozen=True, slots=True)
class Limits:
    """steps: loop turns, calls and operations. characters: of all strings made on the way. output: of the result."""

    steps: int = 2_000_000
    characters: int = 256 << 20
    output: int = 16 << 20
    seconds: float = 10.0


class Budget:
    """The account of one rendering."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self._steps, self._characters = limits.steps, limits.characters
        self._look = limits.steps - CHECK_EVERY
        self._deadline = time.monotonic() + limits.seconds

    def step(self, count: int = 1) -> None:
        """Pay for work that is about to be done; Exhausted when it cannot be paid."""
        self._steps -= count
        if self._steps < self._look:
            if self._steps < 0:
                raise Exhausted(f"more than {self.limits.steps} steps")
            if time.monotonic() > self._deadline:
                raise Exhausted(f"more than {self.limits.seconds:g} seconds")
            self._look = self._steps - CHECK_EVERY

    def make(self, characters: int) -> None:
        """Pay for a string of this length before it is made; one of a list's elements counts as eight characters."""
        self._characters -= characters
        if self._characters < 0:
            raise Exhausted(f"more than {self.limits.characters} characters in strings and lists")
        self.step(1 + (characters >> 12))

    def weigh(self, value: Any) -> None:
        """Pay for walking through a value: each element, however often it is reached, and its characters."""
        waiting = [value]
        while waiting:
            found = waiting.pop()
            if isinstance(found, str):
                self.step(1 + (len(found) >> 10))
            elif isinstance(found, dict):
                self.step(1 + len(found))
                waiting += found.keys()
                waiting += found.values()
            elif isinstance(found, (list, tuple)):
                self.step(1 + len(found))
                waiting += found


ACCOUNT: ContextVar[Budget] = ContextVar("the account of the rendering that runs in this context")
