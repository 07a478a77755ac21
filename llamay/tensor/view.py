"""What some query tokens of one sequence see of the pages: which splits, which positions, read in one piece."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from llamay.tensor.batch import PAGE
from llamay.tensor.pools import Kept, LayerPages
from llamay.tensor.twins import SPLIT

Ints = NDArray[np.int32]
WIDTHS = (32, 64, 128, SPLIT)  # positions that a text of its own length is computed with


@dataclass(frozen=True, slots=True, eq=False)
class Split:
    """The positions of one attention split that some query sees: from `first` on, counted from the split's start."""

    start: int
    first: int
    slots: slice | NDArray[np.int64]  # where they are in the pages; a slice when the pages follow each other
    visible: NDArray[np.bool_] | None  # [queries, width]; None: every query sees all
    width: int = SPLIT  # less for a text that is read both ways, all of which has the same

    def read(self, layer: LayerPages) -> Kept:
        """Keys and values of `width` positions, zeros where nobody looks.

        The zeros matter: pages hold what earlier owners left, and 0 times a stale NaN is NaN.
        What a window has left behind may have no page at all.
        """
        return layer.look(self.slots, self.width, self.first)


@dataclass(slots=True, eq=False)
class View:
    """Query rows of one sequence, in ascending position."""

    rows: NDArray[np.intp]  # of the batch
    positions: Ints
    table: Ints
    last: int | None = None  # the last position they see, all alike; None: each sees itself and what stands before it
    _splits: dict[int, tuple[Split, ...]] = field(default_factory=dict)

    def splits(self, window: int) -> tuple[Split, ...]:
        """The splits these queries look at, ascending; `window` 0 sees all."""
        if window not in self._splits:
            first = max(0, int(self.positions[0]) - window + 1) if window else 0
            starts = range(first // SPLIT * SPLIT, self._end, SPLIT)
            self._splits[window] = tuple(self._split(start, window) for start in starts)
        return self._splits[window]

    def _split(self, start: int, window: int) -> Split:
        seen = max(start, int(self.positions[0]) - window + 1) if window else start  # the first any query sees
        end = min(start + SPLIT, self._end)
        width = SPLIT if self.last is None else next(width for width in WIDTHS if width >= min(self.last + 1, SPLIT))
        positions = np.arange(start, start + width)
        furthest = self.positions if self.last is None else np.full_like(self.positions, self.last)
        visible = positions <= furthest[:, None]
        if window:
            ahead = positions - self.positions[:, None]  # a window may be the largest number, to which no position can be added
            visible &= (ahead > -window) & (ahead < window)
        return Split(start, seen - start, self._slots(seen, end), None if visible.all() else visible, width)

    @property
    def _end(self) -> int:
        """Behind the last position that one of them sees."""
        return int(self.positions[-1] if self.last is None else self.last) + 1

    def _slots(self, start: int, end: int) -> slice | NDArray[np.int64]:
        """Of positions [start, end)."""
        pages = self.table[start // PAGE : -(-end // PAGE)].astype(np.int64)
        skipped = start % PAGE
        if (np.diff(pages) == 1).all():
            first = int(pages[0]) * PAGE + skipped
            return slice(first, first + end - start)
        return (pages[:, None] * PAGE + np.arange(PAGE)).reshape(-1)[skipped : skipped + end - start]
