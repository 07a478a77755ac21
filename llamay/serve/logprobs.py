"""Logprobs: what the model itself gave each token, before any setting of the sampling, and what else was likely there."""

import math
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from llamay.errors import UsageError
from llamay.tensor.program import Floats

MOST_LIKELIEST = 20


@dataclass(frozen=True, slots=True)
class Likelihood:
    """A token and the natural logarithm of its probability."""

    token: int
    logprob: float


@dataclass(frozen=True, slots=True)
class Scored:
    """A token of a text, and the likeliest ones in its place: from the likeliest down, of equal ones the lower id first."""

    token: int
    logprob: float
    likeliest: tuple[Likelihood, ...] = ()


@dataclass(slots=True)
class Alignment:
    """Lines the tokens of one answer up with its text: a token is told with the piece that its first character is in."""

    certain: int = 0  # characters of text that are not held back
    _waiting: deque[tuple[int, Scored]] = field(default_factory=deque)  # each with the character it begins at

    def push(self, scored: Scored, withheld: int) -> None:
        """The next token, before its text is known; `withheld` characters of earlier ones are held back."""
        self._waiting.append((self.certain + withheld, scored))

    def due(self) -> tuple[Scored, ...]:
        """Those whose text has begun to be certain."""
        found = []
        while self._waiting and self._waiting[0][0] < self.certain:
            found.append(self._waiting.popleft()[1])
        return tuple(found)

    def rest(self) -> tuple[Scored, ...]:
        """All that are left: no text follows."""
        found = tuple([scored for _, scored in self._waiting])
        self._waiting.clear()
        return found


def checked(count: int | None) -> int | None:
    """How many of the likeliest are wanted, None where no logprobs are; UsageError beyond what can be told."""
    if count is not None and not 0 <= count <= MOST_LIKELIEST:
        raise UsageError(f"the {count} likeliest tokens were asked for; 0 to {MOST_LIKELIEST} can be told")
    return count


def score(logits: Floats, token: int, count: int) -> Scored:
    """One token by the row of logits [vocabulary] it was chosen from.  Sums are float64, so that equal bits give equal bits."""
    row = logits.astype(np.float64)
    top = float(row.max())
    whole = top + math.log(float(np.exp(row - top).sum()))
    return Scored(token, float(row[token]) - whole, tuple([Likelihood(id, float(row[id]) - whole) for id in _best(row, count)]))


def _best(row: np.ndarray[tuple[int], np.dtype[np.float64]], count: int) -> list[int]:
    """The ids of the highest, in order."""
    count = min(count, len(row))
    if count < 1:
        return []
    least = np.partition(row, len(row) - count)[len(row) - count]
    ids = np.flatnonzero(row >= least)  # with all that are equal to the last of them
    found: list[int] = ids[np.lexsort((ids, -row[ids]))][:count].tolist()
    return found
