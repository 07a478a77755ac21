"""A Need: the pages of one group that a context is about to take."""

from dataclasses import dataclass

from llamay.kv.group import Group
from llamay.kv.table import Table, sized
from llamay.tensor.batch import PAGE


@dataclass(frozen=True, slots=True)
class Need:
    """`missing` new pages, and one more to copy the partly filled page into where somebody else owns that too."""

    group: Group
    missing: int
    partial: int | None = None  # the page that the next token shares with earlier ones

    @classmethod
    def of(cls, group: Group, table: Table, position: int, end: int) -> "Need":
        """What a context at `position` needs for writing up to position `end` - 1."""
        partial = int(table.array[position // PAGE]) if position % PAGE else None
        return cls(group, max(0, sized(end) - len(table)), partial)

    @property
    def copies(self) -> bool:
        """Whether the partly filled page is shared now."""
        return self.partial is not None and bool(self.group.pages.owners[self.partial] > 1)

    @property
    def pages(self) -> int:
        """How many pages it takes now."""
        return self.missing + self.copies

    @property
    def least(self) -> int:
        """How many it would take if the tree gave up everything."""
        return self.missing + (self.partial is not None and self.group.others(self.partial) > 1)
