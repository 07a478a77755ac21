"""The twins by hand-made numbers, and against the formula written another way."""

import math
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamay import wgsl
from llamay.tensor import twins
from llamay.tensor.program import Linear, Norm, Qkv, Rope


def test_every_kernel_has_a_twin():
    kernels = {path.stem for path in Path(wgsl.__file__).parent.glob("*.wgsl")}
    assert kernels >= {"embed", "linear", "attention", "attention_combine", "rope_store", "norm_add", "pick"}
    ours = {name for name in kernels if not name.startswith("sample")}  # llamay.sample keeps the twin of those
    assert not {name for name in ours if not hasattr(twins, name)}


def test_rms_norm():
    found = twins.rms_norm(np.array([[3.0, 4.0]]), np.array([1.0, 2.0]), 0.5)
    np.testing.assert_allclose(found, [[3 / math.sqrt(13), 8 / math.sqrt(13)]])


def test_linear_and_bias():
    weight, x = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), np.array([[10.0, 1.0]])
    assert twins.linear(x, weight).tolist() == [[12, 34, 56]]
    assert twins.linear(x, weight, np.array([1.0, 1.0, -6.0])).tolist() == [[13, 35, 50]]


def test_residual_and_norm_add():
    h, y = np.array([[1.0, 1.0]]), np.array([[3.0, 4.0]])
    assert twins.residual(h, y, 2.0).tolist() == [[7, 9]]
    np.testing.assert_allclose(twins.norm_add(h, y, np.ones(2), 0.0, 10.0), 1 + 10 * y / math.sqrt(12.5))


@pytest.mark.parametrize(("activation", "value"), [("silu", 0.7310585786300049), ("gelu_tanh", 0.8411919906082768)])
def test_activate(activation, value):
    found = twins.activate(np.array([1.0, 0.0, -200.0]), np.array([2.0, 5.0, 1.0]), activation)
    np.testing.assert_allclose(found, [2 * value, 0, 0], atol=1e-12)


def test_gelu_is_the_normal_distribution():
    x = np.linspace(-12, 12, 4801)
    found = twins.activated(x, "gelu_erf")
    expected = np.array([0.5 * v * math.erfc(-v / math.sqrt(2)) for v in x])
    np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-14)
    assert np.abs(twins.activated(x.astype(np.float32), "gelu_erf") - expected).max() < 2e-6


def test_relu_squared():
    assert twins.activate(np.array([-2.0, 0.0, 3.0]), np.array([1.0, 1.0, 2.0]), "relu_squared").tolist() == [0, 0, 18]


def test_layer_norm():
    x, weight = np.array([[1.0, 5.0], [-3.0, -3.0]]), np.array([1.0, 2.0])
    found = twins.layer_norm(x, weight, np.array([0.5, 7.0]), 0.5)
    root = math.sqrt(4.5)  # a variance of 4
    np.testing.assert_allclose(found, [[0.5 - 2 / root, 7 + 4 / root], [0.5, 7]])
    np.testing.assert_allclose(twins.layer_norm(x, weight, None, 0.5), found - [0.5, 7])


def test_softcap():
    x = np.array([-1e9, 0.0, 1.0, 1e9])
    np.testing.assert_allclose(twins.softcap(x, 5.0), [-5, 0, 5 * math.tanh(0.2), 5])
    assert twins.softcap(x, 0.0) is x


def test_head_scales_then_caps():
    np.testing.assert_allclose(twins.head(np.array([[2.0]]), 0.5, 3.0), [[3 * math.tanh(1 / 3)]])


def test_embed():
    assert twins.embed(np.array([[1.0, -2.0]]), 8.0).tolist() == [[8, -16]]


def test_pick_takes_the_lowest_of_equals():
    assert twins.pick(np.array([[1.0, 7.0, 7.0], [-3.0, -5.0, -3.0]])).tolist() == [1, 0]


def test_rope_turns_neighbours_and_leaves_the_rest():
    rope = Rope(np.array([math.pi / 2, 0.1]), magnitude=2.0)
    cos, sin = twins.rotation(np.array([1, 3], np.int32), rope, np.float64)
    assert cos.shape == (2, 1, 2)
    x = np.array([[[1.0, 0.0, 0.0, 1.0, 9.0]], [[1.0, 0.0, 0.0, 1.0, 9.0]]])
    found = twins.rope(x, cos, sin)
    np.testing.assert_allclose(found[0, 0], [0, 2, -2 * math.sin(0.1), 2 * math.cos(0.1), 9], atol=1e-12)
    np.testing.assert_allclose(found[1, 0], [0, -2, -2 * math.sin(0.3), 2 * math.cos(0.3), 9], atol=1e-12)


def test_rope_store():
    """Heads are normed, then turned, q scaled; k and v land in the slots and nowhere else."""
    unit = Norm(np.array([1.0, 3.0], np.float32), 0.0)
    linear = Linear(())
    op = Qkv(0, unit, linear, heads=2, kv_heads=1, head_dim=2, scale=0.5, rope=None, q_norm=unit, k_norm=unit)
    y = np.array([[3.0, 4.0, 6.0, 8.0, 1.0, 1.0, 5.0, 6.0]])  # q0 q1 k v
    keys, values = np.full((1, 2, 16), 99.0), np.full((1, 16, 2), 99.0)
    quarter = twins.rotation(np.array([1], np.int32), Rope(np.array([math.pi / 2])), np.float64)
    q = twins.rope_store(y, op, quarter, keys, values, np.array([5]))
    root = math.sqrt(12.5)
    np.testing.assert_allclose(q, [[[-6 / root, 1.5 / root], [-6 / root, 1.5 / root]]])
    np.testing.assert_allclose(keys[0, :, 5], [-3, 1])
    assert values[0, 5].tolist() == [5, 6]
    assert (np.delete(keys, 5, axis=2) == 99).all() and (np.delete(values, 5, axis=1) == 99).all()


@given(
    st.integers(1, 3), st.integers(1, 4), st.integers(1, 700), st.sampled_from([0.0, 2.0]), st.integers(0, 2**32 - 1)
)
def test_attention_over_splits_is_one_softmax(kv_heads, rows, positions, cap, seed):
    random = np.random.default_rng(seed)
    q, k = random.standard_normal((kv_heads, rows, 8)), random.standard_normal((kv_heads, 8, positions))
    v = random.standard_normal((kv_heads, positions, 8))
    first = random.integers(0, positions, rows)  # row r sees positions first[r] to last[r]
    last = np.array([random.integers(start, positions) for start in first])
    at = np.arange(positions)
    visible = (at >= first[:, None]) & (at <= last[:, None])
    partials = [
        twins.attention(
            q, k[:, :, s : s + twins.SPLIT], v[:, s : s + twins.SPLIT], visible[:, s : s + twins.SPLIT], cap
        )
        for s in range(0, positions, twins.SPLIT)
    ]
    found = twins.attention_combine(partials)
    scores = q @ k
    scores = np.where(visible, cap * np.tanh(scores / cap) if cap else scores, -np.inf)
    share = np.exp(scores - scores.max(axis=-1, keepdims=True))
    expected = share @ v / share.sum(axis=-1, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_a_split_nobody_sees_adds_exactly_nothing():
    random = np.random.default_rng(3)
    q, k, v = (random.standard_normal(shape).astype(np.float32) for shape in ((2, 5, 8), (2, 8, 256), (2, 256, 8)))
    seen = twins.attention(q, k, v, None)
    blind = twins.attention(q, k, v, np.zeros((5, 256), bool))
    alone = twins.attention_combine([seen])
    assert np.array_equal(twins.attention_combine([seen, blind]), alone)
    assert np.array_equal(twins.attention_combine([blind, seen, blind]), alone)
