"""sum_norm.wgsl: h and a branch normed together and added to h, with and without a bias, far from zero too."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llamay.tensor import twins

EPS = 1e-6


def sum_norm(lab, variant, h, y, weight, bias, scale, extra=0):
    """hw [T, width]; rows are `extra` floats longer."""
    count, width = y.shape
    rows = {name: np.full((count, width + extra), np.nan, np.float32) for name in "hy"}
    rows["h"][:, :width], rows["y"][:, :width] = h, y
    read = {**rows, "weight": weight.astype(np.float32)}
    if bias is not None:
        read["bias"] = bias.astype(np.float32)
    dims = {"x_stride": (width + extra) // 4, "width": width, "eps": EPS, "scale": scale}
    choices = {**variant.attention, "bias": bias is not None}
    hw = lab.run(variant, "sum_norm", choices, (1, count, 1), dims, read, {"hw": lab.poisoned(count, width + extra)})["hw"]
    assert lab.untouched(hw[:, width:])
    return hw[:, :width]


def test_by_hand(lab, variant):
    """1, 1, 1, 1 and twice 3, 1, 2, 2 are 7, 3, 5, 5: a mean of 5, a variance of 2."""
    h, y, root = np.ones((1, 4)), np.array([[3, 1, 2, 2]]), 2**0.5
    weight, bias = np.array([1, 1, 2, 3]), np.array([0, 10, 0.5, 1])
    np.testing.assert_allclose(sum_norm(lab, variant, h, y, weight, bias, 2.0), [[1 + root, 11 - root, 1.5, 2]], rtol=1e-5)
    np.testing.assert_allclose(sum_norm(lab, variant, h, y, weight, None, 2.0), [[1 + root, 1 - root, 1, 1]], rtol=1e-5)


@given(
    count=st.integers(1, 5),
    quarters=st.one_of(st.integers(1, 70), st.sampled_from([8, 32, 144, 512])),
    far=st.sampled_from([0.0, 1.0, 100.0]),
    biased=st.booleans(),
    extra=st.sampled_from([0, 4, 28]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=12)
@example(count=1, quarters=1, far=0.0, biased=True, extra=0, seed=0)
def test_twin(lab, variant, count, quarters, far, biased, extra, seed):
    random, width = np.random.default_rng(seed), 4 * quarters
    h, y = (random.standard_normal((2, count, width)) + far).astype(np.float32)
    weight, bias = random.standard_normal((2, width)).astype(np.float32)
    scale, wide = float(np.float32(random.uniform(0.5, 2))), weight.astype(np.float64)
    found = sum_norm(lab, variant, h, y, weight, bias if biased else None, scale, extra)
    both = h.astype(np.float64), y.astype(np.float64)
    expected = twins.sum_norm(*both, wide, bias.astype(np.float64) if biased else None, EPS, scale)
    spread = (both[0] + both[1] * scale).std(axis=-1, keepdims=True) + EPS**0.5
    lab.close("sum_norm", found, expected, np.abs(expected) + np.abs(h) + np.abs(wide) * (4 + 4 * far / spread))
    for row in range(count):  # alone: the same bits
        alone = sum_norm(lab, variant, h[row : row + 1], y[row : row + 1], weight, bias if biased else None, scale)
        assert np.array_equal(alone[0], found[row])
