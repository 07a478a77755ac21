"""Decoding one wide layer in each format, and attention at different lengths of context."""

import time
from itertools import pairwise

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
    """Four tokens through one layer; `weights` a round are what the rate is of.

    A software adapter computes on the process's threads: its CPU time tells what a busy machine's clock does not.
    """
    executor = make(LAYER, type, 128)
    settle(executor, 8)
    weights = sum(dims[0] * dims[1] for _, dims in LAYER.tensors() if len(dims) == 2)
    benchmark.extra_info["weights a token"] = weights
    benchmark.extra_info["bytes a token"] = weights // LAYOUTS[type].elements * LAYOUTS[type].bytes

    def decode() -> None:
        executor.submit(None, STEPS)
        executor.collect()

    spent = []

    def begin() -> None:
        spent.append(time.process_time())

    benchmark.pedantic(decode, setup=begin, rounds=20, warmup_rounds=2)
    benchmark.extra_info["CPU seconds a token, best"] = min(after - before for before, after in pairwise(spent)) / STEPS


@pytest.mark.timeout(1800)
def test_formats_in_turn(make, settle, capsys: pytest.CaptureFixture[str]) -> None:
    """Weights a CPU second against Q4_K's, a few tokens of each format in turn: others' work falls on all alike."""
    packed = [type for type in TYPES if LAYOUTS[type].bytes < 2 * LAYOUTS[type].elements]
    types = sorted(packed, key=lambda type: type != TensorType.Q4_K)
    executors = {type: make(LAYER, type, 256) for type in types}
    for executor in executors.values():
        settle(executor, 8)
    spent: dict[TensorType, list[float]] = {type: [] for type in types}
    for _ in range(24):
        for type, executor in executors.items():
            begun = time.process_time()
            executor.submit(None, STEPS)
            executor.collect()
            spent[type].append((time.process_time() - begun) / STEPS)
    with capsys.disabled():
        for type, own in spent.items():
            ratio = np.median(np.array(spent[TensorType.Q4_K]) / np.array(own))
            print(f"\n{type.name:8} {min(own) * 1e3:6.2f} ms a token at best, {ratio:.2f} times the weights of Q4_K", end="")


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
