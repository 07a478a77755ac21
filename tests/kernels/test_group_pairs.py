"""group_pairs.wgsl: every pair once, with pairs of its expert alone, in no more groups than there is room for."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llamay.tensor import twins
from llamay.tensor.webgpu.command import groups

NONE = 0xFFFFFFFF


def group_pairs(lab, variant, chosen, experts, size) -> list[list[int]]:
    """The groups of chosen [T, used], without the empty places."""
    count, used = chosen.shape
    most = groups(count * used, experts, size)
    order = lab.run(
        variant, "group_pairs", {"S": 64, "MT": size, "experts": experts, "used": used}, (1, count, 1), {},
        {"chosen": chosen.astype(np.uint32)}, {"order": lab.poisoned(most, size, dtype=np.uint32)},
    )["order"]  # fmt: skip
    for row in order.tolist():
        filled = [pair != NONE for pair in row]
        assert filled == sorted(filled, reverse=True), "what is empty comes last"
    return [[pair for pair in row if pair != NONE] for row in order.tolist()]


def test_by_hand(lab):
    chosen = np.array([[2, 0], [2, 1], [0, 2]])
    found = group_pairs(lab, lab.variant("own"), chosen, 3, 2)
    assert [sorted(group) for group in found[:3]] == [[1, 4], [3], sorted(found[2])]
    assert sorted(found[2] + found[3]) == [0, 2, 5]


@pytest.mark.parametrize("launch", ["own", "portable"])
def test_twin(lab, launch):
    variant = lab.variant(launch)
    shapes = [(8, 2, 4), (130, 5, 8), (4, 4, 2)] if launch == "own" else [(130, 5, 4)]

    @settings(max_examples=12)
    @given(
        shape=st.sampled_from(shapes), count=st.one_of(st.integers(1, 12), st.sampled_from([64, 100])),
        few=st.booleans(), seed=st.integers(0, 2**32 - 1),
    )  # fmt: skip
    @example(shape=shapes[0], count=1, few=False, seed=0)
    @example(shape=shapes[0], count=100, few=True, seed=0)  # all choose the same
    def check(shape, count, few, seed):
        experts, used, size = shape
        random = np.random.default_rng(seed)
        pool = used if few else experts
        chosen = np.stack([random.permutation(pool)[:used] for _ in range(count)])
        found = [group for group in group_pairs(lab, variant, chosen, experts, size) if group]
        expected = twins.group_pairs(chosen, experts, size)
        assert [len(group) for group in found] == [len(group) for group in expected]
        flat = chosen.reshape(-1)
        assert all(len(set(flat[group].tolist())) == 1 for group in found)
        assert sorted(pair for group in found for pair in group) == list(range(count * used))

    check()


@pytest.mark.parametrize(("pairs", "experts", "per", "most"), [(1, 8, 4, 1), (8, 8, 4, 8), (9, 8, 4, 8), (12, 8, 4, 9), (40, 1, 8, 5), (6, 4, 1, 6)])
def test_room(pairs, experts, per, most):
    """The bound is met by the worst choice there is."""
    assert groups(pairs, experts, per) == most
    worst = [1] * min(pairs, experts)
    worst[0] += pairs - len(worst)
    assert sum(-(-count // per) for count in worst) == most
