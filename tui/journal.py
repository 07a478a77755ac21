"""The Journal: what happened while the terminal looked, line by line; no question and no answer is in it."""

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Literal

Level = Literal["information", "warning", "error"]
MOST = 2000
WORDS: dict[str, str] = {"information": "info", "warning": "warn", "error": "ERROR"}


@dataclass(frozen=True, slots=True)
class Note:
    """One line."""

    number: int
    at: float
    level: str
    text: str


@dataclass(slots=True)
class Journal:
    """The last lines."""

    notes: deque[Note] = field(default_factory=lambda: deque(maxlen=MOST))
    count: int = 0

    def write(self, text: str, level: str = "information", at: float | None = None) -> None:
        """One more."""
        self.count += 1
        self.notes.append(Note(self.count, time.time() if at is None else at, level, " ".join(text.split())))
