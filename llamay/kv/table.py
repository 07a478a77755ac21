"""The page table of one sequence in one page group: a value that forks share."""

from dataclasses import dataclass

import numpy as np

from llamay.tensor.batch import PAGE, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """Which page holds which 16 positions of a sequence.  Never written to: what changes is a new Table.

    `array` goes into a Batch as it is.  Pages before `first` are holes: the window no longer
    needs them, the array says 0 there, and what an executor reads through them is masked.
    """

    array: Ints  # [pages], read-only; page p holds positions 16p to 16p+15
    first: int = 0

    @classmethod
    def of(cls, array: Ints, first: int) -> "Table":
        """Of an array that nobody writes to any more; 0 before `first`."""
        array.flags.writeable = False
        return cls(array, first)

    @property
    def live(self) -> Ints:
        """The pages it owns [pages - first]."""
        return self.array[self.first :]

    def __len__(self) -> int:
        """Pages, holes included."""
        return len(self.array)

    def cut(self, pages: int) -> "Table":
        """Its first `pages` pages."""
        if pages >= len(self.array):
            return self
        return Table(self.array[:pages], min(self.first, pages))

    def grown(self, pages: Ints) -> "Table":
        """With `pages` after its own."""
        return Table.of(np.concatenate((self.array, pages)), self.first) if len(pages) else self

    def replaced(self, at: int, page: int) -> "Table":
        """With another page at index `at`."""
        array = self.array.copy()
        array[at] = page
        return Table.of(array, self.first)

    def holed(self, first: int) -> "Table":
        """With holes before page `first`."""
        array = self.array.copy()
        array[:first] = 0
        return Table.of(array, first)


def sized(positions: int) -> int:
    """How many pages hold that many positions."""
    return -(-positions // PAGE)


EMPTY = Table.of(np.empty(0, np.int32), 0)
