"""Binding state spaces: their operations, sizes that WGSL does not take, and batches that no state can follow."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from llamay import gguf
from llamay.arch import describe
from llamay.errors import MalformedFile, Unsupported, UsageError
from llamay.model import bind
from llamay.tensor.batch import Batch
from llamay.tensor.numpy import NumpyExecutor
from llamay.tensor.program import Scan


def bound(case, **tensors):
    """The case's program with tensors replaced: `a__b` is a.b."""
    file = gguf.open(case.path)
    changed = {**file.tensors, **{name.replace("__", "."): tensor for name, tensor in tensors.items()}}
    read = SimpleNamespace(metadata=file.metadata, tensors=changed)
    return bind(read, describe(read)).program


def test_operations(named_case):
    """One row of either kind: where its parts lie, and what its pages are for."""
    one, two = (next(op for op in bound(named_case(f"{name}.f32")).operations if isinstance(op, Scan)) for name in ("mamba", "mamba2-g2"))
    assert (one.select.rows, one.step.rows, one.step.columns, one.gate_norm) == (36, 128, 4, None)
    assert (one.convolved_at, one.gate_at, one.shared_at, one.heads, one.decay.shape) == (0, 128, 4, 128, (16, 128))
    assert (two.select, two.step, two.gate_norm.weight.shape) == (None, None, (128,))
    assert (two.convolved_at, two.gate_at, two.shared_at, two.heads, two.decay.shape) == (128, 0, 128, 8, (1, 8))
    assert (one.channels, two.channels, one.kernel.shape) == (128, 192, (4, 128))
    assert (one.decay < 0).all() and (two.decay < 0).all()
    normed = next(op for op in bound(named_case("falcon-mamba.f16")).operations if isinstance(op, Scan))
    assert (one.part_eps, two.part_eps, two.parts) == (None, None, ())
    assert (normed.parts, normed.select.rows) == ((12, 8, 8), 28) and normed.part_eps == pytest.approx(1e-5)


def test_pages_of_their_own(named_case):
    """A state's pages are the second group's even where no layer is left for the first."""
    program = bound(named_case("mamba.f32"))
    assert (program.windowed, program.span) == (frozenset({0, 1}), 17)
    executor = NumpyExecutor(program, 4, window_pages=3)
    assert executor.page_bytes(0) == 0 < executor.page_bytes(1)
    assert executor.read_pages(0, [1, 3]).shape == (2, 0)
    executor.copy_pages(0, [(0, 1)])
    executor.write_pages(0, [2], np.empty((1, 0), np.uint8))


@pytest.mark.parametrize(
    ("tensor", "shape", "words"),
    [
        ("ssm_in", (64, 255), r"has shape \[64, 255\], expected \[64, 256\]"),
        ("ssm_conv1d", (3, 128), r"has shape \[3, 128\], expected \[4, 128\]"),
        ("ssm_x", (128, 32), r"has shape \[128, 32\], expected \[128, 36\]"),
        ("ssm_dt", (8, 128), r"has shape \[8, 128\], expected \[4, 128\]"),
    ],
)
def test_shapes_that_do_not_fit_are_named(tensor, shape, words, named_case):
    odd = SimpleNamespace(shape=shape, type=None, read=None)
    with pytest.raises(MalformedFile, match=rf"blk\.1\.{tensor}\.weight {words}"):
        bound(named_case("mamba.f32"), **{f"blk__1__{tensor}__weight": odd})


def test_sizes_that_wgsl_does_not_take_are_named(named_case):
    from llamay.tensor.webgpu.scan import refuse_ragged

    op = next(op for op in bound(named_case("mamba2-g2.f32")).operations if isinstance(op, Scan))
    refuse_ragged(op)
    for changed, words in (
        (replace(op, states=18), "has 18 states of a channel; in WGSL they are a multiple of 4, -device numpy"),
        (replace(op, inner=120), "has 60 channels of a group; in WGSL they are a multiple of 8"),
        (replace(op, states=260), "has 260 states of a channel; in WGSL at most 256"),
    ):
        with pytest.raises(Unsupported, match=words):
            refuse_ragged(changed)


def test_rows_of_a_sequence_stand_together(named_case):
    """What a state is carried through in one go."""
    executor = NumpyExecutor(bound(named_case("mamba.f32")), 4)
    tables = (np.array([0], np.int32), np.array([1], np.int32))
    for sequences, positions in (([0, 1, 0], [0, 0, 1]), ([0, 0, 1], [0, 2, 0])):
        numbers = (np.array(each, np.int32) for each in ([5, 6, 7], positions, sequences))
        with pytest.raises(UsageError, match="one position after the other"):
            executor.forward(Batch(*numbers, tables, np.array([2], np.int32)))
