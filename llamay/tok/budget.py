"""What rendering one chat template may cost: steps, characters made and processor time, counted while it runs."""

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

    Those three grow with the input. seconds: of this thread's processor time, so that a busy machine refuses nothing.
    """

    steps: int = 1_000_000
    characters: int = 4 << 20
    output: int = 1 << 20
    seconds: float = 2.0


class Budget:
    """The account of one rendering."""

    def __init__(self, limits: Limits, values: int = 0, characters: int = 0) -> None:
        """`values` and `characters` are those of the input."""
        self.limits = limits
        self._steps, self._characters = limits.steps + 200 * values, limits.characters + 32 * characters
        self.output = limits.output + 8 * characters
        self._most = self._characters
        self._look = self._steps - CHECK_EVERY
        self._deadline = time.thread_time() + limits.seconds

    def step(self, count: int = 1) -> None:
        """Pay for work that is about to be done; Exhausted when it cannot be paid."""
        self._steps -= count
        if self._steps < self._look:
            if self._steps < 0:
                raise Exhausted(f"it takes more than {self.limits.steps} steps")
            if time.thread_time() > self._deadline:
                raise Exhausted(f"it takes more than {self.limits.seconds:g} seconds")
            self._look = self._steps - CHECK_EVERY

    def make(self, characters: int) -> None:
        """Pay for a string of this length before it is made, or for what takes as much memory."""
        self._characters -= characters
        if self._characters < 0:
            raise Exhausted(f"it makes more than {self._most} characters of text")
        self.step(1 + (characters >> 12))

    def read(self, text: str) -> None:
        """Pay for going through a text once."""
        self.step(1 + (len(text) >> 8))

    def weigh(self, value: Any, *, printed: bool = False) -> None:
        """Pay for walking through a value: each element, however often it is reached, and its characters.

        `printed`: pay for the text that it becomes, before that is made.
        """
        waiting = [value]
        while waiting:
            found = waiting.pop()
            if printed:
                self.make(len(found) if isinstance(found, str) else SHORT)
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


SHORT = 8  # characters that stand for a number or the brackets of a list
ELEMENT = 64  # what one more string or slot in a list costs, in characters

ACCOUNT: ContextVar[Budget] = ContextVar("the account of the rendering that runs in this context")
