"""expert_add.wgsl: the weighted sum of what experts gave, with and without a shared one."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llamay.tensor import twins


def expert_add(lab, variant, parts, weights, next, h, scale, partials, shared=None, extra=0):
    """(h, hw, sums) of parts [T, used, width]; rows are `extra` floats longer than the width."""
    count, used, width = parts.shape
    stride = width + extra
    before, y = lab.poisoned(count, stride), np.full((count * used, stride), np.nan, np.float32)
    before[:, :width], y[:, :width] = h, parts.reshape(-1, width)
    read = {"y": y, "weights": weights.astype(np.float32), "next": next.astype(np.float32)}
    if shared is not None:
        read["shared_y"] = np.full((count, stride), np.nan, np.float32)
        read["shared_y"][:, :width] = shared
    dims = {"x_stride": stride // 4, "y_stride": stride // 4, "partials": partials, "width": width, "scale": scale}
    write = {"h": before, "hw": lab.poisoned(count, stride), "sums": lab.poisoned(count, partials)}
    choices = {**variant.attention, "used": used, "shared": shared is not None}
    found = lab.run(variant, "expert_add", choices, (1, count, 1), dims, read, write)
    assert lab.untouched(found["h"][:, width:]) and lab.untouched(found["hw"][:, width:])
    return found["h"][:, :width], found["hw"][:, :width], found["sums"]


def test_by_hand(lab, variant):
    parts = np.array([[[1, 2, 3, 4], [10, 10, 0, 0]]])
    h, hw, sums = expert_add(lab, variant, parts, np.array([[2, 0.5, 3]]), np.array([1, 2, 1, 1]), [[1, 1, 1, 1]], 2, 3)
    assert h.tolist() == [[15, 19, 13, 17]] and hw.tolist() == [[15, 38, 13, 17]]
    assert sums.tolist() == [[15**2 + 19**2 + 13**2 + 17**2, 0, 0]]
    h, _, _ = expert_add(
        lab, variant, parts, np.array([[2, 0.5, 3]]), np.ones(4), [[1, 1, 1, 1]], 2, 3, shared=[[1, 0, 0, -1]]
    )
    assert h.tolist() == [[21, 19, 13, 11]]


@pytest.mark.parametrize("shared", [False, True])
def test_twin(lab, variant, shared):
    if variant.name != "own" and not shared:
        return  # compiling is what this costs

    @settings(max_examples=8)
    @given(
        count=st.integers(1, 4), used=st.sampled_from([1, 8] if variant.name == "own" else [8]), quarters=st.sampled_from([1, 8, 33, 144]),
        partials=st.integers(1, 9), extra=st.sampled_from([0, 4, 28]), seed=st.integers(0, 2**32 - 1),
    )  # fmt: skip
    @example(count=1, used=8, quarters=1, partials=1, extra=0, seed=0)
    def check(count, used, quarters, partials, extra, seed):
        random = np.random.default_rng(seed)
        width = 4 * quarters
        parts = random.standard_normal((count, used + shared, width)).astype(np.float32)
        h, next = (random.standard_normal(shape).astype(np.float32) for shape in ((count, width), (width,)))
        weights = random.random((count, used + 1)).astype(np.float32)
        scale = float(np.float32(random.uniform(0.1, 2)))

        def run(rows, extra=extra):
            return expert_add(
                lab, variant, parts[rows, :used], weights[rows], next, h[rows], scale, partials,
                parts[rows, -1] if shared else None, extra,
            )  # fmt: skip

        found, hw, sums = run(slice(None))
        wide = h.astype(np.float64), parts.astype(np.float64), weights.astype(np.float64)
        size = (np.abs(wide[1]) * wide[2][:, : used + shared, None]).sum(1) * scale + np.abs(h)
        lab.close("expert_add", found, twins.expert_add(*wide, scale), size)
        assert np.array_equal(hw, found * next)
        squares = np.square(found.astype(np.float64)).sum(-1)
        lab.close("expert_add", sums[:, 0], squares, squares)
        assert not sums[:, 1:].any()
        for row in range(count):  # alone: the same bits
            alone = run(slice(row, row + 1), 0)
            assert np.array_equal(alone[0][0], found[row]) and np.array_equal(alone[2][0], sums[row])

    check()
