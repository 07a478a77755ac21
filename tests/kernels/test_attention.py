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
from llamay.tensor.webgpu.launch import LAUNCHES, SPLIT

SOAK = float(os.environ.get("LLAMAY_SOAK", "1"))
SEED = st.integers(0, 2**32 - 1)
FORMATS = [("f32", "f32"), ("f16", "f16"), ("f32", "q8"), ("q8", "q8")]


def attend(lab, variant, pool, q, words, positions, sequences, *, formats, window=0, cap=0.0, split=SPLIT, splits=None, joint=1, slopes=None, lasts=None, pieces=1, sinks=None, values_at=0):
    """out [T, heads * value_dim] of q [T, heads, head_dim] over pages; with `splits` through attention_combine.

    With `lasts` rows see as far as that, whatever their positions.
    """
    count, heads, head_dim = q.shape
    group, quarter, lanes = heads // pool.kv_heads, head_dim // 4, variant.launch.attention_lanes
    value_dim = head_dim - values_at
    chunk = max(16, lanes)
    stride = lab.up(heads * head_dim, 32) + 32
    padded = lab.up(count + 1, joint)  # a padding row, as where a linear's workgroup has more tokens
    state, where = pool.state(positions, sequences, padded, windowed=int(window > 0 and lasts is None))
    both = {"both_ways": lasts is not None}
    if lasts is not None:
        rows = state[where["rows_at"] :][: 4 * padded].reshape(padded, 4)
        rows[:, 3] = 0
        rows[:count, 3] = lasts + (7 << 24)  # beside a kind
    queries = np.full((padded, stride), np.nan, np.float32)
    queries[:count, : heads * head_dim] = q.reshape(count, -1)
    shape = {"M": joint, "S": lanes, "SPLIT": split}
    choices = {
        **shape, "GQA": -(-group // pieces), "pieces": pieces, "C": chunk, "TPL": chunk // lanes, "VPL": -(-value_dim // (4 * lanes)),
        "D4": quarter, "values_at": values_at // 4,
        "DSTEP": gcd(quarter, lanes), "softcap": cap > 0, "splits": splits is not None,
        "broadcast": variant.launch.broadcast, "reduce": variant.launch.reduce,
        "key_format": formats[0], "value_format": formats[1], "sloped": slopes is not None, **both,
        "sinks": sinks is not None and splits is None,
    }  # fmt: skip
    dims = {
        **where, "x_stride": stride // 4, "y_stride": stride // 4, "heads": heads, "kv_heads": pool.kv_heads,
        "head_dim": head_dim, "softcap": cap, "window": window,
    }  # fmt: skip
    read = {"state": state, "q": queries, "keys": words[0]} | ({} if values_at else {"values": words[1]})
    if slopes is not None:
        read["slopes"] = slopes
    if splits is None:
        write = {"out": lab.poisoned(padded, stride)}
        read |= {} if sinks is None else {"sinks": sinks}
        out = lab.run(variant, "attention", choices, (pool.kv_heads * pieces, padded // joint, 1), dims, read, write)["out"]
    else:
        write = {
            "out": lab.poisoned(splits, padded, heads, value_dim), "stats": lab.poisoned(splits, padded, heads, 2),
        }  # fmt: skip
        parts = lab.run(variant, "attention", choices, (pool.kv_heads * pieces, padded // joint, splits), dims, read, write)
        out = combine(lab, variant, parts["out"], parts["stats"], state, dims, {**shape, **both, "D4": value_dim // 4}, stride, sinks)
    assert lab.untouched(out[:count, heads * value_dim :])
    return out[:count, : heads * value_dim]


def combine(lab, variant, parts, stats, state, dims, shape, stride, sinks):
    _, padded, heads, _ = parts.shape
    read = {"state": state, "parts": parts, "stats": stats} | ({} if sinks is None else {"sinks": sinks})
    write = {"out": lab.poisoned(padded, stride)}
    shape = {**shape, "sinks": sinks is not None}
    return lab.run(variant, "attention_combine", shape, (heads, padded, 1), dims, read, write)["out"]


def twin(pool, q, keys, values, positions, sequences, window, cap, split, slopes=None, lasts=None, sinks=None):
    """The same in float64, and the largest value a share was given to [T, heads, 1]."""
    count, heads, head_dim = q.shape
    out, size = np.empty((count, heads, values.shape[2])), np.empty((count, heads, 1))
    for row, (position, sequence) in enumerate(zip(positions, sequences, strict=True)):
        end = (position if lasts is None else lasts[row]) + 1
        seen = np.arange(max(0, position - window + 1) if window else 0, end)
        slots = pool.slots(sequence, np.arange(end))
        k, v = keys[:, :, slots], values[:, slots]
        visible = np.isin(np.arange(end), seen)[None]
        grouped = q[row].reshape(pool.kv_heads, -1, head_dim).astype(np.float64)
        partials = []
        for s in range(0, end, split):
            at, bias = np.s_[s : s + split], None
            if slopes is not None:
                apart = -np.abs(np.arange(end)[at] - position)
                bias = slopes.astype(np.float64).reshape(pool.kv_heads, -1, 1) * apart
            partials.append(twins.attention(grouped, k[:, :, at], v[:, at], visible[:, at], cap, bias=bias))
        logits = None if sinks is None else sinks.astype(np.float64).reshape(pool.kv_heads, -1, 1)
        out[row] = twins.attention_combine(partials, logits).reshape(heads, -1)
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


SHAPES = {  # head_dim, group, cap, formats
    "64-f32": (64, 3, 0.0, ("f32", "f32")),
    "20-cap-f16": (20, 1, 5.0, ("f16", "f16")),
    "32-q8": (32, 2, 0.0, ("q8", "q8")),
    "128-vq8": (128, 1, 0.0, ("f32", "q8")),
}
# Compiling is what these tests cost: in how many tokens' company each shape is computed in each launch; the soak does all.
COMPANY = {
    ("own", "64-f32"): (4,), ("own", "20-cap-f16"): (2,), ("own", "32-q8"): (4,), ("own", "128-vq8"): (),
    ("lanes", "20-cap-f16"): (2,), ("lanes", "32-q8"): (),
    ("portable", "20-cap-f16"): (2,),
}  # fmt: skip


@pytest.mark.parametrize(("launch", "shape"), COMPANY)
def test_twin(lab, pool, launch, shape):
    """Splits of 32 positions, so that many fit a test."""
    variant, company = lab.variant(launch), COMPANY[launch, shape]

    @settings(max_examples=5)
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
        compare(lab, pool, variant, *SHAPES[shape], kv_heads, lengths, window, spread, seed, company=company)

    check()


@pytest.mark.soak
@pytest.mark.timeout(3600)
def test_every_shape(lab, pool, variant):
    """LLAMAY_SOAK scales how many of the shapes there are."""
    shapes = list(product(FORMATS, (4, 20, 64, 80, 96, 128, 256), ((1, 0.0), (2, 5.0), (3, 0.0), (7, 0.0), (8, 30.0))))
    random = Random(variant.name)
    for formats, head_dim, (group, cap) in random.sample(shapes, max(1, round(len(shapes) * min(SOAK, 1)))):
        for window in (0, 1, 33, 100):
            lengths = [random.randint(1, 200) for _ in range(3)]
            compare(lab, pool, variant, head_dim, group, cap, formats, 2, lengths, window, 1.0, random.randint(0, 99))


def test_slopes(lab, pool):
    """ALiBi: every head forgets at a pace of its own."""
    for kv_heads, lengths, window in ((2, [97, 33], 0), (1, [40], 17)):
        how = (16, 2, 0.0, ("f32", "f32"), kv_heads, lengths, window, 1.0, 5)
        compare(lab, pool, lab.variant("own"), *how, sloped=True, company=(2,))


@pytest.mark.parametrize("window", [0, 17])
def test_both_ways(lab, pool, window):
    """Rows that see what stands behind them, with slopes to both sides, and a window to both sides."""
    how = (16, 2, 0.0, ("f32", "f32"), 2, [97, 33, 1, 32], window, 1.0, 6)
    compare(lab, pool, lab.variant("own"), *how, sloped=True, both_ways=True, company=(4,))


def test_more_queries_than_a_workgroup_does(lab, pool):
    """Five heads that share a kv head, three a workgroup: the last place does the last head once more."""
    variant, random = lab.variant("own"), np.random.default_rng(6)
    pages, formats = pool(2, 16, [40, 9], random), ("f32", "f32")
    words, (keys, values) = filled(pages, [40, 9], formats, random)
    positions, sequences = np.array([39, 3, 20, 8]), np.array([0, 0, 0, 1])
    q = random.standard_normal((4, 10, 16)).astype(np.float32) / 4
    slopes = random.uniform(0.01, 0.5, 10).astype(np.float32)
    for splits in (None, 2):
        how = {"formats": formats, "split": 64 if splits is None else 32, "splits": splits, "slopes": slopes}
        found = attend(lab, variant, pages, q, words, positions, sequences, pieces=2, **how)
        assert np.array_equal(found, attend(lab, variant, pages, q, words, positions, sequences, **how))
    expected, size = twin(pages, q, keys, values, positions, sequences, 0, 0.0, 32, slopes)
    lab.close("attention", found.reshape(expected.shape), expected, size * 4)


@pytest.mark.parametrize(("launch", "format"), [("own", "q8"), ("portable", "f32")])
def test_values_that_are_part_of_the_keys(lab, pool, launch, format):
    """One row for five heads, three a workgroup, whose last 32 of 40 values are the value."""
    variant, random = lab.variant(launch), np.random.default_rng(7)
    pages = pool(1, 40, [70, 9], random)
    words, (keys, _) = filled(pages, [70, 9], (format, format), random)
    positions, sequences = np.array([31, 3, 8, 69, 32]), np.array([0, 0, 1, 0, 0])
    q = random.standard_normal((5, 5, 40)).astype(np.float32) / 6
    how = {"formats": (format, format), "split": 32, "values_at": 8, "pieces": 2}
    found = attend(lab, variant, pages, q, words, positions, sequences, splits=3, **how)
    expected, size = twin(pages, q, keys, keys[:, 8:].transpose(0, 2, 1), positions, sequences, 0, 0.0, 32)
    lab.close("attention", found.reshape(expected.shape), expected, size * 4)
    if launch != "own":
        return  # compiling is what this costs
    short = positions < 32
    alone = attend(lab, variant, pages, q[short], words, positions[short], sequences[short], **how)
    assert np.array_equal(alone, found[short])
    shared = attend(lab, variant, pages, q, words, positions, sequences, splits=3, joint=2, **how)
    assert np.array_equal(shared, found)


@pytest.mark.parametrize("name", LAUNCHES)
def test_query_heads_of_a_workgroup(name):
    """Eight where a lane has room for their sums; of latents, whose values are long, fewer."""
    assert [LAUNCHES[name].queries(heads, 256) for heads in (1, 7, 8, 9, 16)] == [(1, 1), (1, 7), (1, 8), (2, 5), (2, 8)]
    assert LAUNCHES[name].queries(128, 512) == (32, 4) and LAUNCHES[name].joint(128, 512) == 1


def test_sinks(lab, pool):
    """A logit of each head that leads to no value: far below the others, among them, and above them all."""
    for kv_heads, lengths, window in ((2, [97, 33], 0), (1, [40], 17)):
        compare(lab, pool, lab.variant("own"), 64, 3, 0.0, ("f32", "f32"), kv_heads, lengths, window, 1.0, 5, sunk=True, company=(2,))


def compare(
    lab, pool, variant, head_dim, group, cap, formats, kv_heads, lengths, window, spread, seed, *, sloped=False,
    both_ways=False, sunk=False, company=(2, 4),
):  # fmt: skip
    """`company`: how many tokens share what they read, beside one alone."""
    random = np.random.default_rng(seed)
    split = 32
    pages = pool(kv_heads, head_dim, lengths, random)
    words, (keys, values) = filled(pages, lengths, formats, random, spread)
    positions = []
    for n in lengths:  # some scattered, then some that follow each other
        run = random.integers(0, max(1, n - 5)) + np.arange(min(n, 5))
        positions.append(np.concatenate([random.choice(n, min(n, 3), replace=False), run]))
    sequences = np.repeat(np.arange(len(lengths)), [len(some) for some in positions])
    positions = np.concatenate(positions)
    q = random.standard_normal((len(positions), kv_heads * group, head_dim)).astype(np.float32) / np.sqrt(head_dim)
    slopes = random.uniform(0.01, 0.5, kv_heads * group).astype(np.float32) if sloped else None
    sinks = random.permutation([-200.0, 0.5, 30.0, 3.0, -1.0, 1.0])[: kv_heads * group].astype(np.float32) if sunk else None
    how = {"formats": formats, "window": window, "cap": cap, "split": split, "slopes": slopes, "sinks": sinks}
    ends = np.array(lengths)[sequences] - 1 if both_ways else positions  # the last position each row sees
    seen = np.minimum(ends, positions + window - 1) if window else ends
    splits = int(ends.max()) // split + 1

    def some(rows, **more):
        lasts = ends[rows] if both_ways else None
        return attend(lab, variant, pages, q[rows], words, positions[rows], sequences[rows], lasts=lasts, **how, **more)

    every = np.arange(len(positions))
    found = some(every, splits=splits)
    expected, size = twin(
        pages, q, keys, values, positions, sequences, window, cap, split, slopes, seen if both_ways else None, sinks
    )
    steep = max(1.0, spread * 4)  # an error of a score moves its share by as much again
    lab.close("attention", found.reshape(expected.shape), expected, size * steep)

    for joint in company:
        shared = some(every, splits=splits, joint=joint)
        assert np.array_equal(shared, found), f"{joint} tokens that share reads changed bits"
    order = random.permutation(len(positions))
    again = some(order, splits=splits + 1)
    assert np.array_equal(again, found[order]), "another order, or a split more, changed bits"
    short = ends < split
    if short.any():
        alone = some(short)
        assert np.array_equal(alone, found[short]), "within one split the bits are those of the combined"
        for joint in company[-1:]:
            alone = some(short, joint=joint)
            assert np.array_equal(alone, found[short]), f"{joint} tokens that share reads changed bits within one split"


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
