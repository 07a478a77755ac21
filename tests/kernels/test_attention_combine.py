"""attention_combine.wgsl on its own: shares by hand, splits that saw nothing, far apart maxima, one order."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from llamay.tensor import twins

SPLIT = 32


def combine(lab, variant, parts, stats, positions):
    """out [T, heads, head_dim] of parts [split, T, heads, head_dim] and stats [split, T, heads, 2]."""
    _, count, heads, head_dim = parts.shape
    state = np.zeros(2 + 4 * count, np.uint32)
    state[3::4] = positions
    stride = lab.up(heads * head_dim, 32) + 32
    shape = {"M": 1, "S": variant.launch.attention_lanes, "D4": head_dim // 4, "SPLIT": SPLIT}
    out = lab.run(
        variant, "attention_combine", shape, (heads, count, 1), {"rows_at": 2, "heads": heads, "y_stride": stride // 4},
        {"state": state, "parts": parts.astype(np.float32), "stats": stats.astype(np.float32)},
        {"out": lab.poisoned(count, stride)},
    )["out"]  # fmt: skip
    assert lab.untouched(out[:, heads * head_dim :])
    return out[:, : heads * head_dim].reshape(count, heads, head_dim)


def test_by_hand(lab, variant):
    """Weights e^0 * 1 and e^(ln 1/3) * 3: equal halves."""
    parts = np.array([[1, 2, 3, 4], [6, 9, 12, 0], [np.nan] * 4]).reshape(3, 1, 1, 4)
    stats = np.array([[0, 1], [-np.log(3), 3], [np.nan] * 2]).reshape(3, 1, 1, 2)
    out = combine(lab, variant, parts, stats, [SPLIT])  # position 32 is in the second split; the third is not its
    np.testing.assert_allclose(out[0, 0], [1.5, 2.5, 3.5, 2], rtol=1e-6)


@given(
    count=st.integers(1, 4), heads=st.integers(1, 5), head_dim=st.sampled_from([4, 20, 64, 132]), splits=st.integers(1, 9),
    apart=st.sampled_from([1.0, 30.0, 200.0]), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
@settings(max_examples=12)
def test_twin(lab, variant, count, heads, head_dim, splits, apart, seed):
    random = np.random.default_rng(seed)
    head_dim = {4: 4, 20: 20, 64: 64, 132: 132}[head_dim] if variant.name == "own" else 64  # or compiling takes long
    positions = random.integers((splits - 1) * SPLIT, splits * SPLIT, count)
    peaks = (random.standard_normal((splits, count, heads)) * apart).astype(np.float32)
    totals = random.uniform(1, SPLIT, (splits, count, heads)).astype(np.float32)
    parts = (random.standard_normal((splits, count, heads, head_dim)) * totals[..., None]).astype(np.float32)
    blind = random.random((splits, count, heads)) < 0.3  # a split before the window
    blind[-1] = False  # each position sees itself
    peaks[blind], totals[blind], parts[blind] = -3e38, 0, 0
    found = combine(lab, variant, parts, np.stack([peaks, totals], -1), positions)
    wide = [
        twins.Partial(*(array[s].astype(np.float64)[..., None] for array in (peaks, totals)), parts[s].astype(np.float64))
        for s in range(splits)
    ]
    expected = twins.attention_combine(wide)
    size = np.abs(parts / np.maximum(totals, 1e-9)[..., None]).max((0, -1))[..., None]
    lab.close("attention_combine", found, expected, size * max(1.0, apart / 10))
    seen = [s for s in range(splits) if not blind[s].all()]
    if splits > 1 and len(seen) < splits:  # a split that nobody sees adds exactly nothing
        shift = positions - (splits - len(seen)) * SPLIT
        fewer = combine(lab, variant, parts[seen], np.stack([peaks, totals], -1)[seen], shift)
        assert np.array_equal(fewer, found)
