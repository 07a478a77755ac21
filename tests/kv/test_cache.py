"""What a Cache promises, one promise a test: forks, copy on write, room, windows, the tree, and refusals that change nothing."""

from array import array

import numpy as np
import pytest

from llamay.errors import LlamayError, OutOfMemory, UsageError
from llamay.kv import Cache, Context


class Copies(list):
    """Page copies as they were asked for: (group, from, to)."""

    def __call__(self, group: int, pairs: list[tuple[int, int]]) -> None:
        self.extend((group, *pair) for pair in pairs)


def cache(full: int, window: int = 0, span: int = 0) -> tuple[Cache, Copies]:
    copies = Copies()
    return Cache(full, window, span, copies), copies


def write(cache: Cache, context: Context, tokens: list[int], chunk: int = 1000) -> None:
    for at in range(0, len(tokens), chunk):
        cache.extend(context, len(tokens[at : at + chunk]))
        cache.commit(context, tokens[at : at + chunk])
        cache.check_integrity()


def filled(cache: Cache, tokens: list[int], chunk: int = 1000) -> Context:
    context, known = cache.match([])
    assert known == 0
    write(cache, context, tokens, chunk)
    return context


def pages(context: Context, group: int = 0) -> list[int]:
    return context.tables[group].array.tolist()


def snapshot(cache: Cache) -> object:
    """All that a refused call must leave as it was."""
    tables = [[(pages(c, g), t.first) for g, t in enumerate(c.tables)] for c in cache.contexts.values()]
    counts = [group.pages.owners.tolist() for group in cache.groups]
    return tables, counts, [(list(c.tokens), c.room) for c in cache.contexts.values()], cache.stats().nodes


def test_32_forks_of_2048_tokens_take_no_page():
    """How long they take, bench/test_forks.py measures."""
    pool, copies = cache(300)
    parent = filled(pool, list(range(2048)))
    free = pool.groups[0].pages.free
    forks = pool.fork(parent, 32)
    assert pool.groups[0].pages.free == free == 300 - 128
    for number, fork in enumerate(forks):
        assert pages(fork) == pages(parent) and list(fork.tokens) == list(range(2048)) and fork.fork_point == 2048
        write(pool, fork, [number])
    assert copies == []  # the parent's pages were whole: each fork began a page of its own
    assert len({pages(fork)[-1] for fork in forks}) == 32 and {len(pages(fork)) for fork in forks} == {129}


def test_the_first_write_after_a_fork_copies_one_page_and_later_ones_none():
    pool, copies = cache(20)
    parent = filled(pool, list(range(40)))
    first, second = pool.fork(parent, 2)
    shared = pages(parent)
    write(pool, first, [7])
    assert copies == [(0, shared[2], 3)] and pages(first) == [*shared[:2], 3]
    write(pool, first, [8] * 7)
    write(pool, second, [9])
    assert copies == [(0, shared[2], 3), (0, shared[2], 4)]
    write(pool, parent, [1])  # nobody else has the page any more
    assert len(copies) == 2 and pages(parent) == shared
    assert pool.stats().counters.copied == 2
    assert (list(parent.tokens[40:]), list(first.tokens[40:]), list(second.tokens[40:])) == ([1], [7] + [8] * 7, [9])


def test_a_fork_leaves_the_original_its_room():
    pool, copies = cache(20)
    parent = filled(pool, list(range(20)))
    pool.extend(parent, 30)
    tables = parent.tables
    (fork,) = pool.fork(parent)
    assert len(pages(fork)) == 2 and len(pages(parent)) == 4 and fork.room == 20
    pool.commit(parent, [1] * 30)  # no extend in between: a step was in flight
    assert parent.tables is tables and copies == []
    pool.check_integrity()
    write(pool, fork, [2])
    assert copies == [(0, pages(parent)[1], 4)]


def test_tables_are_new_objects_exactly_when_they_change():
    pool, _ = cache(20)
    context = filled(pool, [1] * 10)
    before = context.tables[0].array
    pool.extend(context, 6)
    assert context.tables[0].array is before
    pool.extend(context, 7)
    assert context.tables[0].array is not before and before.tolist() == [0]
    with pytest.raises(ValueError, match="read-only"):
        context.tables[0].array[0] = 1


def test_the_longest_known_prefix_in_whole_pages():
    pool, _ = cache(30)
    context = filled(pool, [1] * 32 + [2] * 16 + [3] * 5)
    assert pool.known([1] * 32) == 0 and pool.publish(context) == 3 and pool.publish(context) == 0
    other = filled(pool, [1] * 32 + [4] * 16)
    assert pool.publish(other) == 1  # the two pages before were known
    free = pool.groups[0].pages.free
    for tokens, count in (
        ([1] * 32 + [2] * 16 + [3] * 5, 48),
        ([1] * 32 + [4] * 17, 48),
        ([1] * 32 + [5] * 16, 32),
        ([1] * 31, 16),
        ([1] * 15 + [2], 0),
        ([2] * 48, 0),
        ([], 0),
    ):
        assert pool.known(tokens) == count
        match, found = pool.match(tokens)
        assert found == count and list(match.tokens) == tokens[:count] and match.room == count
        pool.check_integrity()
    assert pool.groups[0].pages.free == free
    assert pages(pool.match([1] * 48)[0]) == pages(context)[:2]


def test_the_tree_gives_up_the_least_recently_used_and_contexts_lose_nothing():
    pool, _ = cache(8)
    prompts = [[number] * 32 for number in (1, 2, 3)]
    for prompt in prompts:
        context = filled(pool, prompt)
        pool.publish(context)
        pool.drop(context)
    kept, _ = pool.match(prompts[0])  # now the most recently used, and in use
    new = filled(pool, [9] * 48)  # 2 free pages and one of the second prompt's
    assert [pool.known(prompt) for prompt in prompts] == [32, 16, 32]
    write(pool, new, [9] * 48)
    assert [pool.known(prompt) for prompt in prompts] == [32, 0, 0]
    assert list(kept.tokens) == prompts[0] and pool.stats().counters.evicted == 4
    before = snapshot(pool)
    with pytest.raises(
        OutOfMemory, match=r"needs 1 KV pages of 16 tokens, but of 8 in group 0 0 are free .* give up 0"
    ):
        pool.extend(new, 1)
    assert snapshot(pool) == before
    pool.drop(kept)
    write(pool, new, [9])
    assert pool.known(prompts[0]) == 16


def test_evict():
    pool, _ = cache(8)
    context = filled(pool, [1] * 64)
    pool.publish(context)
    assert pool.evict(8) == 0 and pool.known([1] * 64) == 64  # a context has them all
    pool.rewind(context, 32)
    assert pool.evict(1) == 1 and pool.evict(8) == 1 and pool.known([1] * 64) == 32
    pool.check_integrity()


def test_a_lone_context_may_fill_the_pool_whatever_the_tree_owns():
    pool, copies = cache(4)
    context = filled(pool, [1] * 64)
    pool.publish(context)
    pool.rewind(context, 63)
    write(pool, context, [2])  # the last page is the tree's too and no page is free: the tree gives it up
    assert copies == [] and pool.known([1] * 64) == 48


def test_out_of_memory_in_one_group_changes_neither():
    pool, _ = cache(20, 4, 16)
    context = filled(pool, [1] * 40)
    before = snapshot(pool)
    with pytest.raises(OutOfMemory, match="of 4 in group 1"):
        pool.extend(context, 64)
    with pytest.raises(OutOfMemory, match="of 20 in group 0"):
        pool.allocate([1] * 320)
    assert snapshot(pool) == before


def test_a_failed_copy_changes_nothing():
    def fail(group: int, pairs: object) -> None:
        if group == 1:
            raise LlamayError("lost")

    pool = Cache(10, 10, 16, fail)
    context = filled(pool, [1] * 20)
    (fork,) = pool.fork(context)
    before = snapshot(pool)
    with pytest.raises(LlamayError, match="lost"):
        pool.extend(fork, 20)
    assert snapshot(pool) == before
    pool.check_integrity()


def test_a_window_frees_what_it_has_passed_and_forks_keep_theirs():
    pool, copies = cache(40, 12, 20)
    context = filled(pool, [1] * 40)
    assert (pages(context, 1), context.tables[1].first) == ([0, 1, 2], 1)  # position 40 sees 21 to 40
    (fork,) = pool.fork(context)
    write(pool, context, [2] * 60, chunk=16)
    assert context.tables[1].first == 5 and pages(context, 1)[:5] == [0] * 5 and len(pages(context)) == 7
    assert fork.tables[1].first == 1 and pages(fork, 1)[1:] == [1, 2]
    assert [group for group, *_ in copies] == [0, 1]  # the first write copied one page of each group
    write(pool, fork, [3])
    assert len(copies) == 2  # the original has left both
    assert pool.groups[1].pages.free == 12 - 2 - 2


def test_rewind_past_a_freed_window_says_what_to_compute_again():
    pool, _ = cache(40, 12, 20)
    tokens = [token // 16 for token in range(100)]
    context = filled(pool, tokens[:48], chunk=16)
    pool.publish(context)  # with the window before position 48
    write(pool, context, tokens[48:], chunk=16)
    assert pool.recompute_from(context, 99) == 99 and list(pool.rewind(context, 99)) == []
    assert pool.recompute_from(context, 60) == 48
    lost = pool.rewind(context, 60)
    assert list(lost) == tokens[48:60] and context.position == context.room == 48 and len(pages(context)) == 3
    write(pool, context, list(lost))
    assert list(context.tokens) == tokens[:60]
    assert list(pool.rewind(context, 48)) == [] and context.tables[1].first == 1  # exactly where the tree has it
    lost = pool.rewind(context, 30)  # no prefix below 48 has a window
    assert list(lost) == tokens[:30] and context.position == 0
    assert list(pool.rewind(context, 0)) == []


def test_a_prefix_is_known_as_far_as_its_window_is_whole():
    pool, _ = cache(40, 12, 20)
    context = filled(pool, [1] * 96, chunk=16)
    pool.publish(context)
    assert [pool.known([1] * count) for count in (96, 95, 0)] == [96, 0, 0]
    early = filled(pool, [1] * 32)
    assert pool.publish(early) == 0  # known, but a hole is filled
    assert [pool.known([1] * count) for count in (96, 95, 32, 31)] == [96, 32, 32, 16]
    match, count = pool.match([1] * 96)
    assert count == 96 and match.tables[1].first == 4 and pages(match, 1)[4:] == pages(context, 1)[4:]


def test_the_tree_gives_up_windows_but_keeps_the_rest():
    pool, _ = cache(40, 4, 32)
    context = filled(pool, [1] * 64, chunk=16)
    pool.publish(context)
    pool.drop(context)
    new = filled(pool, [2] * 32)
    assert pool.known([1] * 64) == 64
    write(pool, new, [2] * 16)
    assert pool.known([1] * 64) == 0 and pool.stats().nodes == 1 and pool.stats().groups[0].tree == 4


def test_windows_go_from_the_least_recently_used_prefix_its_first_page_first():
    pool, _ = cache(40, 12, 64)
    for end in (2, 3):
        context = filled(pool, [1] * 32 + [end] * 16)
        pool.publish(context)
        pool.drop(context)
    pool.drop(pool.match([1] * 32 + [2] * 16)[0])
    assert pool.evict(1, group=1) == 1 and pool.known([1] * 32 + [3] * 16) == 32
    assert pool.evict(1, group=1) == 1 and pool.known([1] * 16) == 0
    assert pool.stats().groups[0].tree == 4


def test_a_hole_anywhere_in_the_window_ends_what_is_known():
    pool, _ = cache(40, 12, 18)
    context = filled(pool, [1] * 64)
    pool.publish(context)  # position 64 sees 47 to 63: one token of page 2, and page 3
    pool.drop(context)
    assert pool.known([1] * 64) == 64 and pool.evict(1, group=1) == 1
    assert pool.known([1] * 64) == 0 and pool.stats().groups[1].tree == 1


def test_a_lone_context_may_fill_the_window_pool_too():
    pool, copies = cache(20, 2, 32)
    context = filled(pool, [1] * 32)
    pool.publish(context)
    pool.rewind(context, 31)
    write(pool, context, [2])
    assert copies == [(0, 1, 2)] and pool.stats().groups[1].both == 0  # only there the pool was full


def test_a_split_leaves_windows_with_the_half_they_are_in():
    pool, _ = cache(40, 12, 64)
    context = filled(pool, [1] * 64)
    pool.publish(context)
    pool.rewind(context, 32)
    assert pool.evict(2, group=1) == 2  # the lower half's, which nobody else has
    assert pool.match([1] * 32 + [2] * 16)[1] == 32
    pool.check_integrity()
    assert pool.stats().nodes == 2
    pool, _ = cache(40, 12, 20)
    for end in (2, 3):
        pool.publish(filled(pool, [1] * 32 + [end] * 64, chunk=16))  # no window is left in what they share
        pool.check_integrity()
    assert pool.stats().nodes == 3


def test_allocate_gives_pages_of_its_own():
    pool, _ = cache(40, 12, 20)
    context = pool.allocate([1] * 40)
    assert (context.position, context.room, len(pages(context)), context.tables[1].first) == (40, 40, 3, 1)
    assert pool.groups[1].pages.free == 10
    pool.check_integrity()
    write(pool, context, [1] * 8)
    assert pool.publish(context) == 3 and pool.known([1] * 48) == 48
    assert pool.allocate([]).position == 0
    pool.check_integrity()


def test_the_same_calls_give_the_same_pages():
    def play() -> object:
        pool, copies = cache(12, 8, 20)
        context = filled(pool, list(range(50)), chunk=16)
        pool.publish(context)
        forks = pool.fork(context, 3)
        for number, fork in enumerate(forks):
            write(pool, fork, [number] * 5)
        pool.drop(forks[1])
        pool.rewind(context, 20)
        write(pool, context, [4] * 30, chunk=16)
        return snapshot(pool), copies

    assert play() == play()


def test_dropped_and_foreign_contexts_are_refused():
    pool, _ = cache(4)
    other, _ = cache(4)
    context = filled(pool, [1] * 20)
    (fork,) = pool.fork(context)
    pool.drop(context)
    pool.drop(context)
    assert pool.groups[0].pages.free == 2 and (context.position, context.room, pages(context)) == (0, 0, [])
    for call in (
        lambda: pool.extend(context, 1),
        lambda: pool.commit(context, []),
        lambda: pool.fork(context),
        lambda: pool.rewind(context, 0),
        lambda: pool.publish(context),
        lambda: other.extend(fork, 1),
    ):
        with pytest.raises(UsageError, match=r"context \d is not one of this cache"):
            call()
    other.drop(fork)
    assert pages(fork) == [0, 1]
    pool.drop(fork)
    assert pool.groups[0].pages.free == 4
    pool.check_integrity()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda pool, context: pool.extend(context, 0), "room for 0 tokens"),
        (
            lambda pool, context: pool.commit(context, [1, 2]),
            "2 tokens at position 20 do not fit: .* up to position 21",
        ),
        (lambda pool, context: pool.commit(context, [2**31]), "tokens are ids from 0 to 2147483647"),
        (lambda pool, context: pool.commit(context, ["a"]), "tokens are ids"),
        (lambda pool, context: pool.match([1.5]), "tokens are ids"),
        (lambda pool, context: pool.rewind(context, 21), "has 20 tokens; it cannot go back to 21"),
        (lambda pool, context: pool.rewind(context, -1), "cannot go back to -1"),
        (lambda pool, context: pool.fork(context, -1), "-1 forks"),
        (lambda pool, context: Cache(4, window=3), "3 pages for layers with a window of 0 tokens"),
        (lambda pool, context: Cache(4, span=3), "0 pages for layers with a window of 3 tokens"),
        (lambda pool, context: Cache(0), "a pool of 0 pages"),
    ],
)
def test_refusals(call, words):
    pool, _ = cache(4)
    context = filled(pool, [1] * 20)
    pool.extend(context, 1)
    before = snapshot(pool)
    with pytest.raises(UsageError, match=words):
        call(pool, context)
    assert snapshot(pool) == before
    assert pool.fork(context, 0) == []


def test_tokens_of_any_sequence():
    pool, _ = cache(9)
    context = filled(pool, [5] * 16)
    pool.publish(context)
    for tokens in ((5,) * 16, np.full(16, 5, np.int32), array("i", [5] * 16), iter([5] * 16)):
        assert pool.match(tokens)[1] == 16
    assert pool.stats().counters.found == 64
