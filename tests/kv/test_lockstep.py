"""A Cache and its reference under the same random operations: the same pages, the same refusals, the right contents.

Pages have contents here: a slot holds a number made of all the tokens before it, as a key or value would.
After every operation the counts are recomputed, and every context reads what its tokens call for.
`LLAMAY_SOAK` scales the soak's 200,000 operations.  World n is always the same.
"""

import importlib.util
import os
import random
from collections import Counter
from pathlib import Path

import pytest

from llamay.errors import OutOfMemory
from llamay.kv import Cache, Context
from llamay.tensor.batch import PAGE

SPECIFICATION = importlib.util.spec_from_file_location("reference", Path(__file__).parent / "reference.py")
REFERENCE = importlib.util.module_from_spec(SPECIFICATION)
SPECIFICATION.loader.exec_module(REFERENCE)

SIZES = [  # (full, window, span, pages from one state that is kept to the next): from cramped to roomy
    (6, 0, 0),
    (12, 0, 0),
    (24, 0, 0),
    (12, 6, 18),
    (16, 10, 1),
    (20, 10, 16),
    (16, 14, 33),
    (24, 9, 50),
    (24, 9, 17, 2),  # with states that are kept
]
MOST_CONTEXTS = 7
SOAK = float(os.environ.get("LLAMAY_SOAK", "1"))
OPERATIONS = {  # how often each is drawn
    "match": 12, "extend": 28, "commit": 28, "scribble": 6, "fork": 8, "rewind": 6, "publish": 14, "drop": 6,
    "evict": 1, "allocate": 2, "known": 2, "stats": 1,
}  # fmt: skip


class World:
    """One cache, its reference and the contents of its pages."""

    def __init__(self, seed: int, sizes: tuple[int, ...]) -> None:
        self.random = random.Random(seed)
        self.contents: dict[tuple[int, int], list[int]] = {}  # (group, page): a number a slot
        self.copies: list[tuple[int, int, int]] = []
        full, window, span, *every = sizes
        self.cache = Cache(full, window, span, self.copy, lambda: 0.0, *every)
        self.reference = REFERENCE.Reference(*sizes)
        self.longest = min(size for size in sizes[:2] if size) * PAGE
        self.done: Counter[str] = Counter()

    def copy(self, group: int, pairs: list[tuple[int, int]]) -> None:
        for source, target in pairs:
            self.copies.append((group, source, target))
            self.contents[group, target] = list(self.contents[group, source])

    def write(self, context: Context, positions: range, values: list[int]) -> None:
        for group, table in enumerate(context.tables):
            for position, value in zip(positions, values, strict=True):
                page = int(table.array[position // PAGE])
                self.contents.setdefault((group, page), [0] * PAGE)[position % PAGE] = value

    def words(self) -> list[int]:
        """Tokens that often begin alike: words of 16, rarely cut short."""
        tokens = [token for _ in range(self.random.randint(0, 6)) for token in [self.random.randint(1, 2)] * PAGE]
        return tokens[: len(tokens) - self.random.choice([0, 0, 0, 1, 5, 15])] if tokens else tokens

    def step(self) -> None:
        """One operation on both, and all that must be true after it."""
        names = list(OPERATIONS)
        name = self.random.choices(names, list(OPERATIONS.values()))[0]
        if name in ("match", "fork", "allocate") and len(self.cache.contexts) >= MOST_CONTEXTS:
            name = self.random.choice(["drop", "extend", "commit", "publish", "rewind"])
        if not self.cache.contexts and name not in ("match", "evict", "allocate", "known", "stats"):
            name = "match"
        self.done[name] += 1
        getattr(self, name)()
        self.compare()

    def any(self) -> Context:
        return self.random.choice(list(self.cache.contexts.values()))

    def match(self) -> None:
        tokens = self.words()
        known = self.reference.known(tuple(tokens))
        count = self.cache.match(tokens)[1]
        assert count == known
        self.reference.match(tuple(tokens))
        self.done["found"] += count > 0

    def known(self) -> None:
        tokens = self.words()
        assert self.cache.known(tokens) == self.reference.known(tuple(tokens))

    def extend(self) -> None:
        context, count = self.any(), self.random.choice([1, 1, 3, 16, 20, 50])
        before = context.tables
        copies, evicted = len(self.copies), self.cache.stats().counters.evicted
        try:
            self.cache.extend(context, count)
            fits = True
        except OutOfMemory as error:
            fits = False
            assert context.tables is before and "pages of 16 tokens, but of" in str(error)
            self.done["refused"] += 1
        assert self.reference.extend(context.id, count) == fits
        assert len(self.copies) - copies <= len(self.cache.groups)
        self.done["copied"] += len(self.copies) > copies
        self.done["made room"] += self.cache.stats().counters.evicted > evicted

    def commit(self) -> None:
        context = self.any()
        count = self.random.randint(0, context.room - context.position)
        if count > 3 and self.random.random() < 0.5:  # a word of the tree's alphabet, to its end
            count = min(count, PAGE - context.position % PAGE)
        token = context.tokens[-1] if context.position % PAGE else self.random.randint(1, 2)
        tokens = [token] * count
        if count and self.random.random() < 0.05:
            tokens[-1] = 9
        values = history([*context.tokens, *tokens])[context.position :]
        self.write(context, range(context.position, context.position + count), values)
        self.cache.commit(context, tokens)
        self.reference.commit(context.id, tuple(tokens))

    def scribble(self) -> None:
        """A step whose tokens are never committed, or not yet."""
        context = self.any()
        positions = range(context.position, context.room)
        self.write(context, positions, [-1] * len(positions))

    def fork(self) -> None:
        context, n = self.any(), self.random.randint(1, MOST_CONTEXTS - len(self.cache.contexts))
        free = [group.pages.free for group in self.cache.groups]
        forks = self.cache.fork(context, n)
        assert [fork.parent for fork in forks] == [context.id] * n
        assert free == [group.pages.free for group in self.cache.groups]
        self.reference.fork(context.id, n)

    def rewind(self) -> None:
        context = self.any()
        position = self.random.randint(0, context.position)
        start = self.cache.recompute_from(context, position)
        lost = self.cache.rewind(context, position)
        assert context.position == start == position - len(lost)
        assert tuple(lost) == self.reference.rewind(context.id, position)
        self.done["recomputed"] += len(lost) > 0
        self.done["resumed"] += len(lost) > 0 and start > 0

    def publish(self) -> None:
        context = self.any()
        before = len(self.reference.tree)
        self.reference.publish(context.id)
        assert self.cache.publish(context) == len(self.reference.tree) - before

    def drop(self) -> None:
        context = self.any()
        self.cache.drop(context)
        self.cache.drop(context)
        del self.reference.contexts[context.id]

    def evict(self) -> None:
        group, pages = self.random.randrange(len(self.cache.groups)), self.random.choice([1, 2, 1000])
        freed = self.cache.evict(pages, group)
        before = len(self.reference.free(group))
        while len(self.reference.free(group)) - before < pages and self.reference.reclaimable(group):
            self.reference.give_up(group)
        assert freed == len(self.reference.free(group)) - before
        self.done["evicted"] += freed > 0

    def allocate(self) -> None:
        tokens = self.words()
        if self.reference.allocate(tuple(tokens)):
            context = self.cache.allocate(tokens)
            first = max(table.first for table in context.tables)
            for group, table in enumerate(context.tables):
                for position, value in enumerate(history(tokens)):
                    if position // PAGE >= table.first:
                        page = int(table.array[position // PAGE])
                        self.contents.setdefault((group, page), [0] * PAGE)[position % PAGE] = value
            self.done["holes"] += first > 0
        else:
            with pytest.raises(OutOfMemory):
                self.cache.allocate(tokens)

    def stats(self) -> None:
        stats = self.cache.stats()
        for number, group in enumerate(stats.groups):
            assert group.pages == group.contexts + group.both + group.tree + group.free
            counts = self.reference.owners(number)
            assert group.free == len(self.reference.free(number)) and group.tree == self.reference.reclaimable(number)
            for context in stats.contexts:
                live = [page for page in self.reference.contexts[context.id][1][number] if page is not None]
                assert context.own[number] == sum(counts[page] == 1 for page in live)
                assert context.own[number] + context.shared[number] == len(live)
        assert stats.counters.copied == len(self.copies)

    def compare(self) -> None:
        self.cache.check_integrity()
        assert self.copies == self.reference.copies
        assert list(self.cache.contexts) == list(self.reference.contexts)
        for number, group in enumerate(self.cache.groups):
            assert group.pages.free == len(self.reference.free(number))
        for context, (tokens, tables, room) in zip(
            self.cache.contexts.values(), self.reference.contexts.values(), strict=True
        ):
            assert tuple(context.tokens) == tokens and context.room == room
            values = history(tokens)
            for group, (table, expected) in enumerate(zip(context.tables, tables, strict=True)):
                assert [None] * table.first + table.live.tolist() == expected
                for number, page in enumerate(expected):
                    called = values[number * PAGE : number * PAGE + PAGE]
                    if page is not None and called:
                        assert self.contents[group, page][: len(called)] == called
        self.compare_tree()

    def compare_tree(self) -> None:
        """The tree's pages by prefix, read from the nodes."""
        found = {}
        for node in [below for child in self.cache._tree._root.children.values() for below in child.walk()]:
            above, path = node.parent, [node.tokens]
            while above is not None:
                path.append(above.tokens)
                above = above.parent
            tokens = tuple(memoryview(b"".join(reversed(path))).cast("i"))
            for k in range(len(node)):
                found[tokens[: (node.first + k + 1) * PAGE]] = [int(pages[k]) for pages in node.pages]
        expected = {
            path: [-1 if page is None else page for page in pages] for path, (_, pages) in self.reference.tree.items()
        }
        assert found == expected


def history(tokens: list[int]) -> list[int]:
    """For each token a number that depends on it and all before it."""
    value, values = 7, []
    for token in tokens:
        value = (value * 1000003 + token) % 2147483647
        values.append(value)
    return values


def run(seed: int, operations: int) -> Counter[str]:
    world = World(seed, SIZES[seed % len(SIZES)])
    for _ in range(operations):
        world.step()
    for context in list(world.cache.contexts.values()):
        world.cache.drop(context)
    for group in world.cache.groups:
        world.cache.evict(group.pages.count, group.number)
        assert group.pages.free == group.pages.count
    world.cache.check_integrity()
    return world.done


RARE = (
    "found",
    "copied",
    "refused",
    "made room",
    "evicted",
    "recomputed",
    "resumed",
    "holes",
)  # what operations came to


def test_lockstep():
    done = sum((run(seed, 500) for seed in range(len(SIZES))), Counter())
    assert {name: done[name] for name in (*OPERATIONS, *RARE) if done[name] < 5} == {}


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 140))
def test_lockstep_at_length(seed):
    operations = max(1, round(5000 * SOAK))
    done = run(seed, operations)
    assert sum(done[name] for name in OPERATIONS) == operations
