"""scan.wgsl: the tokens of each sequence in a step through its state, which pages hold, in one order of sums."""

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llamay.tensor import twins

CHANNELS = 5  # values before x of a page's token
SHAPES = ((4, 16, 2, 12, True), (40, 1, 1, 16, False), (3, 8, 1, 36, True))  # heads, channels of each, groups, states, alike


def space(random, heads, wide, groups, states, shared_decay):
    """What a scan needs of a Scan: `wide` channels a head."""
    decay = -np.exp(random.uniform(-2, 1, (1 if shared_decay else states, heads))).astype(np.float32)
    skip, bias = random.standard_normal((2, heads)).astype(np.float32)
    return SimpleNamespace(
        inner=heads * wide, heads=heads, groups=groups, states=states, decay=decay, skip=skip, step_bias=bias
    )


class Tokens:
    """What the dispatches before leave of a sequence: x, raw steps, B, C, z of all its tokens."""

    def __init__(self, op, count, random):
        self.x, self.z = random.standard_normal((2, count, op.inner)).astype(np.float32)
        self.d = random.uniform(-9, 3, (count, op.heads)).astype(np.float32)
        self.b, self.c = random.standard_normal((2, count, op.groups, op.states)).astype(np.float32)
        self.d[0, 0] = 25.0  # beyond where softplus is its argument


class Pages:
    """The pages of some sequences on the host, of which steps leave what the next ones need."""

    def __init__(self, lab, pool, op):
        self.lab, self.pool, self.op = lab, pool, op
        self.states = lab.poisoned(pool.pages, op.inner * op.states + 16 * op.groups * op.states)
        self.kept = CHANNELS + op.inner + op.heads
        self.tokens = lab.poisoned(pool.pages, 16 * self.kept + 4)

    def step(self, variant, texts, runs):
        """y [T, inner] of runs (sequence, first, count) of tokens, all of whose predecessors were steps before."""
        op, lab, shared = self.op, self.lab, self.op.groups * self.op.states
        of = [np.arange(first, first + count) for _, first, count in runs]
        sequences = np.concatenate([np.full(count, sequence) for sequence, _, count in runs])
        state, where = self.pool.state(np.concatenate(of), sequences, len(sequences))

        def all_of(name):
            parts = [getattr(texts[s], name)[rows] for (s, _, _), rows in zip(runs, of, strict=True)]
            return np.concatenate(parts).reshape(len(sequences), -1)

        raw = np.concatenate([all_of("d"), np.full((len(sequences), 3), np.nan), all_of("z")], axis=1).astype(np.float32)
        mixed = np.concatenate([all_of("x"), np.full((len(sequences), 2), np.nan)], axis=1).astype(np.float32)
        starts = np.cumsum([0, *(count for _, _, count in runs)])[:-1]
        for row, (sequence, first, _) in zip(starts, runs, strict=True):  # as `convolve` finds it
            after = self.tokens[self.pool.tables[sequence][first // 16], 16 * self.kept]
            mixed[row, op.inner + 1] = first % 16 > 0 and after == first % 16
        beside = np.concatenate([np.full((len(sequences), 4), np.nan), all_of("b"), all_of("c")], axis=1).astype(np.float32)
        lanes = 64
        choices = {
            "S": lanes, "CHANNELS": CHANNELS, "KEPT": self.kept, "broadcast": variant.launch.broadcast, "GOING_AT": op.inner + 1, "STRIDE": raw.shape[1], "MIXED": mixed.shape[1],
            "N4": op.states // 4, "INNER": op.inner, "HEADS": op.heads, "GROUPS": op.groups, "DECAYS": len(op.decay),
            "SHARED": shared, "SHARED_STRIDE": beside.shape[1] // 4, "SHARED_AT": 1, "GATE_AT": op.heads + 3,
            "STEPS_AT": 0, "OUT": op.inner + 2,
        }  # fmt: skip
        read = {
            "state": state, "raw": raw, "mixed": mixed, "shared_of": beside,
            "numbers": np.concatenate([op.decay.reshape(-1), op.skip, op.step_bias]),
        }  # fmt: skip
        write = {"y": lab.poisoned(len(sequences), op.inner + 2), "states": self.states, "tokens": self.tokens}
        groups = (-(-op.inner // lanes), len(sequences), 1)
        found = lab.run(variant, "scan", choices, groups, where, read, write)
        self.states, self.tokens = found["states"], found["tokens"]
        assert lab.untouched(found["y"][:, op.inner :])
        assert lab.untouched(self.tokens[:, : 16 * self.kept].reshape(-1, self.kept)[:, :CHANNELS])
        return found["y"][:, : op.inner]

    def state(self, sequence, page):
        """[inner, states] of a page of a sequence, and how many of its tokens that is after."""
        at = self.pool.tables[sequence][page]
        turned = self.states[at, : self.op.inner * self.op.states].reshape(-1, self.op.inner, 4).transpose(1, 0, 2)
        return turned.reshape(self.op.inner, -1), self.tokens[at, 16 * self.kept]


def expected(op, text):
    """y of all tokens of a text, the magnitudes summed for it, and the state after each token."""
    x, z, d, b, c = (getattr(text, name).astype(np.float64) for name in "xzdbc")
    d, state, size, states = twins.softplus(d + op.step_bias), np.zeros((op.inner, op.states)), 0, []
    y, sizes = np.empty_like(x), np.empty_like(x)
    absolute = SimpleNamespace(**{**vars(op), "skip": np.abs(op.skip)})
    magnitude = np.zeros_like(state)
    for t in range(len(x)):
        one = slice(t, t + 1)
        y[one] = twins.scan(state, x[one], d[one], (b[one], c[one]), z[one], op)
        states.append(state.copy())
        ones = np.ones_like(z[one])
        size = twins.scan(magnitude, np.abs(x[one]), d[one], (np.abs(b[one]), np.abs(c[one])), ones, absolute)
        sizes[one] = size / twins.silu(ones) * np.abs(twins.silu(z[one])) + 1e-3
    return y, sizes, states


@pytest.mark.parametrize("softly", [False, True])
def test_by_hand(lab, pool, variant, softly):
    """One channel: steps of 1 decay by half, or of next to nothing keep nothing of x; C and the gate read what there is."""
    op = SimpleNamespace(inner=1, heads=1, groups=1, states=4)
    op.decay = np.full((4, 1), -np.log(2), np.float32)
    op.skip, op.step_bias = np.array([10], np.float32), np.array([0], np.float32)
    text = Tokens(op, 2, np.random.default_rng(0))
    text.x, text.z = np.array([[1], [2]], np.float32), np.full((2, 1), 30, np.float32)  # silu(30) is 30
    text.d[:] = -16 if softly else np.log(np.e - 1)  # softplus: 1.125e-7, 1
    text.b = text.c = np.ones((2, 1, 4), np.float32)
    y = Pages(lab, pool(1, 4, [2], np.random.default_rng(1)), op).step(variant, [text], [(0, 0, 2)])
    kept = np.array([4.0, 4 * 0.5 + 8]) if not softly else 4 * 1.12535162e-7 * np.array([1, 3])
    np.testing.assert_allclose(y[:, 0] / 30 - [10, 20], kept, rtol=2e-6, atol=4e-6)


@settings(max_examples=6)
@given(cuts=st.lists(st.integers(1, 20), min_size=1, max_size=4), shape=st.sampled_from(SHAPES), seed=st.integers(0, 2**32 - 1))
@example(cuts=[16, 1, 15, 3], shape=SHAPES[0], seed=0)
@example(cuts=[1, 1, 1], shape=SHAPES[1], seed=1)
@example(cuts=[5, 12, 4], shape=SHAPES[2], seed=2)
def test_twin(lab, pool, variant, cuts, shape, seed):
    """Two sequences in steps cut anywhere, beside each other; the same bits as in one step alone."""
    random, length = np.random.default_rng(seed), sum(cuts)
    op = space(random, *shape)
    lengths = [length, max(1, length - 7)]
    texts = [Tokens(op, count, random) for count in lengths]
    pages, whole = (Pages(lab, pool(1, 4, lengths, random), op) for _ in range(2))
    at, found = 0, [[], []]
    for cut in cuts:
        runs = [(s, at, min(cut, lengths[s] - at)) for s in (1, 0) if at < lengths[s]]
        rows = np.split(pages.step(variant, texts, runs), np.cumsum([count for _, _, count in runs])[:-1])
        for (sequence, _, _), part in zip(runs, rows, strict=True):
            found[sequence].append(part)
        at += cut
    for sequence, text in enumerate(texts):
        y, sizes, states = expected(op, text)
        together = np.concatenate(found[sequence])
        lab.close("scan", together, y, sizes)
        alone = whole.step(variant, texts, [(sequence, 0, lengths[sequence])])
        assert np.array_equal(alone, together)
        for page, first in enumerate(range(0, lengths[sequence], 16)):
            last = min(first + 16, lengths[sequence])
            kept, after = pages.state(sequence, page)
            assert after == last - first and np.array_equal(kept, whole.state(sequence, page)[0])
            wanted = states[last - 1]
            np.testing.assert_allclose(kept, wanted, rtol=1e-3, atol=1e-4 * max(1.0, np.abs(wanted).max()))


def test_back_within_a_page(lab, pool, variant):
    """Where the page has the state of a later token, that of the page before and the tokens kept since give the same bits."""
    random = np.random.default_rng(3)
    op = space(random, *SHAPES[0])
    text, pages = Tokens(op, 40, random), Pages(lab, pool(1, 4, [40], random), op)
    y = pages.step(variant, [text], [(0, 0, 40)])
    for first, count in ((37, 3), (33, 1), (34, 6), (32, 8), (39, 1), (35, 1)):
        assert np.array_equal(pages.step(variant, [text], [(0, first, count)]), y[first : first + count]), first
    assert pages.state(0, 2)[1] == 4
