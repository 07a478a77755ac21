"""part_norm.wgsl: a norm without weights of each part of a row, in its place."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llamay.tensor import twins

EPS = 1e-5


def part_norm(lab, variant, x, parts, extra=0):
    """x [T, values] of three parts, the last two alike, normed; rows are `extra` floats longer."""
    count, width = x.shape
    rows = lab.poisoned(count, width + extra)
    rows[:, :width] = x
    choices = {**variant.attention, "FIRST": parts[0] // 4, "OTHERS": parts[1] // 4}
    found = lab.run(variant, "part_norm", choices, (3, count, 1), {"x_stride": (width + extra) // 4, "eps": EPS}, {}, {"x": rows})
    assert lab.untouched(found["x"][:, width:])
    return found["x"][:, :width]


def test_by_hand(lab, variant):
    x = np.array([[4, 4, 2, 8, 0, 0, 0, 0, 1, 3, 1, 5]], np.float32)  # root mean squares 5, 0 and 3
    found = part_norm(lab, variant, x, (4, 4, 4))
    np.testing.assert_allclose(found, [[0.8, 0.8, 0.4, 1.6, 0, 0, 0, 0, 1 / 3, 1, 1 / 3, 5 / 3]], rtol=1e-5)


@given(
    count=st.integers(1, 4), first=st.integers(1, 70), others=st.sampled_from([1, 4, 33]), extra=st.sampled_from([0, 4, 28]),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
@settings(max_examples=8)
@example(count=1, first=1, others=1, extra=0, seed=0)
def test_twin(lab, variant, count, first, others, extra, seed):
    random, parts = np.random.default_rng(seed), (4 * first, 4 * others, 4 * others)
    x = (random.standard_normal((count, sum(parts))) * 10 ** random.uniform(-2, 2)).astype(np.float32)
    found = part_norm(lab, variant, x, parts, extra)
    expected = twins.part_norm(x.astype(np.float64), parts, EPS)
    lab.close("part_norm", found, expected, np.abs(expected) * 2 + 1e-6)
    for row in range(count):  # alone: the same bits
        assert np.array_equal(part_norm(lab, variant, x[row : row + 1], parts)[0], found[row])
