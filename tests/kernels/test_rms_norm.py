"""rms_norm.wgsl: the norm of a part of each row, into rows of another length."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llamay.tensor import twins

EPS = 1e-5


def rms_norm(lab, variant, x, weight, extra=0, wide=0):
    """y [T, width] of rows of x that are `extra` floats longer, in rows that are `wide` longer."""
    count, width = x.shape
    rows = np.full((count, width + extra), np.nan, np.float32)
    rows[:, :width] = x
    dims = {"x_stride": (width + extra) // 4, "y_stride": (width + wide) // 4, "width": width, "eps": EPS}
    read = {"x": rows, "weight": weight.astype(np.float32)}
    write = {"y": lab.poisoned(count, width + wide)}
    y = lab.run(variant, "rms_norm", variant.attention, (1, count, 1), dims, read, write)["y"]
    assert lab.untouched(y[:, width:])
    return y[:, :width]


def test_by_hand(lab, variant):
    x = np.array([[4, 4, 2, 8], [0, 0, 0, 0]])  # a root mean square of 5
    y = rms_norm(lab, variant, x, np.array([1, 0.5, 2, 1]))
    np.testing.assert_allclose(y, [[0.8, 0.4, 0.8, 1.6], [0] * 4], rtol=1e-6)


@given(
    count=st.integers(1, 4), quarters=st.integers(1, 70), extra=st.sampled_from([0, 4, 28]), wide=st.sampled_from([0, 8]),
    seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
@settings(max_examples=8)
@example(count=1, quarters=1, extra=0, wide=0, seed=0)
def test_twin(lab, variant, count, quarters, extra, wide, seed):
    random = np.random.default_rng(seed)
    x = (random.standard_normal((count, 4 * quarters)) * 10 ** random.uniform(-2, 2)).astype(np.float32)
    weight = random.standard_normal(4 * quarters).astype(np.float32)
    found = rms_norm(lab, variant, x, weight, extra, wide)
    expected = twins.rms_norm(x.astype(np.float64), weight.astype(np.float64), EPS)
    lab.close("rms_norm", found, expected, np.abs(expected) * 2 + 1e-6)
    for row in range(count):  # alone: the same bits
        assert np.array_equal(rms_norm(lab, variant, x[row : row + 1], weight)[0], found[row])


@given(parts=st.integers(1, 3), quarters=st.integers(1, 40), seed=st.integers(0, 2**32 - 1))
@settings(max_examples=4)
def test_parts_side_by_side(lab, variant, parts, quarters, seed):
    """Each part of a row is normed for itself, with weights of its own, to the bits it has alone."""
    random, width = np.random.default_rng(seed), 4 * quarters
    x = random.standard_normal((2, parts, width)).astype(np.float32)
    weight = random.standard_normal((parts, width)).astype(np.float32)
    dims = {"x_stride": parts * quarters, "y_stride": parts * quarters, "width": width, "eps": EPS}
    write = {"y": lab.poisoned(2, parts, width)}
    found = lab.run(variant, "rms_norm", variant.attention, (parts, 2, 1), dims, {"x": x, "weight": weight}, write)["y"]
    for part in range(parts):
        assert np.array_equal(found[:, part], rms_norm(lab, variant, x[:, part], weight[part]))
