"""The prefix tree: which token prefixes are in pages, given up least recently used first."""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from llamay.errors import LlamayError
from llamay.kv.group import Group
from llamay.kv.node import HOLE, KEY, Node
from llamay.kv.table import Table
from llamay.tensor.batch import PAGE, Ints


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """A known prefix: its tables own nothing until whoever takes them shares their pages."""

    pages: int
    tables: tuple[Table, ...]


class Tree:
    """A radix tree over tokens, 4 bytes each, in whole pages.  It owns pages of every group.

    A child is found by the hash of its first page's tokens, and the look-up compares the tokens
    themselves.  A node is used as a whole: matching or inserting a part of one splits it.
    In a window group a node may have holes; a prefix is known as far as its window has none.
    """

    def __init__(self, groups: Sequence[Group]) -> None:
        self._groups = tuple(groups)
        self._root = Node(None, 0, b"", tuple(np.empty(0, np.int32) for _ in groups))
        # Per group, the nodes with pages of it: least recently used first, and of one use the deepest
        # first.  A node is used whenever one below it is, so the first of group 0 is always a leaf.
        self._order: tuple[OrderedDict[Node, None], ...] = tuple(OrderedDict() for _ in groups)
        self._uses = 0

    def __len__(self) -> int:
        """Nodes."""
        return len(self._order[0])

    def known(self, tokens: bytes) -> int:
        """How many pages of this prefix `find` would find; changes nothing."""
        return self._usable(self._walk(tokens))

    def find(self, tokens: bytes) -> Found:
        """The longest known prefix, now the most recently used."""
        path = self._walk(tokens)
        count = self._usable(path)
        nodes = self._cut(path, count)
        self._use(nodes)
        tables = []
        for group in self._groups:
            pages = np.concatenate([self._root.pages[0], *(node.pages[group.number] for node in nodes)])
            first = group.first(count * PAGE)
            pages[:first] = 0
            tables.append(Table.of(pages, first))
        return Found(count, tuple(tables))

    def insert(self, tokens: bytes, tables: Sequence[Table]) -> int:
        """Makes a prefix of whole pages known and the most recently used; returns how many pages of it are new.

        What is known already keeps the tree's own pages; holes are filled from the tables.
        """
        count = len(tokens) // KEY
        path = self._walk(tokens)
        known = sum(pages for _, pages in path)
        nodes = self._cut(path, known)
        for node in nodes:
            self._fill(node, tables)
        if known < count:
            nodes.append(self._grow(nodes[-1] if nodes else self._root, tokens, known, count, tables))
        self._use(nodes)
        return count - known

    def give_up(self, group: Group) -> bool:
        """Gives up one page of a group, if it can one that becomes free; False where it has none.

        Of group 0 that is the last page of the least recently used leaf, with the same page of the
        other groups; of a window group any page of the least recently used prefix, which becomes a hole.
        """
        return self._give_up_last() if group.number == 0 else self._give_up_window(group)

    def held(self, group: Group) -> list[Ints]:
        """The pages it owns, by node."""
        return [node.live(group.number) for node in self._order[group.number]]

    def check_integrity(self) -> None:
        """LlamayError where a node is empty, misplaced or in the wrong order of use."""
        nodes = [node for child in self._root.children.values() for node in child.walk()]
        for node in nodes:
            node.check_integrity()
        for group in self._groups:
            listed = set(self._order[group.number])
            if listed != {node for node in nodes if len(node.live(group.number))}:
                raise LlamayError(f"the prefix tree's order of group {group.number} lists other nodes than it has")
            places = {node: place for place, node in enumerate(self._order[group.number])}
            for node in listed:
                if node.parent in places and places[node.parent] < places[node]:
                    raise LlamayError(f"the prefix tree would give up {node.parent} before {node}, which is below it")

    def _walk(self, tokens: bytes) -> list[tuple[Node, int]]:
        """The nodes along a prefix, with how many pages of each agree; only the last may agree in part."""
        path: list[tuple[Node, int]] = []
        node, at = self._root, 0
        while (child := node.children.get(tokens[at : at + KEY])) is not None:
            same = child.agrees(tokens, at)
            path.append((child, same))
            if same < len(child):
                break
            node, at = child, at + same * KEY
        return path

    def _usable(self, path: list[tuple[Node, int]]) -> int:
        """The most pages of a path whose windows have no hole."""
        count = sum(pages for _, pages in path)
        for group in self._groups[1:]:
            pages = np.concatenate([self._root.pages[0], *(node.pages[group.number][:n] for node, n in path)])
            holes = np.concatenate(([0], np.cumsum(pages == HOLE)))  # [count + 1], those before a page
            ends = np.arange(count + 1)
            firsts = np.maximum(0, ends * PAGE - group.span + 1) // PAGE
            count = int(np.flatnonzero(holes[ends] == holes[np.minimum(firsts, ends)])[-1])
        return count

    def _cut(self, path: list[tuple[Node, int]], count: int) -> list[Node]:
        """The nodes of a path's first `count` pages, the last split where they end."""
        nodes = []
        for node, pages in path:
            if count <= 0:
                break
            keep = min(pages, count)
            nodes.append(node if keep == len(node) else self._split(node, keep))
            count -= keep
        return nodes

    def _split(self, node: Node, pages: int) -> Node:
        """Cuts a node in two and returns the upper, which whoever cuts uses at once."""
        upper = node.split(pages)
        for number, order in enumerate(self._order):
            if len(upper.live(number)):
                order[upper] = None
            if node in order and not len(node.live(number)):
                del order[node]
        return upper

    def _use(self, nodes: list[Node]) -> None:
        """Makes a path the most recently used."""
        self._uses += 1
        for node in reversed(nodes):
            node.used = self._uses
            for order in self._order:
                if node in order:
                    order.move_to_end(node)

    def _fill(self, node: Node, tables: Sequence[Table]) -> None:
        """Fills a node's holes with what the tables still have there."""
        for group in self._groups[1:]:
            table = tables[group.number]
            first = max(node.first, table.first)
            ours, theirs = node.pages[group.number][first - node.first :], table.array[first : node.first + len(node)]
            missing = ours == HOLE
            if missing.any():
                group.adopt(theirs[missing])
                ours[missing] = theirs[missing]
                self._order[group.number][node] = None

    def _grow(self, parent: Node, tokens: bytes, known: int, count: int, tables: Sequence[Table]) -> Node:
        """A new leaf of pages `known` to `count` - 1."""
        pages = []
        for table in tables:
            run = table.array[known:count].copy()
            run[: max(0, table.first - known)] = HOLE
            pages.append(run)
        node = Node(parent, known, tokens[known * KEY : count * KEY], tuple(pages))
        parent.children[node.key] = node
        for group, order in zip(self._groups, self._order, strict=True):
            live = node.live(group.number)
            if len(live):
                group.adopt(live)
                order[node] = None
        return node

    def _give_up_last(self) -> bool:
        """Drops the last page of a leaf."""
        order, owners = self._order[0], self._groups[0].pages.owners
        alone = (node for node in order if not node.children and owners[node.pages[0][-1]] == 1)
        node = next(alone, None) or next(iter(order), None)
        if node is None:
            return False
        for group in self._groups:
            page = node.pages[group.number][-1:]
            if page[0] != HOLE:
                group.release(page)
        node.shorten()
        for number, listed in enumerate(self._order):
            if node in listed and not len(node.live(number)):
                del listed[node]
        return True

    def _give_up_window(self, group: Group) -> bool:
        """Makes a hole: the first page that becomes free of the least recently used prefix, else its first."""
        order = self._order[group.number]
        oldest: tuple[Node, int] | None = None
        for node in order:
            if oldest is not None and oldest[0].used != node.used:
                break
            pages = node.pages[group.number]
            alone = np.flatnonzero((pages != HOLE) & (group.pages.owners[pages] == 1))
            if len(alone):
                oldest = node, int(alone[0])  # nodes of one use come deepest first: the last is the uppermost
        if oldest is None and order:
            used = next(iter(order)).used
            node = [node for node in order if node.used == used][-1]
            oldest = node, int(np.flatnonzero(node.pages[group.number] != HOLE)[0])
        if oldest is None:
            return False
        node, at = oldest
        pages = node.pages[group.number]
        group.release(pages[at : at + 1].copy())
        pages[at] = HOLE
        if not len(node.live(group.number)):
            del order[node]
        return True
