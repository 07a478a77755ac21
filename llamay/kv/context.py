"""A Context: a sequence of tokens whose keys and values are in pages."""

from array import array
from dataclasses import dataclass, field

from llamay.kv.table import Table

TOKENS = "i"  # array type: 4 bytes a token, so that copying and comparing are memcpy and memcmp


@dataclass(slots=True, eq=False)
class Context:
    """One sequence.  Made, changed and dropped by its Cache alone; everybody else reads.

    `tables` is replaced, never written to, so `context.tables[0].array is array` tells whether
    an executor that continues from an earlier batch would still use the right pages.
    `name`, `tags` and `pinned` are their owner's to set: the Cache only carries them.  So is `remembered`,
    which says whether pages of states that it passes may stay known.
    """

    id: int
    tokens: "array[int]"  # those whose keys and values are in the pages; copy what you keep
    tables: tuple[Table, ...]  # one a page group
    room: int  # positions below it may be written by a step: `Cache.extend` raises it
    parent: int | None = None  # id of the context it was forked from
    fork_point: int = 0  # its length when it was forked
    created: float = 0.0  # of the cache's clock
    last_used: float = 0.0
    name: str = ""
    tags: frozenset[str] = field(default=frozenset())
    pinned: bool = False
    remembered: bool = True

    @property
    def position(self) -> int:
        """Where the next token goes; so many tokens are held."""
        return len(self.tokens)
