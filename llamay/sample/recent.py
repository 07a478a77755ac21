"""The tokens the penalties look back on: how often each occurs, and which one leaves next."""

import numpy as np
from numpy.typing import NDArray

from llamay.sample.fixed import Words

NOBODY = np.uint32(0xFFFFFFFF)  # an unfilled cell of the ring


class Recent:
    """Counts of the last `last_n` tokens of one sequence (-1: of all), kept up as tokens come.

    `counts` [vocabulary] and `ring` [last_n] are what the device holds too: the token
    at position p lies in cell p % last_n until the one at p + last_n takes its place.
    """

    def __init__(self, vocabulary: int, last_n: int, history: NDArray[np.int32], position: int) -> None:
        """Begins with a history whose next token will stand at `position`."""
        self.last_n = last_n
        self.counts: Words = np.zeros(vocabulary, np.uint32)
        self.ring: Words = np.full(max(last_n, 0), NOBODY, np.uint32)
        kept = history if last_n < 0 else history[max(0, len(history) - last_n) :]
        np.add.at(self.counts, kept, np.uint32(1))
        if last_n > 0:
            self.ring[np.arange(position - len(kept), position) % last_n] = kept.astype(np.uint32)

    def push(self, token: int, position: int) -> None:
        """The token at `position` has come."""
        if self.last_n == 0:
            return
        if self.last_n > 0:
            leaving = self.ring[position % self.last_n]
            if leaving != NOBODY:
                self.counts[leaving] -= np.uint32(1)
            self.ring[position % self.last_n] = token
        self.counts[token] += np.uint32(1)
