"""The pool and its tables against a model of counts, and the integrity check against planted faults."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from llamay.errors import LlamayError, OutOfMemory, UsageError
from llamay.kv import Pages, Table
from llamay.tensor.batch import PAGE

COUNT = 12


class Pool(RuleBasedStateMachine):
    """Tables grow, shrink and go, pages are shared and dropped; a list of lists says who holds what."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pages(COUNT)
        self.tables: list[Table] = []
        self.shares: list[list[int]] = []

    def held(self) -> list[list[int]]:
        return [list(table.pages) for table in self.tables] + self.shares

    @rule()
    def open(self) -> None:
        self.tables.append(Table(self.pool))

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 99), positions=st.integers(0, 5 * PAGE))
    def ensure(self, which: int, positions: int) -> None:
        table = self.tables[which % len(self.tables)]
        before, free = table.pages, self.pool.free
        needed = max(0, -(-positions // PAGE) - len(before))
        if needed > free:
            with pytest.raises(OutOfMemory, match=f"{free} of {COUNT} are free"):
                table.ensure(positions)
            assert table.pages == before and self.pool.free == free
        else:
            table.ensure(positions)
            assert table.pages[: len(before)] == before and len(table.pages) == len(before) + needed
            assert table.positions >= positions

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 99), positions=st.integers(0, 5 * PAGE))
    def truncate(self, which: int, positions: int) -> None:
        table = self.tables[which % len(self.tables)]
        before = table.pages
        table.truncate(positions)
        assert table.pages == before[: -(-positions // PAGE)]

    @precondition(lambda self: self.tables)
    @rule(which=st.integers(0, 99))
    def drop(self, which: int) -> None:
        table = self.tables.pop(which % len(self.tables))
        table.drop()
        table.drop()
        assert table.pages == () and len(table.array) == 0

    @precondition(lambda self: any(table.pages for table in self.tables))
    @rule(which=st.integers(0, 99))
    def share(self, which: int) -> None:
        full = [table for table in self.tables if table.pages]
        pages = list(full[which % len(full)].pages)
        self.pool.share(pages)
        self.shares.append(pages)

    @precondition(lambda self: self.shares)
    @rule(which=st.integers(0, 99))
    def unshare(self, which: int) -> None:
        self.pool.drop(self.shares.pop(which % len(self.shares)))

    @invariant()
    def agrees(self) -> None:
        held = self.held()
        self.pool.check_integrity(held)
        assert self.pool.free == COUNT - len({page for pages in held for page in pages})
        for table in self.tables:
            table.check_integrity()
            assert table.array.tolist() == list(table.pages)


TestPool = Pool.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_lowest_pages_first():
    pool = Pages(6)
    first, second = pool.take(2), pool.take(2)
    assert (first, second) == ([0, 1], [2, 3])
    pool.drop(first)
    assert pool.take(3) == [0, 1, 4] and pool.free == 1


def test_refusals():
    pool = Pages(2)
    with pytest.raises(UsageError, match="pool of 0 pages"):
        Pages(0)
    with pytest.raises(UsageError, match="page 0 is free"):
        pool.drop([0])
    with pytest.raises(UsageError, match="page 1 is free"):
        pool.share([pool.take(1)[0], 1])
    assert pool.owners(0) == 1  # the refused share changed nothing
    with pytest.raises(UsageError, match="no KV page 2"):
        pool.owners(2)


def test_integrity_finds_planted_faults():
    pool = Pages(3)
    table = Table(pool)
    table.ensure(2 * PAGE)
    pool.check_integrity([table.pages])
    with pytest.raises(LlamayError, match="page 0 counts 1 owners, but 2 hold it"):
        pool.check_integrity([table.pages, [0]])
    with pytest.raises(LlamayError, match="page 1 counts 1 owners, but 0 hold it"):
        pool.check_integrity([[0]])
    with pytest.raises(LlamayError, match="page 7 is held, but the pool has 3"):
        pool.check_integrity([table.pages, [7]])
    table._array[0] = 2
    with pytest.raises(LlamayError, match="array is"):
        table.check_integrity()
    table._array[0] = 0
    pool.drop([1])
    with pytest.raises(LlamayError, match="page 1, which is free"):
        table.check_integrity()
