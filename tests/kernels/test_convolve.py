"""convolve.wgsl: a state space's inputs convolved, those before the step taken from pages, those of the step left there."""

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llamay.tensor import twins

BEFORE, BEHIND = 4, 8  # floats of a row of inputs, and values of a page's token, that are others'


def convolve(lab, variant, pool, raw, taps, bias, runs, earlier, after=()):
    """What is convolved [T, channels], and which rows go on from their page's state.

    Runs are (sequence, first, count), `earlier` inputs by sequence, and `after` how many tokens the state is after of
    the page of a run's first token, where that is known.
    """
    (taken, channels), rows = taps.shape, len(raw)
    positions = np.concatenate([np.arange(first, first + count) for _, first, count in runs])
    sequences = np.concatenate([np.full(count, sequence) for sequence, _, count in runs])
    state, where = pool.state(positions, sequences, rows, windowed=1)
    wide = np.full((rows, channels + BEFORE), np.nan, np.float32)
    wide[:, BEFORE:] = raw
    kept = channels + BEHIND
    tokens = lab.poisoned(pool.pages, 16 * kept + 4)
    for sequence, inputs in earlier.items():
        for at, values in enumerate(inputs):
            tokens[pool.tables[sequence][at // 16], at % 16 * kept :][:channels] = values
    for (sequence, first, _), count in zip(runs, after, strict=False):
        tokens[pool.tables[sequence][first // 16], 16 * kept] = count
    lanes, each = 64, 4 if variant.launch.broadcast else 1
    choices = {
        "S": lanes, "K": taken, "CHANNELS": channels, "KEPT": kept, "STRIDE": channels + BEFORE, "INPUTS_AT": BEFORE,
        "MIXED": channels + 3, "GOING_AT": channels + 1, "EACH": each,
    }  # fmt: skip
    read = {"state": state, "raw": wide, "taps": np.concatenate([taps, bias[None]]).astype(np.float32)}
    write = {"mixed": lab.poisoned(rows, channels + 3), "tokens": tokens}
    found = lab.run(variant, "convolve", choices, (-(-channels // (lanes * each)), rows, 1), where, read, write)
    assert lab.untouched(found["mixed"][:, [channels, channels + 2]])
    for row, (sequence, position) in enumerate(zip(sequences, positions, strict=True)):
        page, at = pool.tables[sequence][position // 16], position % 16 * kept
        assert np.array_equal(found["tokens"][page, at : at + channels], raw[row].astype(np.float32)), "what tokens to come need"
        tokens[page, at : at + channels] = found["tokens"][page, at : at + channels]
    assert np.array_equal(found["tokens"].view(np.uint32), tokens.view(np.uint32)), "and nothing else"
    return found["mixed"][:, :channels], found["mixed"][:, channels + 1].tolist()


def test_by_hand(lab, pool, variant):
    """Two channels, three taps: the first token sees itself alone, the next those before it."""
    raw, taps = np.array([[1, 10], [2, 20], [3, 30]]), np.array([[1, 0], [10, 0], [100, 1]])
    found, going = convolve(lab, variant, pool(1, 4, [3], np.random.default_rng(0)), raw, taps, np.array([0, -10]), [(0, 0, 3)], {})
    assert going == [0, 0, 0]  # nothing stands before a first token
    np.testing.assert_allclose(found, [[100, 0], [210, 10 / (1 + np.exp(-10.0))], [321, 20]], rtol=1e-6)


def test_who_goes_on_from_the_state_of_its_page(lab, pool, variant):
    """The first row of a run whose page has the state after just those tokens of it that stand before."""
    runs, after = [(0, 5, 2), (1, 21, 1), (2, 16, 1), (3, 3, 2), (4, 18, 1)], [5, 5, 16, 4, np.nan]
    pages = pool(1, 4, [first + count for _, first, count in runs], np.random.default_rng(1))
    earlier = {sequence: np.zeros((first, 1)) for sequence, first, _ in runs}
    _, going = convolve(lab, variant, pages, np.zeros((7, 1)), np.ones((2, 1)), np.zeros(1), runs, earlier, after)
    assert going == [1, 0, 1, 0, 0, 0, 0]


@settings(max_examples=6)
@given(
    runs=st.lists(st.tuples(st.integers(0, 37), st.integers(1, 20)), min_size=1, max_size=3), taken=st.integers(2, 6),
    channels=st.integers(1, 70), seed=st.integers(0, 2**32 - 1),
)  # fmt: skip
@example(runs=[(16, 1), (1, 1), (2, 17)], taken=4, channels=8, seed=0)
def test_twin(lab, pool, variant, runs, taken, channels, seed):
    random = np.random.default_rng(seed)
    pages = pool(1, 4, [first + count for first, count in runs], random)
    inputs = [random.standard_normal((first + count, channels)).astype(np.float32) for first, count in runs]
    taps, bias = random.standard_normal((taken, channels)), random.standard_normal(channels)
    raw = np.concatenate([part[first:] for part, (first, _) in zip(inputs, runs, strict=True)])
    earlier = {n: part[:first] for n, (part, (first, _)) in enumerate(zip(inputs, runs, strict=True))}
    found, _ = convolve(lab, variant, pages, raw, taps, bias, [(n, *run) for n, run in enumerate(runs)], earlier)
    taps, bias, at = taps.astype(np.float32).astype(np.float64), bias.astype(np.float32).astype(np.float64), 0
    for part, (first, count) in zip(inputs, runs, strict=True):
        padded = np.concatenate([np.zeros((taken - 1, channels)), part.astype(np.float64)])
        expected = twins.convolve(padded[first + taken - 1 :], padded[first : first + taken - 1], taps, bias)
        size = np.abs(padded).max() * np.abs(taps).sum(axis=0) + np.abs(bias) + 1
        lab.close("convolve", found[at : at + count], expected, size)
        at += count
