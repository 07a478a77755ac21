"""layer_norm.wgsl: a row's layer norm with and without a bias, of all rows or of the output rows, far from zero too."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llamay.tensor import twins

EPS = 1e-5


def layer_norm(lab, variant, x, weight, bias, outputs=None, extra=0):
    """y [T, width], where rows that are not in `outputs` stay as they were; rows are `extra` floats longer."""
    count, width = x.shape
    rows = np.full((count, width + extra), np.nan, np.float32)
    rows[:, :width] = x
    dims = {"x_stride": (width + extra) // 4, "width": width, "eps": EPS, "outputs_at": 3}
    read = {"x": rows, "weight": weight.astype(np.float32)}
    if bias is not None:
        read["bias"] = bias.astype(np.float32)
    if outputs is not None:
        read["state"] = np.array([7, 7, 7, *outputs], np.uint32)
    chosen = {**variant.attention, "bias": bias is not None, "outputs": outputs is not None}
    groups = (1, count if outputs is None else len(outputs), 1)
    y = lab.run(variant, "layer_norm", chosen, groups, dims, read, {"y": lab.poisoned(count, width + extra)})["y"]
    assert lab.untouched(y[:, width:])
    return y[:, :width]


def test_by_hand(lab, variant):
    x = np.array([[7, 3, 5, 5], [2, 2, 2, 2]])  # a mean of 5 and a variance of 2; nothing but its mean
    weight, bias = np.array([1, 1, 2, 3]), np.array([0, 10, 0.5, 1])
    root = (2 + EPS) ** 0.5
    y = layer_norm(lab, variant, x, weight, bias)
    np.testing.assert_allclose(y, [[2 / root, 10 - 2 / root, 0.5, 1], bias], rtol=1e-6)
    y = layer_norm(lab, variant, x, weight, None)
    np.testing.assert_allclose(y, [[2 / root, -2 / root, 0, 0], [0] * 4], rtol=1e-6)


@given(
    count=st.integers(1, 5),
    quarters=st.one_of(st.integers(1, 70), st.sampled_from([8, 32, 144, 512])),
    far=st.sampled_from([0.0, 1.0, 100.0]),
    biased=st.booleans(),
    picked=st.booleans(),
    extra=st.sampled_from([0, 4, 28]),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=15)
@example(count=1, quarters=1, far=0.0, biased=True, picked=False, extra=0, seed=0)
def test_twin(lab, variant, count, quarters, far, biased, picked, extra, seed):
    """A row `far` deviations from zero loses what its values do not hold, and no more."""
    random = np.random.default_rng(seed)
    width = 4 * quarters
    x = ((random.standard_normal((count, width)) + far) * 10 ** random.uniform(-2, 2)).astype(np.float32)
    weight = random.standard_normal(width).astype(np.float32)
    bias = random.standard_normal(width).astype(np.float32) if biased else None
    outputs = random.permutation(count)[: random.integers(1, count + 1)] if picked else None
    found = layer_norm(lab, variant, x, weight, bias, outputs, extra)
    done = np.arange(count) if outputs is None else outputs
    expected = twins.layer_norm(x.astype(np.float64), weight.astype(np.float64), bias, EPS)[done]
    lab.close("layer_norm", found[done], expected, (np.abs(expected) + np.abs(weight) + 1) * (1 + far))
    assert lab.untouched(np.delete(found, done, axis=0))
    for row in done:  # alone: the same bits
        alone = layer_norm(lab, variant, x[row : row + 1], weight, bias)
        assert np.array_equal(alone[0], found[row])
