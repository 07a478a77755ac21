"""The pool of KV pages: how many owners each has; those without one are free."""

from collections.abc import Iterable, Sequence

import numpy as np

from llamay.errors import LlamayError, OutOfMemory, UsageError
from llamay.tensor.batch import PAGE, Ints


class Pages:
    """`count` pages of 16 tokens, numbered from 0, each free or owned by one or more holders.

    The counts are the only state: a page is free where its count is 0.  Free pages are handed
    out lowest first, so the same calls give the same pages.  Every method that takes `pages`
    [pages] wants each page at most once in it.
    """

    def __init__(self, count: int) -> None:
        if count < 1:
            raise UsageError(f"a pool of {count} pages holds nothing; at least 1 is needed")
        self.count = count
        self.free = count  # how many pages have no owner
        self._owners = np.zeros(count, np.int32)
        self._lowest = 0  # no page below it is free
        self.owners = self._owners.view()  # [count], read-only
        self.owners.flags.writeable = False

    def take(self, number: int) -> Ints:
        """`number` free pages [number], ascending, now with one owner; OutOfMemory, taking none, where there are fewer."""
        if number > self.free:
            raise OutOfMemory(
                f"{number} KV pages of {PAGE} tokens are needed, but {self.free} of {self.count} are free"
            )
        if number < 1:
            return np.empty(0, np.int32)
        taken = self._lowest + np.flatnonzero(self._owners[self._lowest :] == 0)[:number].astype(np.int32)
        self._owners[taken] = 1
        self.free -= number
        self._lowest = int(taken[-1]) + 1
        return taken

    def share(self, pages: Ints | Sequence[int], times: int = 1) -> None:
        """`times` more owners for each of the pages; UsageError, changing none, where one is free."""
        index = self._owned(pages)
        self._owners[index] += times

    def drop(self, pages: Ints | Sequence[int]) -> None:
        """One owner less for each; UsageError, changing none, where one is free already."""
        index = self._owned(pages)
        left = self._owners[index] - 1
        self._owners[index] = left
        freed = index[left == 0]
        if len(freed):
            self.free += len(freed)
            self._lowest = min(self._lowest, int(freed.min()))

    def check_integrity(self, held: Iterable[Ints | Sequence[int]]) -> None:
        """Recomputes every count from the pages each owner holds; LlamayError names the first that differs."""
        pages = np.concatenate([np.empty(0, np.int32), *(np.asarray(pages, np.int32) for pages in held)])
        outside = pages[(pages < 0) | (pages >= self.count)]
        if len(outside):
            raise LlamayError(f"KV page {outside.min()} is held, but the pool has {self.count}")
        found = np.bincount(pages, minlength=self.count)
        if (found != self._owners).any():
            page = int(np.flatnonzero(found != self._owners)[0])
            raise LlamayError(f"KV page {page} counts {self._owners[page]} owners, but {found[page]} hold it")
        free = int(np.count_nonzero(self._owners == 0))
        if free != self.free:
            raise LlamayError(f"the pool counts {self.free} free KV pages, but {free} have no owner")
        if (self._owners[: self._lowest] == 0).any():
            raise LlamayError(f"a KV page below {self._lowest} is free, but the pool looks from there on")

    def _owned(self, pages: Ints | Sequence[int]) -> Ints:
        """The pages as an index; UsageError where one is free or there is no such page."""
        index = np.asarray(pages, np.int32)
        if not len(index):
            return index
        low, high = int(index.min()), int(index.max())
        if low < 0 or high >= self.count:
            raise UsageError(f"there is no KV page {low if low < 0 else high}; the pool has {self.count}")
        owners = self._owners[index]
        if not owners.all():
            raise UsageError(f"KV page {index[owners == 0][0]} is free; it cannot be shared or dropped")
        return index
