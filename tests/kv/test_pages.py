"""The pool against a model of counts, and its integrity check against planted faults."""

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from llamay.errors import LlamayError, OutOfMemory, UsageError
from llamay.kv import Pages

COUNT = 12


class Pool(RuleBasedStateMachine):
    """Holders take, share and drop pages; a list of lists says who holds what."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pages(COUNT)
        self.held: list[list[int]] = []

    @rule(number=st.integers(0, 5))
    def take(self, number: int) -> None:
        free = sorted(set(range(COUNT)) - {page for pages in self.held for page in pages})
        if number > len(free):
            with pytest.raises(OutOfMemory, match=f"{len(free)} of {COUNT} are free"):
                self.pool.take(number)
        else:
            taken = self.pool.take(number).tolist()
            assert taken == free[:number]
            self.held.append(taken)

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 99), times=st.integers(1, 3))
    def share(self, which: int, times: int) -> None:
        pages = self.held[which % len(self.held)]
        self.pool.share(pages, times)
        self.held += [list(pages)] * times

    @precondition(lambda self: self.held)
    @rule(which=st.integers(0, 99))
    def drop(self, which: int) -> None:
        self.pool.drop(self.held.pop(which % len(self.held)))

    @invariant()
    def agrees(self) -> None:
        self.pool.check_integrity(self.held)
        assert self.pool.free == COUNT - len({page for pages in self.held for page in pages})


TestPool = Pool.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)


def test_lowest_pages_first():
    pool = Pages(6)
    first, second = pool.take(2), pool.take(2)
    assert (first.tolist(), second.tolist()) == ([0, 1], [2, 3])
    pool.drop(first)
    assert pool.take(3).tolist() == [0, 1, 4] and pool.free == 1


def test_refusals():
    pool = Pages(2)
    with pytest.raises(UsageError, match="pool of 0 pages"):
        Pages(0)
    with pytest.raises(UsageError, match="page 0 is free"):
        pool.drop([0])
    with pytest.raises(UsageError, match="page 1 is free"):
        pool.share([int(pool.take(1)[0]), 1])
    assert pool.owners.tolist() == [1, 0]  # the refused share changed nothing
    for page in (2, -1):
        with pytest.raises(UsageError, match=f"no KV page {page}"):
            pool.drop([page])
    with pytest.raises(ValueError, match="read-only"):
        pool.owners[0] = 2


def test_integrity_finds_planted_faults():
    pool = Pages(3)
    pages = pool.take(2)
    pool.check_integrity([pages])
    with pytest.raises(LlamayError, match="page 0 counts 1 owners, but 2 hold it"):
        pool.check_integrity([pages, [0]])
    with pytest.raises(LlamayError, match="page 1 counts 1 owners, but 0 hold it"):
        pool.check_integrity([[0]])
    for page in (7, -1):
        with pytest.raises(LlamayError, match=f"page {page} is held, but the pool has 3"):
            pool.check_integrity([pages, [page]])
    pool.free = 2
    with pytest.raises(LlamayError, match="counts 2 free KV pages, but 1 have no owner"):
        pool.check_integrity([pages])
    pool.free, pool._lowest = 1, 3
    with pytest.raises(LlamayError, match="below 3 is free"):
        pool.check_integrity([pages])
    assert np.array_equal(pool.owners, [1, 1, 0])
