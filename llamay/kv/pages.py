"""The pool of KV pages: which are free, and how many owners each of the others has."""

import heapq
from collections import Counter
from collections.abc import Iterable, Sequence

from llamay.errors import LlamayError, OutOfMemory, UsageError
from llamay.tensor.batch import PAGE


class Pages:
    """`count` pages of 16 tokens, numbered from 0, each free or owned by one or more tables.

    Free pages are handed out lowest first, so a table's pages mostly follow each other.
    """

    def __init__(self, count: int) -> None:
        if count < 1:
            raise UsageError(f"a pool of {count} pages holds nothing; at least 1 is needed")
        self.count = count
        self._free = list(range(count))  # a heap
        self._owners = [0] * count

    @property
    def free(self) -> int:
        """How many pages have no owner."""
        return len(self._free)

    def owners(self, page: int) -> int:
        """How many owners a page has; 0: it is free."""
        self._check(page)
        return self._owners[page]

    def take(self, number: int) -> list[int]:
        """`number` free pages, now with one owner; OutOfMemory, taking none, where there are fewer."""
        if number > len(self._free):
            raise OutOfMemory(
                f"{number} KV pages of {PAGE} tokens are needed, but {len(self._free)} of {self.count} are free"
            )
        taken = [heapq.heappop(self._free) for _ in range(number)]
        for page in taken:
            self._owners[page] = 1
        return taken

    def share(self, pages: Sequence[int]) -> None:
        """One more owner for each of the pages; UsageError, changing none, where one is free."""
        for page in pages:
            self._owned(page)
        for page in pages:
            self._owners[page] += 1

    def drop(self, pages: Sequence[int]) -> None:
        """One owner less for each; a page without owners is free.  UsageError where one is free already."""
        for page in pages:
            self._owned(page)
            self._owners[page] -= 1
            if self._owners[page] == 0:
                heapq.heappush(self._free, page)

    def check_integrity(self, held: Iterable[Sequence[int]]) -> None:
        """Recomputes every count from the pages each owner holds; LlamayError names the first that differs."""
        found = Counter(page for pages in held for page in pages)
        for page, owners in enumerate(self._owners):
            if owners != found[page]:
                raise LlamayError(f"KV page {page} counts {owners} owners, but {found[page]} hold it")
        if sorted(self._free) != [page for page, owners in enumerate(self._owners) if owners == 0]:
            raise LlamayError("the list of free KV pages differs from the pages without owners")
        if strangers := found.keys() - set(range(self.count)):
            raise LlamayError(f"KV page {min(strangers)} is held, but the pool has {self.count}")

    def _check(self, page: int) -> None:
        if not 0 <= page < self.count:
            raise UsageError(f"there is no KV page {page}; the pool has {self.count}")

    def _owned(self, page: int) -> None:
        self._check(page)
        if self._owners[page] == 0:
            raise UsageError(f"KV page {page} is free; it cannot be shared or dropped")
