"""A model's file that is cut short under an executor: a typed error at load or at the step that reads it."""

import os
import shutil

import numpy as np
import pytest

from llamay import gguf
from llamay.arch import describe
from llamay.errors import MalformedFile
from llamay.model import bind
from llamay.tensor.batch import Batch
from llamay.tensor.numpy import NumpyExecutor

BATCH = Batch.single(np.arange(4, dtype=np.int32), 0, np.arange(4, dtype=np.int32))
SHORTER = "became shorter while it was in use"


@pytest.fixture
def bound(named_case, tmp_path):
    """A program over a copy of a model, and the path of that."""
    path = tmp_path / "copy.gguf"
    shutil.copy(named_case("llama-gqa.f16").path, path)
    with gguf.open(path) as file:
        yield bind(file, describe(file)).program, path, file.tensors["token_embd.weight"].offset


def test_numpy_tells_it_at_load(bound) -> None:
    program, path, _ = bound
    os.truncate(path, path.stat().st_size // 2)
    with pytest.raises(MalformedFile, match=SHORTER):
        NumpyExecutor(program, 4, hold=True)


@pytest.mark.parametrize("hold", [True, False])
def test_numpy_tells_it_at_a_step(bound, hold: bool) -> None:
    program, path, embeddings = bound
    executor = NumpyExecutor(program, 4, hold=hold)
    executor.forward(BATCH)
    os.truncate(path, embeddings)
    with pytest.raises(MalformedFile, match=SHORTER):
        executor.forward(BATCH)


def test_webgpu_tells_it_at_load_and_needs_the_file_no_more(bound, adapter) -> None:
    from llamay.tensor.webgpu.device import Device
    from llamay.tensor.webgpu.executor import WebGPUExecutor

    program, path, embeddings = bound
    executor = WebGPUExecutor(Device(adapter), program, 4)
    expected = executor.forward(BATCH)
    os.truncate(path, embeddings)
    assert np.array_equal(executor.forward(BATCH), expected)
    executor.close()
    device = Device(adapter)
    with pytest.raises(MalformedFile, match=SHORTER):
        WebGPUExecutor(device, program, 4)
    device.close()
