"""Binding: every tensor claimed or named, shapes checked, rotary pairs made neighbours."""

import tracemalloc
from itertools import chain
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
from llamay.tensor.program import Attend, Embed, Gated, Head, Program, Qkv, Residual, Rope, Scan, ShortConv, Ungated


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
    return SimpleNamespace(shape=shape, type=type, read=lambda start, stop: raw[start:stop])


def counted(length):
    """A vector 0, 1, 2..."""
    raw = np.arange(length, dtype=np.float32)[None].view(np.uint8)
    return SimpleNamespace(shape=(length,), type=TensorType.F32, read=lambda start, stop: raw[start:stop])


def bound(file):
    return bind(file, describe(file))


def test_every_tensor_of_every_model_is_read(case):
    made = bound(gguf.open(case.path))
    total = len(gguf.open(case.path).tensors)
    assert str(made.audit) == f"tensor audit {total} of {total} tensors read, none unread"
    kinds = [type(op) for op in made.program.operations]
    config = describe(gguf.open(case.path))
    wide = Gated if config.gated else Ungated
    parallel, sequential = [Qkv, Attend, wide, Residual, Residual], [Qkv, Attend, Residual, wide, Residual]
    if config.space is not None:
        scanned = [Scan, Residual, *([wide, Residual] if config.feed_forward[0] else [])]
        by_layer = [sequential if heads else scanned for heads in config.kv_heads]
        assert kinds == [Embed, *chain.from_iterable(by_layer), Head]
    elif config.short_conv:
        by_layer = [sequential if heads else [ShortConv, *sequential[2:]] for heads in config.kv_heads]
        assert kinds == [Embed, *chain.from_iterable(by_layer), Head]
    elif config.mixture is None:  # of mixtures see test_bind_mixtures
        assert kinds == [Embed, *(parallel if config.parallel else sequential) * config.layers, Head]
    assert len(made.program.layers) == config.layers


def test_unread_tensors_are_named(named_case):
    file = opened(named_case("llama-gqa.f16"), blk__0__attn_q__scale=fake((1,)), extra=fake((3, 2)))
    audit = bound(file).audit
    assert (audit.read, audit.total) == (30, 32)
    assert str(audit) == "tensor audit 30 of 32 tensors read, blk.0.attn_q.scale, extra unread"

    many = {f"extra_{index}": fake((1,)) for index in range(11)}
    assert str(bound(opened(named_case("llama-gqa.f16"), **many)).audit).endswith("extra_7 and 3 more unread")


@pytest.mark.parametrize(
    ("name", "shape"),
    [("blk.2.ffn_down.weight", "[160, 64]"), ("output_norm.weight", "[64]"), ("blk.0.attn_v.weight", "[64, 32]"), ("blk.1.ffn_gate.weight", "[64, 160]")],
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
    with pytest.raises(Unsupported, match=r"tensor output\.weight has type I8"):
        bound(opened(named_case("llama-gqa.f16"), output__weight=fake((64, 320), TensorType.I8)))


@pytest.mark.parametrize("value", [0.0, -1.0, np.nan, np.inf])
def test_rope_divisors_must_be_positive(value, named_case):
    divisors = fake((8,))
    divisors.read = lambda start, stop: np.full((1, 8), value, np.float32).view(np.uint8)
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


@pytest.mark.parametrize(("name", "layers"), [("gemma2", {0, 2}), ("phi3-swa", set()), ("olmo2", set())])
def test_windows_have_pages_of_their_own_only_beside_layers_without(name, layers, named_case):
    """phi3's two layers both slide."""
    assert bound(gguf.open(named_case(f"{name}.f16").path)).program.windowed == layers


def test_biases_of_fused_parts(named_case):
    """qwen2's q and k biases follow their rows; the whole bias has one entry a fused row."""
    file = gguf.open(named_case("qwen2.f16").path)
    qkv = bound(file).program.layers[1]
    parts = [file.tensors[f"blk.1.attn_{part}.bias"] for part in "qkv"]
    q, k, v = (dequantize(tensor.type, tensor.data).reshape(-1) for tensor in parts)
    expected = np.concatenate([q[qkv.linear.parts[0].order], k[qkv.linear.parts[1].order], v])
    assert np.array_equal(qkv.linear.bias, expected) and not np.array_equal(qkv.linear.bias[: len(q)], q)
    assert bound(gguf.open(named_case("llama-gqa.f16").path)).program.layers[0].linear.bias is None


def test_fused_tensors_are_cut_into_their_parts(named_case):
    """phi3 stacks q, k, v in one tensor, and gate and up in another; the rows of q and k are turned within their part."""
    file = gguf.open(named_case("phi3-swa.f16").path)
    program = bound(file).program
    qkv, gated = program.operations[1], program.operations[4]
    whole = np.asarray(file.tensors["blk.0.attn_qkv.weight"].data).reshape(128, -1)
    q, k, v = qkv.linear.parts
    assert np.array_equal(q.take(np.arange(64)), whole[:64][q.order])
    assert np.array_equal(k.take(np.arange(32)), whole[64:96][k.order])
    assert np.array_equal(v.take(np.arange(32)), whole[96:])
    both = np.asarray(file.tensors["blk.0.ffn_up.weight"].data).reshape(256, -1)
    assert np.array_equal(gated.gate.parts[0].read(5, 9), both[5:9])
    assert np.array_equal(gated.up.parts[0].read(5, 9), both[133:137])


@pytest.mark.parametrize(
    ("name", "attention", "feed_forward"),
    [
        ("falcon-7b", "attn_norm", "attn_norm"),
        ("falcon-40b", "attn_norm_2", "attn_norm"),
        ("gptneox-parallel", "attn_norm", "ffn_norm"),
        ("stablelm-2-12b", "attn_norm", "attn_norm"),
    ],
)
def test_the_norms_of_parallel_branches(name, attention, feed_forward, named_case):
    """The two of a block that has one norm share it, so that it is computed once."""
    file = gguf.open(named_case(f"{name}.f16").path)
    operations = bound(file).program.operations
    norms = [operations[1].norm, operations[3].norm]
    for norm, tensor in zip(norms, (attention, feed_forward), strict=True):
        assert norm.kind == "layer" and norm.bias is not None
        assert np.array_equal(norm.weight, file.tensors[f"blk.0.{tensor}.weight"].data.reshape(-1).view(np.float32))
    assert (norms[0] is norms[1]) == (attention == feed_forward)
    assert [op.branch for op in operations[4:6]] == ["attention", "feed_forward"]


def test_head_norms_follow_their_rows(named_case):
    """stablelm norms each head with weights of its own, which turn with the rows of q."""
    file = gguf.open(named_case("stablelm-2-12b.f16").path)
    qkv = bound(file).program.layers[0]
    weight = np.asarray(file.tensors["blk.0.attn_q_norm.weight"].data).view(np.float32).reshape(-1)
    assert qkv.head_norms == "layer" and np.array_equal(qkv.q_norm.weight, weight[qkv.linear.parts[0].order])
    assert bound(gguf.open(named_case("stablelm-3b.f16").path)).program.layers[0].head_norms == ""


def test_a_fused_tensor_of_another_height_is_named(named_case):
    for name, shape in (("blk.1.attn_qkv.weight", "128"), ("blk.1.ffn_up.weight", "256")):
        wrong = {name.replace(".", "__"): fake((64, 130))}
        with pytest.raises(MalformedFile, match=rf"{name} has shape \[64, 130\], expected \[64, {shape}\]"):
            bound(opened(named_case("phi3-swa.f16"), **wrong))


def test_the_bias_of_a_fused_tensor_is_cut_with_it(named_case):
    qkv = bound(opened(named_case("phi3-swa.f16"), blk__0__attn_qkv__bias=counted(128))).program.layers[0]
    q, k, _ = qkv.linear.parts
    assert qkv.linear.bias.tolist() == [*q.order, *(64 + k.order), *range(96, 128)]


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
        lying = SimpleNamespace(shape=shape, type=TensorType.F32, read=None)
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
