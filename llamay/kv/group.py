"""A page group: the layers that keep the same positions, with their pool and the tree's share of it."""

import numpy as np

from llamay.errors import LlamayError, UsageError
from llamay.kv.pages import Pages
from llamay.tensor.batch import PAGE, Ints


class Group:
    """Group 0 are the layers that see every position; group 1, where there is one, those with a window of `span`."""

    def __init__(self, number: int, pages: int, span: int = 0) -> None:
        """`span` counts the position itself: position i sees j with i - span < j <= i.  0: it sees all."""
        if span < 0 or (number > 0) != (span > 0):
            raise UsageError(f"page group {number} has a window of {span} tokens; group 0 has none, group 1 at least 1")
        self.number = number
        self.span = span
        self.pages = Pages(pages)
        self.held = np.zeros(pages, np.bool_)  # [pages], those the tree owns

    def first(self, position: int) -> int:
        """The first page that computing `position` needs; those before it may be holes."""
        return max(0, position - self.span + 1) // PAGE if self.span else 0

    def adopt(self, pages: Ints) -> None:
        """The tree becomes an owner of the pages."""
        self.pages.share(pages)
        self.held[pages] = True

    def release(self, pages: Ints) -> None:
        """The tree gives the pages up."""
        self.pages.drop(pages)
        self.held[pages] = False

    def reclaimable(self) -> int:
        """How many pages nobody but the tree owns: what it could free."""
        return int(np.count_nonzero(self.held & (self.pages.owners == 1)))

    def others(self, page: int) -> int:
        """How many owners a page has besides the tree."""
        return int(self.pages.owners[page]) - int(self.held[page])

    def check_integrity(self, contexts: list[Ints], tree: list[Ints]) -> None:
        """Counts and the tree's share, recomputed from what contexts and the tree hold; LlamayError where they differ."""
        self.pages.check_integrity([*contexts, *tree])
        held = np.zeros_like(self.held)
        for pages in tree:
            if held[pages].any():
                raise LlamayError(f"the prefix tree holds KV page {pages[held[pages]][0]} of group {self.number} twice")
            held[pages] = True
        if (held != self.held).any():
            page = int(np.flatnonzero(held != self.held)[0])
            raise LlamayError(
                f"KV page {page} of group {self.number} is{'' if held[page] else ' not'} in the prefix tree"
            )
