"""Weights that are no numbers are the file's fault and not the adapter's; weights of zero are nobody's."""

import re

import numpy as np
import pytest

from llamay import gguf
from llamay.arch import describe
from llamay.errors import MalformedFile
from llamay.model import bind
from llamay.tensor.batch import Batch
from llamay.tensor.numpy import NumpyExecutor
from llamay.tensor.webgpu.device import Device
from llamay.tensor.webgpu.executor import WebGPUExecutor

TABLE = np.arange(20, dtype=np.int32)
BATCH = Batch.single(np.arange(4, dtype=np.int32), 0, TABLE)


@pytest.fixture
def fresh_gpu(adapter):
    """A device on which nothing was tested yet."""
    device = Device(adapter)
    yield device
    device.close()


def rewritten(case, path, pattern: str, half: bytes):
    """The program of a copy whose f16 tensors of matching names hold nothing but this half."""
    changed = 0
    with gguf.open(case.path) as file:
        tensors = []
        for tensor in file.tensors.values():
            content = bytes(tensor.data)
            if re.fullmatch(pattern, tensor.name) and tensor.type.name == "F16":
                content, changed = half * (len(content) // 2), changed + 1
            tensors.append((tensor.name, tensor.type, tensor.shape, content))
        gguf.write(path, dict(file.metadata.items()), tensors)
    assert changed
    file = gguf.open(path)
    return bind(file, describe(file)).program


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("half", [b"\xff\x7f", b"\x00\x7c", b"\x00\xfc"], ids=["nan", "inf", "-inf"])
@pytest.mark.parametrize("pattern", ["token_embd.*", "blk.1.attn_v.*", "blk.0.ffn_up.*", ".*"])
def test_damaged_weights_are_the_files_fault(pattern: str, half: bytes, named_case, fresh_gpu, tmp_path) -> None:
    program = rewritten(named_case("llama-gqa.f16"), tmp_path / "damaged.gguf", pattern, half)
    with pytest.raises(MalformedFile, match="the weights are damaged"):
        NumpyExecutor(program, 20).forward(BATCH)
    with pytest.raises(MalformedFile, match=r"the weights are damaged: row 0 of .* holds what is no finite number"):
        WebGPUExecutor(fresh_gpu, program, 20)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("pattern", ["token_embd.*", ".*"])
def test_weights_of_zero_are_right(pattern: str, named_case, fresh_gpu, tmp_path) -> None:
    program = rewritten(named_case("llama-gqa.f16"), tmp_path / "zeros.gguf", pattern, b"\0\0")
    found = WebGPUExecutor(fresh_gpu, program, 20).forward(BATCH)
    assert np.array_equal(found, NumpyExecutor(program, 20).forward(BATCH)) and not found.any()
