"""short_convolve.wgsl: gated products convolved, those before the step taken from pages, those of the step left there."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llamay.tensor import twins


def convolve(lab, variant, pool, raw, taps, runs, earlier):
    """What is convolved [T, channels] of b, c and x [T, 3, channels].

    Runs are (sequence, first, count), `earlier` the products before them by sequence.
    """
    (taken, channels), rows = taps.shape, len(raw)
    positions = np.concatenate([np.arange(first, first + count) for _, first, count in runs])
    sequences = np.concatenate([np.full(count, sequence) for sequence, _, count in runs])
    state, where = pool.state(positions, sequences, rows, windowed=1)
    stride, out = 3 * channels + 5, channels + 3
    wide = np.full((rows, stride), np.nan, np.float32)
    wide[:, : 3 * channels] = raw.reshape(rows, -1)
    tokens = lab.poisoned(pool.pages, 16 * channels)
    for sequence, products in earlier.items():
        for at, values in enumerate(products):
            tokens[pool.tables[sequence][at // 16], at % 16 * channels :][:channels] = values
    lanes, each = 64, 4 if variant.launch.broadcast else 1
    choices = {"S": lanes, "EACH": each, "K": taken, "KEPT": channels, "STRIDE": stride, "OUT": out}
    read = {"state": state, "raw": wide, "taps": taps.astype(np.float32)}
    write = {"y": lab.poisoned(rows, out), "tokens": tokens}
    found = lab.run(variant, "short_convolve", choices, (-(-channels // (lanes * each)), rows, 1), where, read, write)
    assert lab.untouched(found["y"][:, channels:])
    for row, (sequence, position) in enumerate(zip(sequences, positions, strict=True)):
        page, at = pool.tables[sequence][position // 16], position % 16 * channels
        left = found["tokens"][page, at : at + channels]
        assert np.array_equal(left, wide[row, :channels] * wide[row, 2 * channels : 3 * channels]), "what tokens to come need"
        tokens[page, at : at + channels] = left
    assert np.array_equal(found["tokens"].view(np.uint32), tokens.view(np.uint32)), "and nothing else"
    return found["y"][:, :channels]


def test_by_hand(lab, pool, variant):
    """Two channels, three taps: the first token sees itself alone, the next those before it; c doubles the second channel."""
    b, c, x = [[1, 1], [2, 2], [3, 3]], [[1, 2]] * 3, [[1, 10], [1, 10], [1, 10]]
    raw, taps = np.stack([b, c, x], axis=1), np.array([[1, 0], [10, 0], [100, 1]])
    found = convolve(lab, variant, pool(1, 4, [3], np.random.default_rng(0)), raw, taps, [(0, 0, 3)], {})
    np.testing.assert_allclose(found, [[100, 20], [210, 40], [321, 60]], rtol=1e-6)


@settings(max_examples=6)
@given(
    runs=st.lists(st.tuples(st.integers(0, 37), st.integers(1, 20)), min_size=1, max_size=3), taken=st.integers(2, 6),
    channels=st.integers(1, 70), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
@example(runs=[(16, 1), (1, 1), (2, 17)], taken=3, channels=8, seed=0)
def test_twin(lab, pool, variant, runs, taken, channels, seed):
    random = np.random.default_rng(seed)
    pages = pool(1, 4, [first + count for first, count in runs], random)
    inputs = [random.standard_normal((first + count, 3, channels)).astype(np.float32) for first, count in runs]
    taps = random.standard_normal((taken, channels)).astype(np.float32)
    raw = np.concatenate([part[first:] for part, (first, _) in zip(inputs, runs, strict=True)])
    earlier = {n: part[:first, 0] * part[:first, 2] for n, (part, (first, _)) in enumerate(zip(inputs, runs, strict=True))}
    found, at = convolve(lab, variant, pages, raw, taps, [(n, *run) for n, run in enumerate(runs)], earlier), 0
    for part, (first, count) in zip(inputs, runs, strict=True):
        b, c, x = part.astype(np.float64).transpose(1, 0, 2)
        products = np.concatenate([np.zeros((taken - 1, channels)), b * x])
        wide = taps.astype(np.float64)
        expected = twins.short_convolve(products[first + taken - 1 :], products[first : first + taken - 1], c[first:], wide)
        size = np.abs(products).max() * np.abs(wide).sum(axis=0) * np.abs(c).max()
        lab.close("short_convolve", found[at : at + count], expected, size)
        at += count
