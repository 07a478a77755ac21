"""Mixtures of experts on the device where no fixture goes: two types of gate and up, odd sizes, rows gone wrong."""

from dataclasses import replace

import numpy as np
import pytest

from llamay.bench import synthetic
from llamay.bench.shapes import Mix, Shape
from llamay.quant import TensorType, dequantize
from llamay.tensor.batch import Batch
from llamay.tensor.numpy import NumpyExecutor
from llamay.tensor.program import ExpertGated, Linear

TABLE = np.array([1, 3, 0, 2], np.int32)


def in_f32(linear: Linear) -> Linear:
    """The same weights, held as float32."""
    (matrix,) = linear.parts

    def read(start, stop):
        return dequantize(matrix.type, matrix.read(start, stop)).view(np.uint8).reshape(stop - start, -1)

    return replace(linear, parts=(replace(matrix, type=TensorType.F32, read=read),))


def test_gate_and_up_of_two_types(program, opened, named_case):
    """They lie in streams of their own, and pairs are activated in a dispatch of its own."""
    model, ids = program("mixtral.f16"), named_case("mixtral.f16").ids("p33")
    changed = [
        replace(op, up=tuple(map(in_f32, op.up))) if isinstance(op, ExpertGated) else op for op in model.operations
    ]
    apart = opened(replace(model, operations=tuple(changed)), 4)
    assert all(apart.memory.woven(op) is None for op in changed if isinstance(op, ExpertGated))
    batch = Batch.single(ids, 0, TABLE, np.arange(33, dtype=np.int32))
    found = apart.forward(batch)
    assert np.abs(found - named_case("mixtral.f16").logits("p33")).max() <= 3e-4
    alone = apart.forward(Batch.single(ids[-1:], 32, TABLE))  # a pair a workgroup
    assert np.array_equal(alone[0], found[-1])


def test_a_sequence_gone_wrong(program, opened):
    """One whose keys and values are not numbers spoils itself alone, though its pairs share groups with others."""
    executor = opened(program("qwen2moe.f16"), 4)
    ids, tables = np.arange(24, dtype=np.int32) * 5, (TABLE[:2], TABLE[2:])
    expected = executor.forward(Batch.single(ids, 0, tables[0], np.arange(20, 24, dtype=np.int32)))
    for buffer in (*executor.memory.keys, *executor.memory.values):
        page = buffer.size // 5
        executor.device.write(buffer, np.full(page // 4, np.nan, np.float32), int(tables[1][0]) * page)
    both = Batch(
        np.array([5, *ids[20:]], np.int32), np.array([9, 20, 21, 22, 23], np.int32), np.array([1, 0, 0, 0, 0], np.int32),
        tables, np.arange(5, dtype=np.int32),
    )  # fmt: skip
    found = executor.forward(both)
    assert np.isnan(found[0]).any() and np.array_equal(found[1:], expected)


@pytest.mark.parametrize(("hidden", "width", "experts", "used"), [(66, 37, 5, 5), (64, 33, 7, 1)])
def test_sizes_that_fill_no_tile(hidden, width, experts, used, opened, chunked):
    shape = Shape("granitemoe", 1, hidden, 2, 1, 16, width, 321, 64, 1e4, experts=experts, used=used)
    made = synthetic.build(shape, Mix(TensorType.F16, output=None))
    executor, ids = opened(made.program, 4), np.arange(21, dtype=np.int32) * 7
    batch = Batch.single(ids, 0, TABLE, np.arange(21, dtype=np.int32))
    found, expected = executor.forward(batch), NumpyExecutor(made.program, 4, precise=True).forward(batch)
    assert np.abs(found - expected).max() <= 2e-6 * np.abs(expected).max()
    assert np.array_equal(chunked(executor, ids, 1, TABLE), found)
