"""linear.wgsl: every tensor type, launch and number of tokens against the float64 twin, and equal bits among them."""

import os
from random import Random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llamay.quant import LAYOUTS, TensorType
from llamay.tensor import twins
from llamay.tensor.webgpu.formats import FORMATS, RECAST

SOAK = float(os.environ.get("LLAMAY_SOAK", "1"))
ALIKE = ("own", "wide", "swapped")  # these differ in nothing that fixes a sum
LAUNCHES = (*ALIKE, "lanes", "portable")
FLOATS = (TensorType.F32, TensorType.F16, TensorType.BF16)
BIASED = (TensorType.F16, TensorType.Q8_0, TensorType.Q5_K)  # a bias is another kernel: these have one, the others none
FEW = (TensorType.F16, TensorType.Q4_1, TensorType.Q8_0, TensorType.Q3_K)  # plain words, pairs, halves, superblocks
TOKENS = {"own": 4, "wide": 1, "swapped": 1, "lanes": 1, "portable": 1}  # of what is done in one way
# Compiling is what these tests cost: (launch, tokens a workgroup) of every type, one more by turns, those of a few, and all.
OFTEN = (("own", 1), ("lanes", 1))
TURNS = (("own", 4), ("wide", 1))
NEIGHBOURS = (TensorType.IQ2_XXS, TensorType.IQ2_S, TensorType.IQ1_S)  # of IQ2_XS, IQ1_M: these less
CURVED = (TensorType.IQ4_NL, TensorType.IQ4_XS, TensorType.MXFP4, TensorType.NVFP4)
SOME = (*OFTEN, *TURNS, ("swapped", 1), ("lanes", 2), ("portable", 1))
ALL = tuple((launch, tokens) for launch in LAUNCHES for tokens in (1, 2, 4, 8))
SOAKED = Random(1).sample(list(FORMATS), max(3, round(len(FORMATS) * min(5 * SOAK, 1))))
ROWS = st.one_of(st.integers(1, 130), st.sampled_from([1, 2, 7, 16, 31, 32, 37, 64, 128, 257]))
BLOCKS = st.one_of(st.integers(1, 4), st.sampled_from([8, 9, 11]))
SEED = st.integers(0, 2**32 - 1)
DRAWN = {
    "rows": ROWS,
    "blocks": BLOCKS,
    "ragged": st.integers(0, 31),  # columns short of whole units, for types without blocks
    "count": st.one_of(st.integers(1, 6), st.just(19)),
    "seed": SEED,
}


def product(lab, variant, weights, x, tokens, stride=0) -> np.ndarray:
    """y [T, rows] by the epilogue `plain`, having checked what lies beyond."""
    count, rows = x.shape[0], len(weights.values)
    wide = lab.up(rows, 32)
    y = lab.linear(
        variant, weights, x, tokens, "plain", {"y_stride": wide // 4}, {},
        {"y": lab.poisoned(lab.up(count, tokens), wide)}, stride=stride,
    )["y"]  # fmt: skip
    written = lab.up(rows, weights.tile.rows)
    assert not y[:count, rows:written].any(), "rows past the end are zero"
    assert lab.untouched(y[:, written:]), "nothing is written past the last lane's rows"
    return y[:count, :rows]


def expected(weights, x) -> tuple[np.ndarray, np.ndarray]:
    """The twin's y, and the size of the terms each element sums."""
    x = x.astype(np.float64)
    y = twins.linear(x, weights.values, weights.bias)
    scale = np.abs(x).sum(-1, keepdims=True) * np.abs(weights.values).max(-1)
    return y, scale if weights.bias is None else scale + np.abs(weights.bias)


@pytest.mark.parametrize("launch", LAUNCHES)
def test_by_hand(lab, launch):
    """Numbers small enough to be exact in every order."""
    variant = lab.variant(launch)
    blocks = np.zeros((3, 34), np.uint8)
    blocks[:, :2] = np.array([0.5], np.float16).view(np.uint8)
    blocks[0, 2:] = np.arange(1, 33)
    blocks[1:, 2:4] = [[3, 4], [5, 256 - 6]]
    weights = lab.load(variant, TensorType.Q8_0, blocks, bias=np.array([0, 0.5, -56], np.float32))
    x = np.zeros((3, 32), np.float32)
    x[0], x[1, :2], x[2, 31] = 1, [10, 1], 2
    y = product(lab, variant, weights, x, TOKENS[launch])
    assert y.tolist() == [[264, 4, -56.5], [6, 17.5, -34], [32, 0.5, -56]]


def agree(lab, type, ways, rows, blocks, ragged, count, biased, seed) -> None:
    """One product in all `ways`: near the twin; and where the order of the sum is the same, the same bits."""
    random = np.random.default_rng(seed)
    columns = blocks * max(32, LAYOUTS[type].elements) - (ragged if type in FLOATS else 0)
    raw = lab.blocks(type, rows, columns, random)
    bias = random.standard_normal(rows).astype(np.float32) if biased else None
    x = random.standard_normal((count, columns)).astype(np.float32)
    found = {}
    for launch, tokens in ways:
        variant = lab.variant(launch)
        weights = lab.load(variant, type, raw, bias)
        found[launch, tokens] = product(lab, variant, weights, x, tokens)
    y, scale = expected(weights, x)
    for (launch, tokens), each in found.items():
        lab.close("linear", each, y, scale)
        first = found["own" if launch in ALIKE else launch, 1]
        assert np.array_equal(each, first), (launch, tokens)


@pytest.mark.parametrize("type", FORMATS, ids=lambda type: type.name)
def test_types(lab, type):
    @settings(max_examples=3)
    @example(rows=32, blocks=1, ragged=0, count=1, seed=1)  # exactly one tile of `own`
    @example(rows=257, blocks=9, ragged=31, count=5, seed=2)
    @given(**DRAWN)
    def check(**drawn):
        ways = SOME if type in FEW else OFTEN if type in NEIGHBOURS else (*OFTEN, TURNS[type % 2])
        agree(lab, type, ways, biased=type in BIASED, **drawn)

    check()


@pytest.mark.parametrize("launch", ["own", "lanes"])
@pytest.mark.parametrize("type", (*CURVED, *RECAST), ids=lambda type: type.name)
def test_each_weight(lab, launch, type):
    """However a class finds what a code means (in lanes, by a polynomial, in a codebook), it is exactly what NumPy reads."""
    variant = lab.variant(launch)
    weights = lab.load(variant, type, lab.blocks(type, 40, 256, np.random.default_rng(7)))
    y = product(lab, variant, weights, np.eye(256, dtype=np.float32), 1)
    assert np.array_equal(y, weights.values.T.astype(np.float32))


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("type", SOAKED, ids=lambda type: type.name)
def test_types_every_way(lab, type):
    """LLAMAY_SOAK scales how many types, ways and examples; below 1 a bias goes with the type, as it does above."""
    chosen = Random(type).sample(ALL, max(2, round(len(ALL) * min(SOAK, 1))))
    ways = sorted({*chosen, *(("own" if launch in ALIKE else launch, 1) for launch, _ in chosen)})
    biases = st.booleans() if SOAK >= 1 else st.just(type in BIASED)

    @settings(max_examples=max(3, round(60 * SOAK)))
    @given(biased=biases, **DRAWN)
    def check(**drawn):
        agree(lab, type, ways, **drawn)

    check()


@pytest.mark.parametrize("launch", ["own", "lanes", "portable"])
def test_tokens_a_workgroup(lab, launch):
    """1, 2, 4 and 8 tokens a workgroup give the same bits, and do the same again."""
    variant = lab.variant(launch)
    counts = (1, 2) if launch == "portable" else (1, 2, 4, 8)  # more takes seconds to compile there: the soak does it
    random = np.random.default_rng(5)
    raw = lab.blocks(TensorType.Q4_1, 45, 320, random)
    x = random.standard_normal((11, 320)).astype(np.float32)
    found = [
        product(lab, variant, lab.load(variant, TensorType.Q4_1, raw), x, tokens) for tokens in (*counts, *counts)
    ]
    for y in found:
        assert np.array_equal(y, found[0])
    assert len(np.unique(found[0])) > 400


@pytest.mark.parametrize("launch", ["own", "lanes", "portable"])
@pytest.mark.parametrize("type", [TensorType.F16, TensorType.Q3_K], ids=lambda type: type.name)
def test_neighbours(lab, launch, type):
    """A token's row has the same bits alone, among other tokens, and beside one that has gone wrong."""
    variant = lab.variant(launch)
    random = np.random.default_rng(6)
    columns = 256 if type is TensorType.Q3_K else 96
    raw = lab.blocks(type, 40, columns, random)

    def run(x):
        return product(lab, variant, lab.load(variant, type, raw), x, 2, stride=columns + 64)

    x = random.standard_normal((9, columns)).astype(np.float32)
    alone = run(x[3:4])[0]
    assert np.isfinite(alone).all()
    assert np.array_equal(run(x)[3], alone)
    for bad in (np.nan, np.inf, 3e38):
        for at in (2, 4):
            spoilt = x.copy()
            spoilt[at] = bad
            assert np.array_equal(run(spoilt)[3], alone), (bad, at)
