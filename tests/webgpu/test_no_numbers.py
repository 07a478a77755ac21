"""Logits that are no numbers end in an error, however tokens are chosen: never in a token that does not exist."""

import numpy as np
import pytest

from llamay import gguf
from llamay.arch import describe
from llamay.errors import ContextFull, WrongNumbers
from llamay.model import bind
from llamay.sample import Sampling
from llamay.serve.request import Reading, Request
from llamay.serve.scheduling.together import Together
from llamay.tensor.batch import Batch
from llamay.tensor.executor import NO_TOKEN
from llamay.tensor.numpy import NumpyExecutor
from llamay.tensor.webgpu.device import Device
from llamay.tensor.webgpu.executor import WebGPUExecutor

TABLE = np.arange(4, dtype=np.int32)
BATCH = Batch.single(np.arange(4, dtype=np.int32), 0, TABLE)
GREEDY = Sampling(temperature=0.0)
HOWS = {"greedy": GREEDY, "top-k": Sampling(), "whole": Sampling(top_k=0, top_p=0.9), "penalties": Sampling(repeat_penalty=1.3)}


def overflowing(case, path):
    """The program of a copy whose weights are all finite, and lead to infinities in the last layer."""
    with gguf.open(case.path) as file:
        layers = describe(file).layers
        tensors = []
        for tensor in file.tensors.values():
            content = tensor.data
            if tensor.name == f"blk.{layers - 1}.ffn_norm.weight":
                content = np.full(tensor.columns, 3e38, np.float32)
            tensors.append((tensor.name, tensor.type, tensor.shape, content))
        gguf.write(path, dict(file.metadata.items()), tensors)
    file = gguf.open(path)
    return bind(file, describe(file)).program


@pytest.mark.parametrize("name", ["llama-gqa.f16", "gemma2.f16"])  # the second caps its logits
def test_no_token_comes_of_what_is_no_number(name: str, named_case, gpu: Device, tmp_path) -> None:
    program = overflowing(named_case(name), tmp_path / "overflowing.gguf")
    for executor in (NumpyExecutor(program, 4), WebGPUExecutor(gpu, program, 4)):
        assert not np.isfinite(executor.forward(BATCH)).all()
        for how in HOWS.values():
            executor.begin((how,), (BATCH.tokens,))
            executor.submit(BATCH, 2)
            assert (executor.collect() == NO_TOKEN).all()


def test_it_ends_the_request_alone(named_case, gpu: Device, tmp_path) -> None:
    program = overflowing(named_case("llama-gqa.f16"), tmp_path / "overflowing.gguf")
    for executor in (NumpyExecutor(program, 8), WebGPUExecutor(gpu, program, 8)):
        together = Together(executor, 64)
        tickets = [together.submit(Request((1, 2, 3))), together.submit(Reading((1, 2, 3)))]
        together.until(lambda: False)
        for ticket in tickets:
            with pytest.raises(WrongNumbers, match="no finite numbers"):
                ticket.result()
        assert not together.cache.contexts


def test_steps_beyond_the_context_are_refused(named_case, gpu: Device) -> None:
    file = gguf.open(named_case("llama-gqa.f16").path)
    program = bind(file, describe(file)).program
    pages = program.context // 16 + 2
    table = np.arange(pages, dtype=np.int32)
    last = Batch.single(np.ones(1, np.int32), program.context - 1, table)
    beyond = Batch.single(np.ones(1, np.int32), program.context, table)
    for executor in (NumpyExecutor(program, pages), WebGPUExecutor(gpu, program, pages)):
        assert executor.forward(last).shape == (1, program.vocabulary)
        with pytest.raises(ContextFull, match=f"position {program.context} lies outside the context of {program.context}"):
            executor.forward(beyond)
        executor.begin((GREEDY,), (np.ones(1, np.int32),))
        with pytest.raises(ContextFull):
            executor.submit(last, 2)
