"""A node of the prefix tree: a run of tokens in whole pages, and where their keys and values are."""

from collections.abc import Iterator

from llamay.errors import LlamayError
from llamay.tensor.batch import PAGE, Ints

KEY = 4 * PAGE  # bytes of one page's tokens
HOLE = -1  # in place of a page that a window group does not have


class Node:
    """Pages `first` to `first` + len(node) - 1 of every prefix that goes through it."""

    __slots__ = ("children", "first", "pages", "parent", "tokens", "used")

    def __init__(self, parent: "Node | None", first: int, tokens: bytes, pages: tuple[Ints, ...]) -> None:
        self.parent = parent
        self.first = first
        self.tokens = tokens
        self.pages = pages  # one array [len(node)] a page group
        self.children: dict[bytes, Node] = {}  # by the tokens of their first page
        self.used = 0

    def __len__(self) -> int:
        return len(self.tokens) // KEY

    def __repr__(self) -> str:
        return f"pages {self.first} to {self.first + len(self) - 1}"

    @property
    def key(self) -> bytes:
        """What its parent knows it by."""
        return self.tokens[:KEY]

    def live(self, group: int) -> Ints:
        """Its pages of a group, without holes."""
        pages = self.pages[group]
        live: Ints = pages[pages != HOLE]
        return live

    def walk(self) -> Iterator["Node"]:
        """It and all below it."""
        waiting = [self]
        while waiting:
            node = waiting.pop()
            yield node
            waiting += node.children.values()

    def agrees(self, tokens: bytes, at: int) -> int:
        """How many of its pages have the tokens that begin at byte `at`."""
        low, high = 0, min(len(self), (len(tokens) - at) // KEY)
        if tokens.startswith(self.tokens[: high * KEY], at):
            return high
        while low + 1 < high:  # the first `low` pages agree, the first `high` do not
            middle = (low + high) // 2
            if tokens.startswith(self.tokens[: middle * KEY], at):
                low = middle
            else:
                high = middle
        return low

    def split(self, pages: int) -> "Node":
        """Puts its first `pages` pages into a new node above it, and returns that."""
        parent = self.parent
        if parent is None or not 0 < pages < len(self):
            raise LlamayError(f"a node of {len(self)} pages cannot be split after {pages}")
        upper = Node(parent, self.first, self.tokens[: pages * KEY], tuple(run[:pages].copy() for run in self.pages))
        upper.used = self.used
        parent.children[upper.key] = upper
        self.parent, self.first, self.tokens = upper, self.first + pages, self.tokens[pages * KEY :]
        self.pages = tuple(run[pages:].copy() for run in self.pages)
        upper.children[self.key] = self
        return upper

    def shorten(self) -> None:
        """Loses its last page; with the only one, its place in the tree."""
        if len(self) == 1 and self.parent is not None:
            del self.parent.children[self.key]
        self.tokens = self.tokens[:-KEY]
        self.pages = tuple(run[:-1] for run in self.pages)

    def check_integrity(self) -> None:
        """LlamayError where it is empty, of uneven length, or not where its tokens say."""
        if not len(self) or any(len(run) != len(self) for run in self.pages):
            raise LlamayError(f"the prefix tree's {self} has {[len(run) for run in self.pages]} pages by group")
        parent = self.parent
        if parent is None or parent.children.get(self.key) is not self or parent.first + len(parent) != self.first:
            raise LlamayError(f"the prefix tree's {self} is not below what comes before it")
        if (self.pages[0] == HOLE).any():
            raise LlamayError(f"the prefix tree's {self} has a hole where every page is needed")
        if parent.parent is not None and parent.used < self.used:
            raise LlamayError(f"the prefix tree's {self} was used after what comes before it")
