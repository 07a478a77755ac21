"""norm_add.wgsl: the residual of blocks with a norm behind the branch, in every way of adding over a workgroup."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llamay.tensor import twins

EPS = 1e-6


def norm_add(lab, variant, y, post, next, h, scale, partials, extra=0):
    """(h, hw, sums); rows are `extra` floats longer than the width."""
    count, width = y.shape
    stride = width + extra
    before = lab.poisoned(count, stride)
    before[:, :width] = h
    branch = np.full((count, stride), np.nan, np.float32)
    branch[:, :width] = y
    dims = {
        "x_stride": stride // 4, "y_stride": stride // 4, "partials": partials, "width": width, "eps": EPS, "scale": scale,
    }  # fmt: skip
    read = {"y": branch, "post": post.astype(np.float32), "next": next.astype(np.float32)}
    write = {"h": before, "hw": lab.poisoned(count, stride), "sums": lab.poisoned(count, partials)}
    found = lab.run(variant, "norm_add", variant.attention, (1, count, 1), dims, read, write)
    assert lab.untouched(found["h"][:, width:]) and lab.untouched(found["hw"][:, width:])
    return found["h"][:, :width], found["hw"][:, :width], found["sums"]


def test_by_hand(lab, variant):
    y = np.array([[3, 4, 0, 0]]) * 2  # root mean square 5
    h, hw, sums = norm_add(lab, variant, y, np.array([1, 5, 1, 1]), np.array([1, 1, 2, 3]), np.array([[1, 1, 1, 0]]), 10, 2)
    np.testing.assert_allclose(h, [[13, 81, 1, 0]], rtol=1e-6)
    np.testing.assert_allclose(hw, [[13, 81, 2, 0]], rtol=1e-6)
    np.testing.assert_allclose(sums, [[13**2 + 81**2 + 1, 0]], rtol=1e-6)


@given(
    count=st.integers(1, 5),
    quarters=st.one_of(st.integers(1, 70), st.sampled_from([8, 32, 144, 512])),
    partials=st.integers(1, 40),
    extra=st.sampled_from([0, 4, 28]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=15)
@example(count=1, quarters=1, partials=1, extra=0, seed=0)
def test_twin(lab, variant, count, quarters, partials, extra, seed):
    random = np.random.default_rng(seed)
    width = 4 * quarters
    y, h = (random.standard_normal((count, width)).astype(np.float32) * 10 ** random.uniform(-3, 1) for _ in range(2))
    post, next = (random.standard_normal(width).astype(np.float32) for _ in range(2))
    scale = float(np.float32(random.uniform(0.1, 2)))
    found, hw, sums = norm_add(lab, variant, y, post, next, h, scale, partials, extra)
    wide = y.astype(np.float64), post.astype(np.float64)
    expected = twins.norm_add(h.astype(np.float64), *wide, EPS, scale)
    lab.close("norm_add", found, expected, np.abs(expected - h) + np.abs(h))
    assert np.array_equal(hw, found * next)
    squares = np.square(found.astype(np.float64)).sum(-1)
    lab.close("norm_add", sums[:, 0], squares, squares)
    assert not sums[:, 1:].any()
    for row in range(count):  # alone: the same bits
        alone = norm_add(lab, variant, y[row : row + 1], post, next, h[row : row + 1], scale, partials)
        assert np.array_equal(alone[0][0], found[row]) and np.array_equal(alone[2][0], sums[row])
