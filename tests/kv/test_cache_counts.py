"""What a cache tells of itself: statistics, and check_integrity against planted faults."""

import numpy as np
import pytest

from llamay.errors import LlamayError
from llamay.kv import Cache, Context, Table


def filled(cache: Cache, tokens: list[int]) -> Context:
    context = cache.match([])[0]
    cache.extend(context, len(tokens))
    cache.commit(context, tokens)
    return context


def pages(context: Context, group: int = 0) -> list[int]:
    return context.tables[group].array.tolist()


def _table(context: Context, array: list[int], first: int = 0, group: int = 0) -> None:
    tables = list(context.tables)
    tables[group] = Table.of(np.array(array, np.int32), first)
    context.tables = tuple(tables)


def _lend(pool: Cache, context: Context) -> None:
    """Room for two contexts in one page."""
    (fork,) = pool.fork(context)
    pool.extend(context, 1)
    fork.room += 1
    _table(context, pages(fork))
    pool.groups[0].pages.drop([3])
    pool.groups[0].pages.share(pages(fork)[2:])


FAULTS = {
    "a page too many": (lambda p, c: p.groups[0].pages.share([0]), "KV page 0 counts 3 owners, but 2 hold it"),
    "a page lost": (lambda p, c: _table(c, pages(c)[:2]), "40 tokens, room for 40, but 2 pages"),
    "room lost": (lambda p, c: setattr(c, "room", 39), "40 tokens, room for 39"),
    "a page twice": (lambda p, c: _table(c, [0, 1, 1]), r"a page twice: \[0, 1, 1\]"),
    "another page": (lambda p, c: _table(c, [0, 1, 3]), "KV page 2 counts 1 owners, but 0 hold it"),
    "no such page": (lambda p, c: _table(c, [0, 1, 99]), "KV page 99 is held, but the pool has 9"),
    "a hole": (lambda p, c: _table(c, [0, 0, 2], 2, group=1), "holes before page 2"),
    "a hole with a page": (lambda p, c: _table(c, [5, 1, 2], 1, group=1), "holes before page 1"),
    "an open table": (
        lambda p, c: setattr(c, "tables", (Table(np.array([0, 1, 2], np.int32)), c.tables[1])),
        "written to",
    ),
    "a shared empty page": (
        lambda p, c: (p.extend(c, 20), p.groups[0].pages.share([3]), p.fork(c), _table(p.contexts[1], [0, 1, 2, 3])),
        "shares a page of group 0 that it has not filled yet",
    ),
    "the tree's share": (lambda p, c: p.groups[0].held.__setitem__(0, False), "KV page 0 of group 0 is in the prefix"),
    "the tree writable": (lambda p, c: _cut(c), "is the tree's, but may be written"),
    "a node gone": (lambda p, c: p._tree._root.children.clear(), "lists other nodes"),
    "a node misplaced": (lambda p, c: setattr(_node(p), "first", 1), "not below what comes before it"),
    "a node uneven": (lambda p, c: setattr(_node(p), "tokens", _node(p).tokens * 2), r"has \[2, 2\] pages by group"),
    "two writers": (lambda p, c: _lend(p, c), "may be written by two contexts"),
}


def _node(pool: Cache):
    return next(iter(pool._tree._root.children.values()))


def _cut(context: Context) -> None:
    """Back within a page that the tree has, without giving up the room."""
    del context.tokens[20:]


@pytest.mark.parametrize("fault", FAULTS)
def test_integrity_finds_planted_faults(fault):
    pool = Cache(9, 9, 20, lambda group, pairs: None)
    context = filled(pool, [1] * 40)
    pool.publish(context)
    pool.check_integrity()
    plant, words = FAULTS[fault]
    plant(pool, context)
    with pytest.raises(LlamayError, match=words):
        pool.check_integrity()


def test_stats():
    pool = Cache(20, 8, 20, lambda group, pairs: None)
    context = filled(pool, list(range(40)))
    context.name = "chat"
    pool.publish(context)
    (fork,) = pool.fork(context)
    pool.extend(fork, 1)
    pool.commit(fork, [1])
    pool.match(list(range(32)))
    stats = pool.stats()
    assert [(g.pages, g.contexts, g.both, g.tree, g.free) for g in stats.groups] == [(20, 2, 2, 0, 16), (8, 2, 1, 0, 5)]
    first, second, _ = stats.contexts
    assert (first.name, first.own, first.shared, first.tokens) == ("chat", (1, 1), (2, 1), 40)
    assert (second.parent, second.fork_point, second.own, second.shared) == (context.id, 40, (1, 1), (2, 1))
    counters = stats.counters
    assert (counters.copied, counters.looked_up, counters.found) == (2, 32, 0)  # the window of 32 has a hole
    pool.extend(fork, 1)
    pool.commit(fork, [1])
    assert pool.stats().counters.taken == counters.taken == 8
