"""Binding latent attention: its operations, the one tensor of the first files, and sizes that WGSL does not take."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from llamay import gguf
from llamay.arch import describe
from llamay.errors import MalformedFile, Unsupported
from llamay.model import bind
from llamay.quant import TensorType, dequantize
from llamay.tensor.batch import Batch
from llamay.tensor.numpy import NumpyExecutor
from llamay.tensor.program import (
    Attend,
    Embed,
    ExpertGated,
    ExpertResidual,
    Gated,
    Head,
    Latent,
    Lift,
    Residual,
    Route,
)

LITE, LATER = "deepseek2-lite.f16", "deepseek3.f32"
ATTENTION = [Latent, Attend, Lift, Residual]
EXPERTS = [Route, ExpertGated, Gated, ExpertResidual]


def bound(case, **tensors):
    """The case's program with tensors replaced: `a__b` is a.b, None removes it."""
    file = gguf.open(case.path)
    changed = {**file.tensors, **{name.replace("__", "."): tensor for name, tensor in tensors.items()}}
    kept = {name: tensor for name, tensor in changed.items() if tensor is not None}
    read = SimpleNamespace(metadata=file.metadata, tensors=kept)
    return bind(read, describe(read))


def made(values):
    """A tensor of values [rows, columns]."""
    raw = np.ascontiguousarray(values, np.float32).view(np.uint8)
    return SimpleNamespace(shape=values.shape[::-1], type=TensorType.F32, read=lambda start, stop: raw[start:stop])


@pytest.mark.parametrize(("name", "layers"), [(LITE, 27), (LATER, 3)])
def test_operations(name, layers, named_case):
    """The first layer is dense; every tensor is read."""
    found = bound(named_case(name))
    kinds = [Embed, *ATTENTION, Gated, Residual, *[*ATTENTION, *EXPERTS] * (layers - 1), Head]
    assert [type(op) for op in found.program.operations] == kinds and found.audit.unread == ()


def test_the_router_has_a_bias_of_the_choice_alone(named_case):
    route = bound(named_case(LATER)).program.operations[11]
    assert isinstance(route, Route) and len(route.bias) == 8 and route.linear.bias is None
    assert (route.groups, route.groups_used, route.best, route.scale, route.varying) == (4, 2, 2, 2.5, False)
    with pytest.raises(Unsupported, match=r"blk\.1\.exp_probs_b\.bias is a bias on a softmax"):
        file = gguf.open(named_case(LATER).path)
        read = SimpleNamespace(metadata={**file.metadata, "deepseek2.expert_gating_func": 1}, tensors=file.tensors)
        bind(read, describe(read))


def test_one_tensor_for_keys_and_values(named_case):
    """As the first converters wrote it: rows of each head's keys, then of its values; the same logits."""
    case = named_case(LATER)
    stored, changes = gguf.open(case.path).tensors, {}
    for blk in ("blk.0", "blk.1", "blk.2"):
        keys, values = (stored[f"{blk}.attn_{part}_b.weight"] for part in "kv")
        k = dequantize(keys.type, keys.read(0, 128)).reshape(4, 32, 24).transpose(0, 2, 1)
        v = dequantize(values.type, values.read(0, 80)).reshape(4, 20, 32)
        fused = made(np.concatenate([k, v], axis=1).reshape(-1, 32))
        changes |= {f"{blk}.attn_k_b.weight": None, f"{blk}.attn_v_b.weight": None, f"{blk}.attn_kv_b.weight": fused}
    ids, table = case.ids("p33"), np.arange(3, dtype=np.int32)
    found = bound(case, **{name.replace(".", "__"): tensor for name, tensor in changes.items()})
    assert found.audit.unread == ()
    ours, theirs = (NumpyExecutor(made.program, 3).forward(Batch.single(ids, 0, table)) for made in (found, bound(case)))
    assert np.array_equal(ours, theirs)


def test_sizes_that_wgsl_does_not_take_are_named(named_case):
    from llamay.tensor.webgpu.latent import refuse_ragged

    _, latent, _, lift, *_ = bound(named_case(LATER)).program.operations
    refuse_ragged(latent)
    refuse_ragged(lift)
    with pytest.raises(Unsupported, match="has 31 values of the latent; in WGSL they are a multiple of 4, -device numpy"):
        refuse_ragged(replace(latent, absorb=tuple(rows_of(linear, 31) for linear in latent.absorb)))
    with pytest.raises(Unsupported, match="has 18 rows of a head's values"):
        refuse_ragged(Lift(tuple(rows_of(linear, 18) for linear in lift.linears)))


def rows_of(linear, rows):
    """The linear with so many rows."""
    return replace(linear, parts=(replace(linear.parts[0], rows=rows),))


@pytest.mark.parametrize(
    ("tensor", "shape", "words"),
    [
        ("attn_k_b", (24, 32, 3), r"has shape \[24, 32, 3\], expected \[24, 32, 4\]"),
        ("attn_v_b", (20, 32, 4), r"has shape \[20, 32, 4\], expected \[32, 20, 4\]"),
        ("attn_kv_a_mqa", (64, 32), r"has shape \[64, 32\], expected \[64, 48\]"),
        ("attn_q_b", (40, 96), r"has shape \[40, 96\], expected \[40, 160\]"),
        ("attn_kv_a_norm", (48,), r"has shape \[48\], expected \[32\]"),
    ],
)
def test_shapes_that_do_not_fit_are_named(tensor, shape, words, named_case):
    odd = SimpleNamespace(shape=shape, type=TensorType.F32, read=None)
    with pytest.raises(MalformedFile, match=rf"blk\.1\.{tensor}\.weight {words}"):
        bound(named_case(LATER), **{f"blk__1__{tensor}__weight": odd})
