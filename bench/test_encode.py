"""What the host does for a decode step while the device is idle: recording the commands and handing them over."""

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from llamay.bench.shapes import SHAPES, Shape
from llamay.quant import TensorType
from llamay.tensor.executor import Executor

# as many layers as SmolLM2-135M has, so narrow that the device is soon done
DEEP = Shape("llama", SHAPES["smollm2-135m"].layers, 64, 2, 1, 32, 64, 256, 8192, 1e4)


@pytest.mark.parametrize("steps", [1, 8])
def test_encode_a_submission(benchmark: BenchmarkFixture, make, settle, steps: int) -> None:
    """Submitting decode steps; on NumPy it computes them."""
    executor: Executor = make(DEEP, TensorType.F16, 512)
    settle(executor, 8)
    benchmark.extra_info["steps"] = steps
    outstanding = []

    def idle() -> None:
        while outstanding:
            outstanding.pop()
            executor.collect()

    def submit() -> None:
        executor.submit(None, steps)
        outstanding.append(steps)

    benchmark.pedantic(submit, setup=idle, rounds=30, warmup_rounds=3)
    idle()
