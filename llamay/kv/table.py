"""The page table of one sequence."""

import numpy as np
from numpy.typing import NDArray

from llamay.errors import LlamayError
from llamay.kv.pages import Pages
from llamay.tensor.batch import PAGE


class Table:
    """Which page of the pool holds which 16 positions of a sequence; it owns its pages until dropped."""

    def __init__(self, pool: Pages) -> None:
        self._pool = pool
        self._pages: list[int] = []
        self._array = np.empty(0, np.int32)

    @property
    def pages(self) -> tuple[int, ...]:
        """Page p holds positions 16p to 16p+15."""
        return tuple(self._pages)

    @property
    def array(self) -> NDArray[np.int32]:
        """The pages as a Batch takes them [pages]; not to be written to."""
        return self._array

    @property
    def positions(self) -> int:
        """How many positions fit the pages it has."""
        return len(self._pages) * PAGE

    def ensure(self, positions: int) -> None:
        """Takes pages until positions 0 to `positions` - 1 fit; OutOfMemory, taking none, where the pool has too few."""
        missing = -(-positions // PAGE) - len(self._pages)
        if missing > 0:
            self._pages += self._pool.take(missing)
            self._array = np.array(self._pages, np.int32)

    def truncate(self, positions: int) -> None:
        """Drops the pages beyond position `positions` - 1."""
        keep = -(-max(positions, 0) // PAGE)
        if keep < len(self._pages):
            self._pool.drop(self._pages[keep:])
            del self._pages[keep:]
            self._array = np.array(self._pages, np.int32)

    def drop(self) -> None:
        """Gives every page back.  Safe to call twice."""
        self.truncate(0)

    def check_integrity(self) -> None:
        """LlamayError where the table holds a page twice or one without an owner, or its array is stale."""
        if len(set(self._pages)) != len(self._pages):
            raise LlamayError(f"a page table holds a KV page twice: {self._pages}")
        if self._array.tolist() != self._pages:
            raise LlamayError(f"a page table's array is {self._array.tolist()}, its pages are {self._pages}")
        for page in self._pages:
            if self._pool.owners(page) == 0:
                raise LlamayError(f"a page table holds KV page {page}, which is free")
