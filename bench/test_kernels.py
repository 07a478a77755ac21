"""Decoding one wide layer in each format, and attention at different lengths of context."""

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from llamay.bench.shapes import Shape
from llamay.quant import LAYOUTS, TensorType
from llamay.tensor.batch import Batch

STEPS = 4
LAYER = Shape("llama", 1, 2048, 32, 8, 64, 8192, 512, 8192, 5e5)  # the layer of a model of a billion weights
NARROW = Shape("llama", 4, 256, 32, 8, 64, 256, 512, 8192, 5e5)  # nearly nothing but attention
TYPES = [type for type in LAYOUTS if type != TensorType.Q8_1]


@pytest.mark.parametrize("type", TYPES, ids=lambda type: type.name.lower())
def test_decode_by_format(benchmark: BenchmarkFixture, make, settle, type: TensorType) -> None:
    """Four tokens through one layer; `weights` a round are what the rate is of."""
    executor = make(LAYER, type, 128)
    settle(executor, 8)
    weights = sum(dims[0] * dims[1] for _, dims in LAYER.tensors() if len(dims) == 2)
    benchmark.extra_info["weights a token"] = weights
    benchmark.extra_info["bytes a token"] = weights // LAYOUTS[type].elements * LAYOUTS[type].bytes

    def decode() -> None:
        executor.submit(None, STEPS)
        executor.collect()

    benchmark.pedantic(decode, rounds=20, warmup_rounds=2)


@pytest.mark.parametrize("context", [64, 256, 1024, 4096])
def test_attention_by_context(benchmark: BenchmarkFixture, make, context: int) -> None:
    """One token that looks back on so many, in four layers."""
    executor = make(NARROW, TensorType.F16, context + 16)
    table, tokens = np.arange(executor.pages, dtype=np.int32), np.ones(1, np.int32)
    benchmark(lambda: executor.forward(Batch.single(tokens, context - 1, table)))


@pytest.mark.parametrize("rows", [1, 2, 4, 8, 32, 128])
def test_prefill_by_rows(benchmark: BenchmarkFixture, make, rows: int) -> None:
    """So many rows through one layer at once."""
    executor = make(LAYER, TensorType.Q4_K, 256)
    table, tokens = np.arange(executor.pages, dtype=np.int32), np.ones(rows, np.int32)
    benchmark(lambda: executor.forward(Batch.single(tokens, 0, table)))
