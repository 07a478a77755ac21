"""What some query tokens of one sequence see of the pages: which splits, which positions, read in one piece."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from llamay.tensor.batch import PAGE
from llamay.tensor.twins import SPLIT
from llamay.tensor.twins.linear import Real

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """Positions [start, start + count) of a sequence, at most SPLIT of them."""

    count: int
    slots: slice | NDArray[np.int64]  # where they are in the pages; a slice when the pages follow each other
    visible: NDArray[np.bool_] | None  # [queries, SPLIT]; None: every query sees all SPLIT

    def read(self, keys: Real, values: Real) -> tuple[Real, Real]:
        """keys [kv_heads, hd, SPLIT] and values [kv_heads, SPLIT, hd], zeros where nobody can look.

        The zeros matter: pages hold what earlier owners left, and 0 times a stale NaN is NaN.
        """
        if isinstance(self.slots, slice):
            k, v = keys[:, :, self.slots], values[:, self.slots]
        else:
            k, v = keys.take(self.slots, axis=2), values.take(self.slots, axis=1)
        if self.count == SPLIT:
            return k, v
        full_k = np.zeros((k.shape[0], k.shape[1], SPLIT), k.dtype)
        full_v = np.zeros((v.shape[0], SPLIT, v.shape[2]), v.dtype)
        full_k[:, :, : self.count], full_v[:, : self.count] = k, v
        return full_k, full_v


@dataclass(slots=True, eq=False)
class View:
    """Query rows of one sequence, in ascending position."""

    rows: NDArray[np.intp]  # of the batch
    positions: Ints
    table: Ints
    _splits: dict[int, tuple[Split, ...]] = field(default_factory=dict)

    def splits(self, window: int) -> tuple[Split, ...]:
        """The splits these queries look at, ascending; `window` 0 sees all."""
        if window not in self._splits:
            first = max(0, int(self.positions[0]) - window + 1) if window else 0
            starts = range(first // SPLIT * SPLIT, int(self.positions[-1]) + 1, SPLIT)
            self._splits[window] = tuple(self._split(start, window) for start in starts)
        return self._splits[window]

    def _split(self, start: int, window: int) -> Split:
        count = min(SPLIT, int(self.positions[-1]) + 1 - start)
        positions = np.arange(start, start + SPLIT)
        visible = positions <= self.positions[:, None]
        if window:
            visible &= positions > self.positions[:, None] - window
        return Split(count, self._slots(start, count), None if visible.all() else visible)

    def _slots(self, start: int, count: int) -> slice | NDArray[np.int64]:
        pages = self.table[start // PAGE : -(-(start + count) // PAGE)].astype(np.int64)
        if (np.diff(pages) == 1).all():
            first = int(pages[0]) * PAGE
            return slice(first, first + count)
        return (pages[:, None] * PAGE + np.arange(PAGE)).reshape(-1)[:count]
