"""A page map: who owns each page of a group at one moment, in a form that is cheap to take and short to send."""

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llamay.kv.context import Context
from llamay.kv.group import Group
from llamay.tensor.batch import Ints

NOBODY = -1  # in place of a context: free, or the prefix tree's alone


@dataclass(frozen=True, slots=True, eq=False)
class PageMap:
    """Arrays that nobody writes to any more, so that whoever wants runs may make them on a thread of their own."""

    owners: Ints  # [pages], how many there are; 0: the page is free
    held: NDArray[np.bool_]  # [pages], whether the prefix tree is one of them
    contexts: tuple[tuple[int, int, Ints], ...]  # id, place of the first page that is no hole, pages of each; oldest first

    @classmethod
    def of(cls, group: Group, contexts: Collection[Context]) -> "PageMap":
        """The map at this moment."""
        owned = [(context.id, context.tables[group.number]) for context in contexts]
        tables = tuple([(id, table.first, table.live) for id, table in owned])
        return cls(group.pages.owners.copy(), group.held.copy(), tables)

    def runs(self) -> list[list[int]]:
        """Pages of the same owners in a row: [how many, oldest context or -1, number of owners, 1 where the tree is one, place].

        The place is that of the first page in its context, whose tokens 16 * place and on it holds; the
        others follow it there.  -1 where no context owns them.
        """
        count = len(self.owners)
        first, place = np.full(count, NOBODY, np.int32), np.full(count, NOBODY, np.int32)
        for id, begin, pages in reversed(self.contexts):
            first[pages] = id
            place[pages] = np.arange(begin, begin + len(pages), dtype=np.int32)
        lead = np.where(place < 0, 0, place - np.arange(count, dtype=np.int32))  # the same for pages that follow each other
        columns = np.stack([first, self.owners, self.held.astype(np.int32), lead])
        starts = np.flatnonzero(np.concatenate(([True], (columns[:, 1:] != columns[:, :-1]).any(axis=0))))
        lengths = np.diff(np.append(starts, count))
        columns[3] = place
        found: list[list[int]] = np.concatenate((lengths[None], columns[:, starts])).T.tolist()
        return found
