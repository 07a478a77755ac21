"""attention.wgsl and attention_combine.wgsl: scattered pages, windows, splits, every cache format, dirty neighbours."""

import os
from itertools import product
from math import gcd
from random import Random

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llamay.tensor import twins
from llamay.tensor.webgpu.launch import SPLIT

SOAK = float(os.environ.get("LLAMAY_SOAK", "1"))
SEED = st.integers(0, 2**32 - 1)
FORMATS = [("f32", "f32"), ("f16", "f16"), ("f32", "q8"), ("q8", "q8")]


def attend(lab, variant, pool, q, words, positions, sequences, *, formats, window=0, cap=0.0, split=SPLIT, splits=None):
    """out [T, heads * head_dim] of q [T, heads, head_dim] over pages; with `splits` through attention_combine."""
    count, heads, head_dim = q.shape
    group, quarter, lanes = heads // pool.kv_heads, head_dim // 4, variant.launch.attention_lanes
    chunk = max(16, lanes)
    stride = lab.up(heads * head_dim, 32) + 32
    padded = count + 1  # a padding row, as where a linear's workgroup has more tokens
    state, where = pool.state(positions, sequences, padded, windowed=int(window > 0))
    queries = np.full((padded, stride), np.nan, np.float32)
    queries[:count, : heads * head_dim] = q.reshape(count, -1)
    shape = {"S": lanes, "D4": quarter, "SPLIT": split}
    choices = {
        **shape, "GQA": group, "C": chunk, "TPL": chunk // lanes, "VPL": -(-quarter // lanes),
        "DSTEP": gcd(quarter, lanes), "softcap": cap > 0, "splits": splits is not None,
        "broadcast": variant.launch.broadcast, "reduce": variant.launch.reduce,
        "key_format": formats[0], "value_format": formats[1],
    }  # fmt: skip
    dims = {
        **where, "x_stride": stride // 4, "y_stride": stride // 4, "heads": heads, "kv_heads": pool.kv_heads,
        "head_dim": head_dim, "softcap": cap, "window": window,
    }  # fmt: skip
    read = {"state": state, "q": queries, "keys": words[0], "values": words[1]}
    if splits is None:
        write = {"out": lab.poisoned(padded, stride)}
        out = lab.run(variant, "attention", choices, (pool.kv_heads, padded, 1), dims, read, write)["out"]
    else:
        write = {
            "out": lab.poisoned(splits, padded, heads, head_dim), "stats": lab.poisoned(splits, padded, heads, 2),
        }  # fmt: skip
        parts = lab.run(variant, "attention", choices, (pool.kv_heads, padded, splits), dims, read, write)
        out = combine(lab, variant, parts["out"], parts["stats"], state, dims, shape, stride)
    assert lab.untouched(out[:count, heads * head_dim :])
    return out[:count, : heads * head_dim]


def combine(lab, variant, parts, stats, state, dims, shape, stride):
    _, padded, heads, _ = parts.shape
    read = {"state": state, "parts": parts, "stats": stats}
    write = {"out": lab.poisoned(padded, stride)}
    return lab.run(variant, "attention_combine", shape, (heads, padded, 1), dims, read, write)["out"]


def twin(pool, q, keys, values, positions, sequences, window, cap, split):
    """The same in float64, and the largest value a share was given to [T, heads, 1]."""
    count, heads, head_dim = q.shape
    out, size = np.empty((count, heads, head_dim)), np.empty((count, heads, 1))
    for row, (position, sequence) in enumerate(zip(positions, sequences, strict=True)):
        seen = np.arange(max(0, position - window + 1) if window else 0, position + 1)
        slots = pool.slots(sequence, np.arange(position + 1))
        k, v = keys[:, :, slots], values[:, slots]
        visible = np.isin(np.arange(position + 1), seen)[None]
        grouped = q[row].reshape(pool.kv_heads, -1, head_dim).astype(np.float64)
        partials = [
            twins.attention(grouped, k[:, :, s : s + split], v[:, s : s + split], visible[:, s : s + split], cap)
            for s in range(0, position + 1, split)
        ]
        out[row] = twins.attention_combine(partials).reshape(heads, head_dim)
        size[row] = np.repeat(np.abs(v[:, seen]).max((1, 2)), heads // pool.kv_heads)[:, None]
    return out, size


def filled(pool, lengths, formats, random, spread=1.0):
    """Words and contents of pages that hold the sequences' keys and values, and poison wherever they do not."""
    slots = np.concatenate([pool.slots(i, np.arange(n)) for i, n in enumerate(lengths)])
    keys = np.zeros((pool.kv_heads, pool.head_dim, pool.pages * 16))
    values = np.zeros((pool.kv_heads, pool.pages * 16, pool.head_dim))
    keys[:, :, slots] = random.standard_normal((pool.kv_heads, pool.head_dim, len(slots))) * spread
    values[:, slots] = random.standard_normal((pool.kv_heads, len(slots), pool.head_dim))
    words, kept = [], []
    for what, format, given_ in (("keys", formats[0], keys), ("values", formats[1], values)):
        laid, held = pool.lay(what, format, given_)
        words.append(pool.dirty(what, format, laid, slots))
        kept.append(held)
    return words, kept


@pytest.mark.parametrize("formats", FORMATS, ids="-".join)
def test_by_hand(lab, pool, variant, formats):
    """Two positions, equal keys: the mean of the values.  One that is not seen changes nothing."""
    random = np.random.default_rng(0)
    pages = pool(1, 8, [3], random)
    keys, values = np.zeros((1, 8, pages.pages * 16)), np.zeros((1, pages.pages * 16, 8))
    at = pages.slots(0, np.arange(3))
    keys[:, :, at] = 1
    keys[0, 0, at[2]] = 127  # all of the share goes to position 2, where it is seen
    values[0, at] = [[127] * 8, [1, 2, 3, 4, 5, 6, 7, 127], [100] * 7 + [127]]
    words = [pages.lay("keys", formats[0], keys)[0], pages.lay("values", formats[1], values)[0]]
    q = np.ones((2, 1, 8), np.float32)
    out = attend(lab, variant, pages, q, words, [1, 2], [0, 0], formats=formats)
    np.testing.assert_allclose(out[0], [64, 64.5, 65, 65.5, 66, 66.5, 67, 127], rtol=1e-6)
    np.testing.assert_allclose(out[1], [100] * 7 + [127], rtol=1e-6)


SHAPES = [  # head_dim, group, cap, formats, in all launches
    pytest.param(64, 3, 0.0, ("f32", "f32"), True, id="64-f32"),
    pytest.param(20, 1, 5.0, ("f16", "f16"), True, id="20-cap-f16"),
    pytest.param(32, 2, 0.0, ("q8", "q8"), True, id="32-q8"),
    pytest.param(128, 1, 0.0, ("f32", "q8"), False, id="128-vq8"),
]


@pytest.mark.parametrize(("head_dim", "group", "cap", "formats", "everywhere"), SHAPES)
def test_twin(lab, pool, variant, head_dim, group, cap, formats, everywhere):
    """Splits of 32 positions, so that many fit a test."""
    if variant.name != "own" and not everywhere:
        return  # compiling is what this costs; the soak does all

    @settings(max_examples=8)
    @given(
        kv_heads=st.integers(1, 3),
        lengths=st.lists(st.one_of(st.integers(1, 100), st.sampled_from([1, 15, 16, 17, 32, 33])), min_size=1, max_size=3),
        window=st.sampled_from([0, 0, 1, 2, 15, 16, 17, 40]),
        spread=st.sampled_from([0.1, 1.0, 4.0]),
        seed=SEED,
    )
    @example(kv_heads=1, lengths=[1], window=0, spread=1.0, seed=0)
    @example(kv_heads=2, lengths=[97, 33], window=17, spread=1.0, seed=0)
    def check(kv_heads, lengths, window, spread, seed):
        compare(lab, pool, variant, head_dim, group, cap, formats, kv_heads, lengths, window, spread, seed)

    check()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_shape(lab, pool, variant):
    """LLAMAY_SOAK scales how many of the shapes there are."""
    shapes = list(product(FORMATS, (4, 20, 64, 80, 96, 128, 256), ((1, 0.0), (2, 5.0), (3, 0.0), (7, 0.0), (8, 30.0))))
    random = Random(variant.name)
    for formats, head_dim, (group, cap) in random.sample(shapes, max(2, round(len(shapes) * min(SOAK, 1)))):
        for window in (0, 1, 33, 100):
            lengths = [random.randint(1, 200) for _ in range(3)]
            compare(lab, pool, variant, head_dim, group, cap, formats, 2, lengths, window, 1.0, random.randint(0, 99))


def compare(lab, pool, variant, head_dim, group, cap, formats, kv_heads, lengths, window, spread, seed):
    random = np.random.default_rng(seed)
    split = 32
    pages = pool(kv_heads, head_dim, lengths, random)
    words, (keys, values) = filled(pages, lengths, formats, random, spread)
    sequences = np.concatenate([np.full(min(n, 3), i) for i, n in enumerate(lengths)])
    positions = np.concatenate([random.choice(n, min(n, 3), replace=False) for n in lengths])
    q = random.standard_normal((len(positions), kv_heads * group, head_dim)).astype(np.float32) / np.sqrt(head_dim)
    how = {"formats": formats, "window": window, "cap": cap, "split": split}
    splits = int(positions.max()) // split + 1
    found = attend(lab, variant, pages, q, words, positions, sequences, splits=splits, **how)
    expected, size = twin(pages, q, keys, values, positions, sequences, window, cap, split)
    steep = max(1.0, spread * 4)  # an error of a score moves its share by as much again
    lab.close("attention", found.reshape(expected.shape), expected, size * steep)

    order = random.permutation(len(positions))
    again = attend(lab, variant, pages, q[order], words, positions[order], sequences[order], splits=splits + 1, **how)
    assert np.array_equal(again, found[order]), "another order, or a split more, changed bits"
    short = positions < split
    if short.any():
        alone = attend(lab, variant, pages, q[short], words, positions[short], sequences[short], **how)
        assert np.array_equal(alone, found[short]), "within one split the bits are those of the combined"


@pytest.mark.parametrize("window", [0, 300])
def test_real_splits(lab, pool, window):
    """SPLIT itself, on both sides of its bounds."""
    variant = lab.variant("own")
    random = np.random.default_rng(9)
    pages = pool(1, 64, [3 * SPLIT + 5], random)
    formats = ("f32", "f32")
    words, (keys, values) = filled(pages, [3 * SPLIT + 5], formats, random)
    positions = np.array([0, SPLIT - 1, SPLIT, SPLIT + 1, 2 * SPLIT - 1, 2 * SPLIT, 3 * SPLIT + 4])
    sequences = np.zeros(len(positions), int)
    q = random.standard_normal((len(positions), 3, 64)).astype(np.float32) / 8
    found = attend(lab, variant, pages, q, words, positions, sequences, formats=formats, window=window, splits=4)
    expected, size = twin(pages, q, keys, values, positions, sequences, window, 0.0, SPLIT)
    lab.close("attention", found.reshape(expected.shape), expected, size * 4)
    for row, position in enumerate(positions):
        one = slice(row, row + 1)
        splits = None if position < SPLIT else int(position) // SPLIT + 1
        alone = attend(
            lab, variant, pages, q[one], words, positions[one], sequences[one], formats=formats, window=window, splits=splits
        )  # fmt: skip
        assert np.array_equal(alone[0], found[row]), position
