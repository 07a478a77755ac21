"""Binding: every tensor claimed or named, shapes checked, rotary pairs made neighbours."""

import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamay import gguf
from llamay.arch import describe
from llamay.errors import LlamayError, MalformedFile, Unsupported
from llamay.model import bind, head_order
from llamay.quant import TensorType, dequantize
from llamay.tensor import twins
from llamay.tensor.program import Attend, Embed, Gated, Head, Program, Qkv, Residual, Rope


def opened(case, **tensors):
    """The case's file with tensors replaced: `a__b` is a.b, None removes it."""
    file = gguf.open(case.path)
    changed = dict(file.tensors)
    for name, tensor in tensors.items():
        if tensor is None:
            del changed[name.replace("__", ".")]
        else:
            changed[name.replace("__", ".")] = tensor
    return SimpleNamespace(metadata=file.metadata, tensors=changed)


def fake(shape, type=TensorType.F32):
    columns = shape[0]
    raw = np.ones((int(np.prod(shape[1:], dtype=int)), columns), np.float32).view(np.uint8)
    return SimpleNamespace(shape=shape, type=type, data=raw, release=lambda: None)


def bound(file):
    return bind(file, describe(file))


def test_every_tensor_of_every_model_is_read(case):
    made = bound(gguf.open(case.path))
    total = len(gguf.open(case.path).tensors)
    assert str(made.audit) == f"tensor audit {total} of {total} tensors read, none unread"
    kinds = [type(op) for op in made.program.operations]
    layers = describe(gguf.open(case.path)).layers
    assert kinds == [Embed, *[Qkv, Attend, Residual, Gated, Residual] * layers, Head]
    assert len(made.program.layers) == layers


def test_unread_tensors_are_named(named_case):
    file = opened(named_case("llama-gqa.f16"), blk__0__attn_q__scale=fake((1,)), extra=fake((3, 2)))
    audit = bound(file).audit
    assert (audit.read, audit.total) == (30, 32)
    assert str(audit) == "tensor audit 30 of 32 tensors read, blk.0.attn_q.scale, extra unread"

    many = {f"extra_{index}": fake((1,)) for index in range(11)}
    assert str(bound(opened(named_case("llama-gqa.f16"), **many)).audit).endswith("extra_7 and 3 more unread")


@pytest.mark.parametrize(
    ("name", "shape"),
    [("blk.2.ffn_down.weight", "[160, 64]"), ("output_norm.weight", "[64]"), ("blk.0.attn_v.weight", "[64, 32]")],
)
def test_a_missing_tensor_is_named(name, shape, named_case):
    with pytest.raises(MalformedFile) as refusal:
        bound(opened(named_case("llama-gqa.f16"), **{name.replace(".", "__"): None}))
    assert str(refusal.value) == f"the file has no tensor {name}, expected with shape {shape}"


def test_a_wrong_shape_is_named(named_case):
    with pytest.raises(MalformedFile, match=r"tensor blk.1.ffn_up.weight has shape \[160, 64\], expected \[64, 160\]"):
        bound(opened(named_case("llama-gqa.f16"), blk__1__ffn_up__weight=fake((160, 64))))


def test_trailing_ones_are_no_other_shape(named_case):
    assert bound(opened(named_case("llama-gqa.f16"), output_norm__weight=fake((64, 1, 1)))).audit.read == 30


def test_a_type_without_a_reader_is_named(named_case):
    with pytest.raises(Unsupported, match=r"tensor output\.weight has type IQ2_XS"):
        bound(opened(named_case("llama-gqa.f16"), output__weight=fake((64, 320), TensorType.IQ2_XS)))


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_rope_divisors_must_be_positive(value, named_case):
    divisors = fake((8,))
    divisors.data = np.full((1, 8), value, np.float32).view(np.uint8)
    with pytest.raises(MalformedFile, match=r"rope_freqs\.weight"):
        bound(opened(named_case("llama-rope-llama3.f16"), rope_freqs__weight=divisors))


def test_tied_output_is_the_same_matrix(named_case):
    program = bound(gguf.open(named_case("qwen3.f16").path)).program
    assert program.operations[-1].linear.parts[0] is program.operations[0].table
    program = bound(gguf.open(named_case("llama-gqa.f16").path)).program
    assert program.operations[-1].linear.parts[0] is not program.operations[0].table


def test_equal_layers_share_a_rope(named_case):
    def ropes(name: str) -> int:
        program: Program = bound(gguf.open(named_case(name).path)).program
        return len({id(op.rope) for op in program.layers})

    assert ropes("llama-gqa.f16") == 1 and ropes("gemma3.f16") == 2


def test_biases_of_fused_parts(named_case):
    """qwen2's q and k biases follow their rows; the whole bias has one entry a fused row."""
    file = gguf.open(named_case("qwen2.f16").path)
    qkv = bound(file).program.layers[1]
    parts = [file.tensors[f"blk.1.attn_{part}.bias"] for part in "qkv"]
    q, k, v = (dequantize(tensor.type, tensor.data).reshape(-1) for tensor in parts)
    expected = np.concatenate([q[qkv.linear.parts[0].order], k[qkv.linear.parts[1].order], v])
    assert np.array_equal(qkv.linear.bias, expected) and not np.array_equal(qkv.linear.bias[: len(q)], q)
    assert bound(gguf.open(named_case("llama-gqa.f16").path)).program.layers[0].linear.bias is None


@given(st.integers(1, 3), st.integers(1, 8), st.integers(0, 4), st.integers(0, 2**32 - 1))
def test_neighbours_turn_like_halves(heads, half, rest, seed):
    """Rotary pairs half a head apart equal neighbouring pairs of the reordered rows, passed-through rows included."""
    head_dim, random = 2 * half + rest, np.random.default_rng(seed)
    order = head_order(heads, head_dim, 2 * half)
    assert sorted(order) == list(range(heads * head_dim))
    x, angles = random.standard_normal(heads * head_dim), random.standard_normal(half)
    first, second = (x.reshape(heads, head_dim)[:, part] for part in (slice(0, half), slice(half, 2 * half)))
    halves = x.reshape(heads, head_dim).copy()
    halves[:, :half] = first * np.cos(angles) - second * np.sin(angles)
    halves[:, half : 2 * half] = second * np.cos(angles) + first * np.sin(angles)
    turn = twins.rotation(np.array([1], np.int32), Rope(angles), np.float64)
    neighbours = twins.rope(x[order].reshape(1, heads, head_dim), *turn)
    np.testing.assert_allclose(neighbours.reshape(-1), halves.reshape(-1)[order])


@pytest.mark.parametrize("index", range(30))
def test_no_tensor_may_have_another_shape(index, named_case):
    """Nothing of a tensor is read before its shape fits, so it may have no data at all here."""
    file = gguf.open(named_case("llama-gqa.f16").path)
    name, real = list(file.tensors.items())[index]
    for shape in ((), (0,), (2**40,), (*real.shape, 2), tuple(size + 1 for size in real.shape)):
        lying = SimpleNamespace(shape=shape, type=TensorType.F32, release=lambda: None)
        with pytest.raises(LlamayError, match=r"token_embd|has shape"):
            bound(SimpleNamespace(metadata=file.metadata, tensors={**file.tensors, name: lying}))


def test_a_hostile_head_count_allocates_nothing(named_case):
    file = gguf.open(named_case("qwen2.f16").path)
    keys = {"qwen2.attention.head_count": 65536, "qwen2.attention.head_count_kv": 65536}
    keys |= {"qwen2.attention.key_length": 4096, "qwen2.attention.value_length": 4096}
    file = SimpleNamespace(metadata={**file.metadata, **keys}, tensors=file.tensors)
    tracemalloc.start()
    with pytest.raises(MalformedFile, match=r"expected \[64, 268435456\]"):
        bound(file)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 8 << 20
