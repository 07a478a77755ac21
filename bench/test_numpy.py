"""The NumPy executor on a model of 135 million weights: prefill and decode, weights held and dequantised as they go."""

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from llamay.bench.synthetic import make as synthetic
from llamay.tensor.batch import Batch
from llamay.tensor.numpy import NumpyExecutor

PAGES = 16
TABLE = np.arange(PAGES, dtype=np.int32)


@pytest.fixture(scope="module", params=[True, False], ids=["held", "as it goes"])
def executor(request: pytest.FixtureRequest):
    made = NumpyExecutor(synthetic("smollm2-135m:q4_1").program, PAGES, hold=request.param)
    yield made
    made.close()


def test_numpy_decode(benchmark: BenchmarkFixture, executor: NumpyExecutor) -> None:
    """One token."""
    tokens = np.ones(1, np.int32)
    benchmark.pedantic(lambda: executor.forward(Batch.single(tokens, 32, TABLE)), rounds=5, warmup_rounds=1)


def test_numpy_prefill(benchmark: BenchmarkFixture, executor: NumpyExecutor) -> None:
    """128 tokens."""
    tokens = np.ones(128, np.int32)
    benchmark.pedantic(lambda: executor.forward(Batch.single(tokens, 0, TABLE)), rounds=3, warmup_rounds=1)
