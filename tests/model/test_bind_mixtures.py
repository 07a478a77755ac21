"""Binding mixtures of experts: each expert's rows out of the stacked tensors, and shapes that do not fit refused by name."""

from types import SimpleNamespace

import numpy as np
import pytest

from llamay import gguf
from llamay.arch import describe
from llamay.errors import MalformedFile, Unsupported
from llamay.model import bind
from llamay.quant import TensorType, dequantize
from llamay.tensor.program import Attend, Embed, ExpertGated, ExpertResidual, Gated, Head, Qkv, Residual, Route
from llamay.tensor.weights import linear_rows

PLAIN = [Qkv, Attend, Residual, Route, ExpertGated, ExpertResidual]
SHARED = [Qkv, Attend, Residual, Route, ExpertGated, Gated, ExpertResidual]


def bound(case, **tensors):
    """The case's program with tensors replaced: `a__b` is a.b, None removes it."""
    file = gguf.open(case.path)
    changed = dict(file.tensors)
    for name, tensor in tensors.items():
        changed[name.replace("__", ".")] = tensor
    kept = {name: tensor for name, tensor in changed.items() if tensor is not None}
    read = SimpleNamespace(metadata=file.metadata, tensors=kept)
    return bind(read, describe(read))


def shaped(*shape):
    """A tensor of ones."""
    raw = np.ones((int(np.prod(shape[1:], dtype=int)), shape[0]), np.float32).view(np.uint8)
    return SimpleNamespace(shape=shape, type=TensorType.F32, read=lambda start, stop: raw[start:stop])


@pytest.mark.parametrize(("name", "kinds"), [("mixtral", PLAIN), ("qwen2moe", SHARED), ("gpt-oss", PLAIN)])
def test_operations(name, kinds, named_case):
    operations = bound(named_case(f"{name}.f16")).program.operations
    assert [type(op) for op in operations] == [Embed, *kinds * (len(operations) // len(kinds)), Head]


def test_each_expert_has_its_rows_and_biases(named_case):
    case = named_case("gpt-oss.f16")
    tensors = gguf.open(case.path).tensors
    gated, residual = (bound(case).program.operations[at] for at in (5, 6))
    for part, name in ((gated.gate, "gate"), (gated.up, "up"), (residual.down, "down")):
        stored, biases = tensors[f"blk.0.ffn_{name}_exps.weight"], tensors[f"blk.0.ffn_{name}_exps.bias"]
        values = dequantize(stored.type, stored.data).reshape(4, 64, 64)
        for expert, linear in enumerate(part):
            assert np.array_equal(linear_rows(linear, 0, 64), values[expert])
            assert np.array_equal(linear.bias, biases.data.view(np.float32)[expert])


def test_the_router_ends_with_the_gate_of_the_shared_expert(named_case):
    case = named_case("qwen2moe.f16")
    route = bound(case).program.operations[4]
    assert (route.experts, route.linear.rows, route.varying, route.normalised) == (6, 7, True, False)
    gate = gguf.open(case.path).tensors["blk.0.ffn_gate_inp_shexp.weight"]
    assert np.array_equal(linear_rows(route.linear, 6, 7), gate.data.view(np.float32).reshape(1, -1))
    constant = bound(case, blk__0__ffn_gate_inp_shexp__weight=None).program.operations[4]
    assert (constant.linear.rows, constant.varying) == (6, False)


@pytest.mark.parametrize(
    ("name", "tensor", "shape", "words"),
    [
        ("mixtral", "blk.1.ffn_gate_exps.weight", (64, 96, 3), r"has shape \[64, 96, 3\], expected \[64, 96, 4\]"),
        ("mixtral", "blk.0.ffn_down_exps.weight", (64, 96, 4), r"has shape \[64, 96, 4\], expected \[96, 64, 4\]"),
        ("mixtral", "blk.0.ffn_up_exps.weight", (64, 96), r"has shape \[64, 96\], expected \[64, 96, 4\]"),
        ("mixtral", "blk.0.ffn_gate_inp.weight", (64, 5), r"has shape \[64, 5\], expected \[64, 4\]"),
        ("gpt-oss", "blk.0.ffn_up_exps.bias", (64, 5), r"has shape \[64, 5\], expected \[64, 4\]"),
        ("gpt-oss", "blk.2.ffn_gate_inp.bias", (3,), r"has shape \[3\], expected \[4\]"),
        ("gpt-oss", "blk.3.attn_sinks.weight", (5,), r"has shape \[5\], expected \[4\]"),
        ("qwen2moe", "blk.0.ffn_up_shexp.weight", (64, 48), r"has shape \[64, 48\], expected \[64, 96\]"),
        ("qwen2moe", "blk.0.ffn_gate_inp_shexp.weight", (64, 2), r"has shape \[64, 2\], expected \[64, 1\]"),
    ],
)
def test_shapes_that_do_not_fit_are_named(name, tensor, shape, words, named_case):
    with pytest.raises(MalformedFile, match=tensor + " " + words):
        bound(named_case(f"{name}.f16"), **{tensor.replace(".", "__"): shaped(*shape)})


def part(tensor, expert, **other):
    """One expert's matrix of a stacked tensor."""
    rows = tensor.shape[1]
    read = lambda start, stop: tensor.read(expert * rows + start, expert * rows + stop)  # noqa: E731
    return SimpleNamespace(**{"shape": tensor.shape[:2], "type": tensor.type, "read": read, **other})


def test_a_tensor_for_each_expert(named_case):
    """As the first converters wrote them: the same program."""
    case = named_case("mixtral.f16")
    stacked = gguf.open(case.path).tensors
    names = [f"blk.{layer}.ffn_{which}" for layer in range(2) for which in ("gate", "up", "down")]
    apart = {f"{name}.{e}.weight": part(stacked[f"{name}_exps.weight"], e) for name in names for e in range(4)}
    gone = {f"{name}_exps.weight": None for name in names}
    changed = {key.replace(".", "__"): tensor for key, tensor in {**apart, **gone}.items()}
    made, usual = bound(case, **changed), bound(case)
    assert made.audit.unread == ()
    for mine, theirs in zip(made.program.operations, usual.program.operations, strict=True):
        if isinstance(mine, ExpertGated):
            for linear, other in zip((*mine.gate, *mine.up), (*theirs.gate, *theirs.up), strict=True):
                assert np.array_equal(linear_rows(linear, 0, 96), linear_rows(other, 0, 96))
    changed["blk__1__ffn_up__2__weight"] = part(stacked["blk.1.ffn_up_exps.weight"], 2, type=TensorType.BF16)
    with pytest.raises(Unsupported, match=r"blk\.1\.ffn_up\.2\.weight is BF16; that of expert 0 F16"):
        bound(case, **changed)


@pytest.mark.parametrize("tensor", ["ffn_gate_exps.weight", "ffn_gate_inp.weight", "ffn_down_exps.weight"])
def test_a_missing_tensor_is_named(tensor, named_case):
    with pytest.raises(MalformedFile, match=f"no tensor blk.1.{tensor}, expected with shape"):
        bound(named_case("mixtral.f16"), **{f"blk.1.{tensor}".replace(".", "__"): None})
