"""rope_store.wgsl: norms of heads, rope, and keys and values into pages of every cache format."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamay.tensor import twins
from llamay.tensor.program import Linear, Norm, Qkv, Rope

EPS = 1e-6
FORMATS = [("f32", "f32"), ("f16", "f16"), ("f32", "q8"), ("q8", "q8")]


def store(lab, variant, pool, op, y, positions, sequences, formats, windowed=0, one_bit=False):
    """q [T, heads * head_dim] and the words of the pages of keys and values, checked for strays."""
    count = len(y)
    padded = count + 1
    state, where = pool.state(positions, sequences, padded, windowed=windowed)
    stride, wide = lab.up(y.shape[1], 32) + 32, lab.up(op.heads * op.head_dim, 32)
    raw = np.full((padded, stride), np.nan, np.float32)
    raw[:count, : y.shape[1]] = y
    turns = np.zeros((1, 2), np.float32)
    if op.rope is not None:
        cos, sin = twins.rotation(np.arange(max(positions) + 1, dtype=np.int32), op.rope, np.float64)
        turns = np.stack([cos[:, 0], sin[:, 0]], -1).astype(np.float32)
    read = {"qkv": raw, "state": state, "turns": turns}
    if op.q_norm is not None and op.k_norm is not None:
        biases = [norm.bias for norm in (op.q_norm, op.k_norm) if norm.bias is not None]
        read["norms"] = np.concatenate([op.q_norm.weight, op.k_norm.weight, *biases]).astype(np.float32)
    dims = {
        **where, "x_stride": stride // 4, "y_stride": wide // 4, "eps": EPS, "scale": op.scale, "heads": op.heads,
        "kv_heads": op.kv_heads, "head_dim": op.head_dim, "rope_half": 0 if op.rope is None else len(op.rope.frequencies),
    }  # fmt: skip
    choices = {
        **variant.attention, "head_norms": op.head_norms, "one_bit": one_bit,
        "key_format": formats[0], "value_format": formats[1],
    }  # fmt: skip
    pages = [lab.poisoned(pool.pages, op.kv_heads, pool.words(format), dtype=np.uint32) for format in formats]
    write = {"q_out": lab.poisoned(padded, wide), "keys": pages[0], "values": pages[1]}
    groups = (op.heads + 2 * op.kv_heads, padded, 1)
    found = lab.run(variant, "rope_store", choices, groups, dims, read, write)
    slots = np.array([pool.slots(s, p) for s, p in zip(sequences, positions, strict=True)])
    for what, format in zip(("keys", "values"), formats, strict=True):
        assert not pool.stray(what, format, found[what], slots), f"written outside the rows' {what}"
    assert lab.untouched(found["q_out"][:count, op.heads * op.head_dim :])
    return found["q_out"][:count, : op.heads * op.head_dim], found["keys"], found["values"], slots


def qkv(heads, kv_heads, head_dim, scale, rope, norms=None, kind="rms", biases=(None, None)):
    q_norm = k_norm = None
    if norms is not None:
        wide = [None if bias is None else np.asarray(bias, np.float32) for bias in biases]
        q_norm, k_norm = (Norm(np.asarray(norm, np.float32), EPS, kind, bias) for norm, bias in zip(norms, wide, strict=True))
    return Qkv(0, Norm(np.ones(1, np.float32), EPS), Linear(()), heads, kv_heads, head_dim, scale, rope, q_norm, k_norm)


def test_by_hand(lab, pool, variant):
    """A quarter turn at position 1, a half turn at 2; the last two dimensions pass; q doubles."""
    pages = pool(1, 4, [3], np.random.default_rng(0))
    op = qkv(1, 1, 4, 2.0, Rope(np.array([math.pi / 2])))
    y = np.array([[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12]] * 2, np.float32)
    q, keys, values, slots = store(lab, variant, pages, op, y, [1, 2], [0, 0], ("f32", "f32"))
    np.testing.assert_allclose(q, [[-4, 2, 6, 8], [-2, -4, 6, 8]], atol=1e-6)
    np.testing.assert_allclose(pages.read("keys", "f32", keys)[0, :, slots], [[-6, 5, 7, 8], [-5, -6, 7, 8]], atol=1e-6)
    assert pages.read("values", "f32", values)[0, slots].tolist() == [[9, 10, 11, 12]] * 2


def test_head_norms_by_hand(lab, pool, variant):
    pages = pool(1, 4, [1], np.random.default_rng(0))
    op = qkv(1, 1, 4, 1.0, None, ([1, 1, 1, 2], [1, 1, 1, 0]))
    y = np.array([[4, 4, 2, 8, 1, 3, 1, 5, 100, 0, 0, 1]], np.float32)  # root mean squares 5 and 3
    q, keys, values, slots = store(lab, variant, pages, op, y, [0], [0], ("f32", "f32"))
    np.testing.assert_allclose(q, [[0.8, 0.8, 0.4, 3.2]], rtol=1e-6)
    np.testing.assert_allclose(pages.read("keys", "f32", keys)[0, :, slots], [[1 / 3, 1, 1 / 3, 0]], rtol=1e-6)
    assert pages.read("values", "f32", values)[0, slots].tolist() == [[100, 0, 0, 1]]


def test_a_norm_of_all_heads_by_hand(lab, pool, variant):
    pages = pool(1, 4, [1], np.random.default_rng(0))
    op = qkv(2, 1, 4, 1.0, None, ([1, 1, 1, 1, 1, 1, 1, 2], [1, 1, 1, 0]))
    y = np.array([[1, 1, 1, 1, 7, 7, 1, 7, 1, 3, 1, 5, 100, 0, 0, 1]], np.float32)  # root mean squares 19 ** 0.5 and 3
    q, keys, values, slots = store(lab, variant, pages, op, y, [0], [0], ("f32", "f32"))
    np.testing.assert_allclose(q, [np.array([1, 1, 1, 1, 7, 7, 1, 14]) / 19**0.5], rtol=1e-6)
    np.testing.assert_allclose(pages.read("keys", "f32", keys)[0, :, slots], [[1 / 3, 1, 1 / 3, 0]], rtol=1e-6)
    assert pages.read("values", "f32", values)[0, slots].tolist() == [[100, 0, 0, 1]]


def test_layer_norms_of_heads_by_hand(lab, pool, variant):
    """Each head has weights of its own."""
    pages = pool(1, 4, [1], np.random.default_rng(0))
    op = qkv(2, 1, 4, 1.0, None, ([1, 1, 1, 1, 1, 2, 3, 4], [1, 1, 1, 0]), "layer")
    y = np.array([[7, 3, 5, 5, 1, 5, 3, 3, 1, 3, 2, 2, 100, 0, 0, 1]], np.float32)  # variances 2, 2 and 1 / 2
    q, keys, values, slots = store(lab, variant, pages, op, y, [0], [0], ("f32", "f32"))
    root = 2**0.5
    np.testing.assert_allclose(q, [[root, -root, 0, 0, -root, 2 * root, 0, 0]], rtol=1e-5)
    np.testing.assert_allclose(pages.read("keys", "f32", keys)[0, :, slots], [[-root, root, 0, 0]], rtol=1e-5)
    assert pages.read("values", "f32", values)[0, slots].tolist() == [[100, 0, 0, 1]]


def test_a_layer_norm_of_all_heads_by_hand(lab, pool, variant):
    """One mean and one variance for both heads of q; weights and biases of each value."""
    pages = pool(1, 4, [1], np.random.default_rng(0))
    op = qkv(2, 1, 4, 1.0, None, ([1, 1, 1, 1, 1, 2, 3, 4], [1, 1, 1, 0]), "layer", ([0, 0, 0, 5, 0, 0, 0, 7], [1, 0, 0, 2]))
    y = np.array([[1, 1, 1, 1, 5, 5, 5, 5, 1, 3, 2, 2, 100, 0, 0, 1]], np.float32)  # variances 4 and 1 / 2
    q, keys, values, slots = store(lab, variant, pages, op, y, [0], [0], ("f32", "f32"))
    root = 2**0.5
    np.testing.assert_allclose(q, [[-1, -1, -1, 4, 1, 2, 3, 11]], rtol=1e-5)
    np.testing.assert_allclose(pages.read("keys", "f32", keys)[0, :, slots], [[1 - root, root, 0, 2]], rtol=1e-5)
    assert pages.read("values", "f32", values)[0, slots].tolist() == [[100, 0, 0, 1]]


@pytest.mark.parametrize("normed", ["", "each head", "each head after rope", "all heads", "layer", "layer of all heads"])
@pytest.mark.parametrize("formats", FORMATS, ids="-".join)
def test_twin(lab, pool, variant, formats, normed):
    if (formats[0] != formats[1] or normed.startswith("layer")) and variant.name != "own":
        return  # both halves of it are in the others, or compiling takes long

    @settings(max_examples=8)
    @given(
        kv_heads=st.integers(1, 3),
        group=st.integers(1, 3),
        head_dim=st.sampled_from([4, 12, 32, 64, 80, 256]),
        turned=st.sampled_from([0.0, 0.5, 1.0]),
        lengths=st.lists(st.integers(1, 70), min_size=1, max_size=3),
        windowed=st.integers(0, 1),
        seed=st.integers(0, 2**32 - 1),
    )
    def check(kv_heads, group, head_dim, turned, lengths, windowed, seed):
        random, late = np.random.default_rng(seed), normed.endswith("after rope")
        pages = pool(kv_heads, head_dim, lengths, random)
        half = round(turned * head_dim / 2)
        rope = Rope(0.9 ** np.arange(half), 1.0 if late else random.uniform(0.5, 1.5)) if half else None
        together = (1, 1) if normed.startswith("each head") else (kv_heads * group, kv_heads)
        norms = [random.standard_normal(n * head_dim).astype(np.float32) for n in together] if normed else None
        biases = [random.standard_normal(n * head_dim) for n in together] if normed == "layer of all heads" else (None, None)
        kind, scale = "layer" if normed.startswith("layer") else "rms", float(np.float32(random.uniform(0.1, 1)))
        op = replace(qkv(kv_heads * group, kv_heads, head_dim, scale, rope, norms, kind, biases), late=late)
        sequences = np.concatenate([np.full(min(n, 3), i) for i, n in enumerate(lengths)])
        positions = np.concatenate([np.arange(max(0, n - 3), n) for n in lengths])
        rows = (op.heads + 2 * kv_heads) * head_dim
        y = (random.standard_normal((len(positions), rows)) * 10 ** random.uniform(-3, 1)).astype(np.float32)
        y[0, -head_dim:] = 0  # a value of nothing but zeros has no scale
        q, *words, slots = store(lab, variant, pages, op, y, positions, sequences, formats, windowed)

        keys = np.zeros((kv_heads, head_dim, pages.pages * 16))
        values = np.zeros((kv_heads, pages.pages * 16, head_dim))
        turn = None if rope is None else twins.rotation(positions.astype(np.int32), rope, np.float64)
        expected = twins.rope_store(y.astype(np.float64), op, turn, keys, values, slots).reshape(q.shape)
        lab.close("rope_store", q, expected, np.abs(expected).max() + 1)
        kept = (("keys", keys, 1, np.s_[:, :, slots]), ("values", values, 2, np.s_[:, slots]))
        for (what, wanted, axis, at), format, found in zip(kept, formats, words, strict=True):
            here, wanted = pages.read(what, format, found)[at], wanted[at]
            if format == "q8":  # half a step of the head's scale
                step = np.abs(wanted).max(axis, keepdims=True) / 127
                assert (np.abs(here - wanted) <= step * 0.5 * (1 + 1e-4) + 1e-9).all()
                most = np.abs(here).max(axis, keepdims=True)
                np.testing.assert_allclose(most, step * 127, rtol=1e-5, atol=1e-9)
            else:
                half = np.abs(wanted) * 2**-11 * 1e6 if format == "f16" else 0  # in units of the tolerance
                lab.close("rope_store", here, wanted, np.abs(wanted).max() + 1 + half)
        alone = store(lab, variant, pages, op, y[-1:], positions[-1:], sequences[-1:], formats, windowed)
        assert np.array_equal(alone[0][0], q[-1]), "another batch, other bits"
        for what, format, found, again in zip(("keys", "values"), formats, words, alone[1:3], strict=True):
            last = np.s_[:, :, slots[-1]] if what == "keys" else np.s_[:, slots[-1]]
            assert np.array_equal(pages.read(what, format, found)[last], pages.read(what, format, again)[last])

    check()


def test_one_bit(lab, pool, variant):
    """The cache that is there to fail: sign and mean magnitude."""
    pages = pool(1, 8, [1], np.random.default_rng(0))
    y = np.arange(-12, 12, dtype=np.float32)[None] + 0.5
    _, keys, values, slots = store(lab, variant, pages, qkv(1, 1, 8, 1.0, None), y, [0], [0], ("q8", "q8"), one_bit=True)
    np.testing.assert_allclose(pages.read("keys", "q8", keys)[0, :, slots], [[-2] * 4 + [2] * 4], rtol=1e-6)
    np.testing.assert_allclose(pages.read("values", "q8", values)[0, slots], [[8] * 8], rtol=1e-6)
