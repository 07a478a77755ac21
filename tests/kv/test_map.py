"""The page map: runs of pages with the same owners, the same as counting page by page."""

import itertools
import time

import numpy as np

from llamay.kv import Cache


def test_runs_say_of_each_page_who_owns_it() -> None:
    cache = Cache(12)
    context = cache.match([])[0]
    cache.extend(context, 40)
    cache.commit(context, list(range(40)))
    cache.publish(context)  # two whole pages
    fork = cache.fork(context)[0]
    (page_map,) = cache.stats().maps
    assert page_map.runs() == [[2, context.id, 3, 1, 0], [1, context.id, 2, 0, 2], [9, -1, 0, 0, -1]]
    cache.drop(context)
    assert cache.stats().maps[0].runs() == [[2, fork.id, 2, 1, 0], [1, fork.id, 1, 0, 2], [9, -1, 0, 0, -1]]
    cache.drop(fork)
    assert cache.stats().maps[0].runs() == [[2, -1, 1, 1, -1], [10, -1, 0, 0, -1]]
    assert page_map.runs()[0] == [2, context.id, 3, 1, 0], "a map stays what it was"


def test_runs_agree_with_the_counts() -> None:
    chance, cache = np.random.default_rng(0), Cache(200)
    held = []
    for number in range(12):
        context = cache.match([])[0]
        count = int(chance.integers(1, 120))
        cache.extend(context, count)
        cache.commit(context, [number] * count)
        held += [context, *cache.fork(context, int(chance.integers(0, 3)))]
        if chance.random() < 0.5:
            cache.publish(context)
        if chance.random() < 0.4:
            cache.drop(held.pop(0))
    stats = cache.stats()
    group, runs = stats.groups[0], stats.maps[0].runs()
    pages = [run[1:4] for run in runs for _ in range(run[0])]
    places = [run[4] + at if run[4] >= 0 else -1 for run in runs for at in range(run[0])]
    for page, ((first, *_), place) in enumerate(zip(pages, places, strict=True)):
        table = cache.contexts[first].tables[0].array if first >= 0 else ()
        assert place == -1 if first < 0 else table[place] == page
    assert len(pages) == 200
    owners = cache.groups[0].pages.owners
    for page, (first, count, tree) in enumerate(pages):
        mine = [one.id for one in cache.contexts.values() if page in one.tables[0].live]
        assert (first, count) == (min(mine, default=-1), len(mine) + tree) and count == owners[page]
    assert sum(not count for _, count, _ in pages) == group.free
    assert sum(tree == 1 and first == -1 for first, _, tree in pages) == group.tree
    follows = [(a[1:4], a[4] + a[0] if a[4] >= 0 else -1) != (b[1:4], b[4]) for a, b in itertools.pairwise(runs)]
    assert all(follows), "no run could be part of the one before"


def test_a_large_pool_is_told_quickly() -> None:
    cache = Cache(4096)
    for number in range(64):
        context = cache.match([])[0]
        cache.extend(context, 16 * 48)
        cache.commit(context, [number] * 16 * 48)
    best = [0.0, 0.0]
    for _ in range(30):
        start = time.perf_counter()
        page_map = cache.stats().maps[0]
        took = time.perf_counter()
        runs = page_map.runs()
        seconds = (took - start, time.perf_counter() - took)
        best = [min(old or 1.0, new) for old, new in zip(best, seconds, strict=True)]
    assert len(runs) == 65 and best[0] < 0.001 and best[1] < 0.002
