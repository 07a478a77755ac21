"""latent_store.wgsl: a token's one row into its page in every cache format, and each head's query beside it."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamay.quant import TensorType
from llamay.tensor import twins
from llamay.tensor.program import Latent, Linear, Matrix, Norm, Rope

EPS = 1e-6


def latent(heads, rank, turned, own, scale=1.0, rope=None, weight=None):
    matrix = Matrix("absorb", TensorType.F32, rank, own, lambda start, stop: np.empty(0, np.uint8))
    rope = Rope(np.geomspace(1, 1e-2, turned // 2)) if rope is None else rope
    norm = Norm(np.ones(rank, np.float32) if weight is None else np.asarray(weight, np.float32), EPS)
    return Latent(0, Norm(np.ones(4, np.float32), EPS), Linear(()), norm, (Linear((matrix,)),) * heads, turned, scale, rope)


def store(lab, variant, pool, op, latents, asked, positions, sequences, format="f32", *, one_bit=False, before=8):
    """q [T, heads, head_dim], own [T, heads, own], words of pages; `before` floats stand before a row's latents."""
    count, padded = len(latents), len(latents) + 1
    state, where = pool.state(positions, sequences, padded)
    stride, wide = before + latents.shape[1] + 4, lab.up(op.heads * op.head_dim, 32)
    raw = np.full((padded, stride), np.nan, np.float32)
    raw[:count, before : before + latents.shape[1]] = latents
    queries = np.full((padded, asked.shape[1] * asked.shape[2] + 12), np.nan, np.float32)
    queries[:count, : asked[0].size] = asked.reshape(count, -1)
    cos, sin = twins.rotation(np.arange(max(positions) + 1, dtype=np.int32), op.rope, np.float64)
    at = lab.up(op.own, 32) // 4
    choices = {
        **variant.attention, "RANK": op.rank // 4, "TURNED": op.turned // 4, "OWN": op.own // 4, "OWN_AT": at,
        "STRIDE": stride // 4, "LATENTS_AT": before // 4, "key_format": format, "one_bit": one_bit,
    }  # fmt: skip
    dims = {
        **where, "x_stride": queries.shape[1] // 4, "y_stride": wide // 4, "scale": op.scale, "eps": EPS, "heads": op.heads,
        "kv_heads": 1, "head_dim": op.head_dim, "rope_half": op.turned // 2,
    }  # fmt: skip
    read = {
        "latents": raw, "asked": queries, "weight": op.kv_norm.weight, "state": state,
        "turns": np.stack([cos[:, 0], sin[:, 0]], -1).astype(np.float32),
    }  # fmt: skip
    write = {
        "q_out": lab.poisoned(padded, wide), "own": lab.poisoned(padded, op.heads, 4 * at),
        "keys": lab.poisoned(pool.pages, 1, pool.words(format), dtype=np.uint32),
    }  # fmt: skip
    found = lab.run(variant, "latent_store", choices, (op.heads + 1, padded, 1), dims, read, write)
    slots = np.array([pool.slots(s, p) for s, p in zip(sequences, positions, strict=True)])
    assert not pool.stray("keys", format, found["keys"], slots), "written outside the rows' keys"
    q = found["q_out"][:count, : op.heads * op.head_dim].reshape(count, op.heads, -1)
    assert lab.untouched(q[..., op.turned :]), "what absorbs is another's"
    assert lab.untouched(found["own"][..., op.own :]) and lab.untouched(found["q_out"][:, op.heads * op.head_dim :])
    return q[..., : op.turned], found["own"][:count, :, : op.own], found["keys"], slots


def test_by_hand(lab, pool, variant):
    """A quarter turn at position 1; latents of a root mean square of 5, and zeros up to whole units; queries double."""
    pages = pool(1, 36, [3], np.random.default_rng(0))
    op = latent(1, 4, 4, 4, 2.0, Rope(np.array([math.pi / 2, 0.0])), [1, 1, 1, 2])
    q, own, keys, slots = store(
        lab, variant, pages, op, np.array([[4, 4, 2, 8, 1, 2, 3, 4]], np.float32), np.arange(8.0).reshape(1, 1, 8), [1], [0]
    )
    np.testing.assert_allclose(own[0, 0], [0, 2, 4, 6])
    np.testing.assert_allclose(q[0, 0], [-10, 8, 12, 14], rtol=1e-6)
    row = pages.read("keys", "f32", keys)[0, :, slots[0]]
    np.testing.assert_allclose(row, [-2, 1, 3, 4, 0.8, 0.8, 0.4, 3.2] + [0] * 28, rtol=1e-6)


@pytest.mark.parametrize(("format", "one_bit"), [("f32", False), ("f16", False), ("q8", False), ("q8", True)])
def test_twin(lab, pool, format, one_bit):
    variant = lab.variant("own" if format != "q8" or one_bit else "portable")

    @settings(max_examples=4)
    @given(lengths=st.lists(st.integers(1, 40), min_size=1, max_size=3), far=st.integers(0, 2), seed=st.integers(0, 2**32 - 1))
    def check(lengths, far, seed):
        random = np.random.default_rng(seed)
        op = latent(3, 20, 8, 12, 0.3, weight=random.uniform(0.5, 2, 20))
        pages = pool(1, op.head_dim, lengths, random)
        positions = np.array([random.integers(0, n) for n in lengths])
        sequences = np.arange(len(lengths))
        latents = (random.standard_normal((len(lengths), 28)) * 10.0**far).astype(np.float32)
        asked = random.standard_normal((len(lengths), 3, 20)).astype(np.float32)
        q, own, words, slots = store(
            lab, variant, pages, op, latents, asked, positions, sequences, format, one_bit=one_bit, before=4 * far
        )
        turn = twins.rotation(positions.astype(np.int32), op.rope, np.float64)
        rows = np.zeros((1, op.head_dim, pages.pages * 16))
        wanted, apart = twins.latent_store(latents.astype(np.float64), asked.astype(np.float64), op, turn, rows, slots)
        lab.close("latent_store", q, wanted[..., : op.turned], 2.0)
        lab.close("latent_store", own, apart, 2.0)
        kept, exact = pages.read("keys", format, words)[0][:, slots], rows[0][:, slots]
        largest = np.abs(exact).max(axis=0)
        if one_bit:  # signs, and the mean magnitude
            assert np.array_equal(np.sign(kept), np.sign(exact))
            np.testing.assert_allclose(np.abs(kept).max(axis=0), np.abs(exact).mean(axis=0), rtol=1e-4)
        else:
            step = {"f32": 2e-6, "f16": 2.0**-11 + 2e-6, "q8": 0.51 / 127}[format]
            assert (np.abs(kept - exact) <= step * largest).all()
            assert (kept[op.turned + op.rank :] == 0).all()

    check()
