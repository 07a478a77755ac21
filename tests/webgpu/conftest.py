"""Executors on the shared device, whose buffers go when a test ends, and programs of any shape."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from llamay import gguf
from llamay.arch import describe
from llamay.bench import shapes, synthetic
from llamay.model import bind
from llamay.quant import TensorType
from llamay.tensor.batch import PAGE, Batch
from llamay.tensor.program import Program
from llamay.tensor.webgpu.device import Device, Guest
from llamay.tensor.webgpu.executor import WebGPUExecutor

Ints = NDArray[np.int32]


@pytest.fixture
def program(named_case: Callable[[str], Any]) -> Callable[[str], Program]:
    """The program of a model of tests/data, with a context that reaches past attention's splits."""

    @functools.cache
    def of(name: str) -> Program:
        file = gguf.open(named_case(name).path)
        return replace(bind(file, describe(file)).program, context=1024)

    return of


@pytest.fixture
def opened(gpu: Device) -> Iterator[Callable[..., WebGPUExecutor]]:
    """Opens a program on the shared device, or on `device`; what it took there is given back at the end."""
    guests: list[Guest] = []

    def open(program: Program, pages: int, device: Device = gpu, **more: Any) -> WebGPUExecutor:
        guests.append(Guest(device))
        return WebGPUExecutor(guests[-1], program, pages, rows=more.pop("rows", 128), **more)

    yield open
    for guest in guests:
        guest.close()


@pytest.fixture
def least(portable_gpu: Device, monkeypatch: pytest.MonkeyPatch) -> Device:
    """The portable device, with at most two tokens a workgroup: those of eight take seconds to compile in software."""
    assert portable_gpu.launch.reduce == "shared" and not portable_gpu.launch.textures
    monkeypatch.setattr(portable_gpu, "launch", replace(portable_gpu.launch, tokens=(1, 2)))
    return portable_gpu


@pytest.fixture(scope="session")
def of_shape() -> Callable[..., synthetic.Synthetic]:
    """A llama with random weights: `of_shape(hidden, ..., type=TensorType.Q4_0)`."""

    def make(
        hidden: int, heads: int, kv_heads: int, head_dim: int, feed_forward: int, vocabulary: int = 320, layers: int = 2,
        context: int = 1024, type: TensorType = TensorType.F16,
    ) -> synthetic.Synthetic:  # fmt: skip
        shape = shapes.Shape(
            "llama", layers, hidden, heads, kv_heads, head_dim, feed_forward, vocabulary, context, rope_base=1e4
        )
        return synthetic.build(shape, shapes.Mix(type, output=None))

    return make


def all_rows(ids: Ints, first: int, table: Ints) -> Batch:
    """One sequence's tokens from position `first` on, every row's logits wanted."""
    return Batch.single(ids, first, table, np.arange(len(ids), dtype=np.int32))


def in_chunks(executor: WebGPUExecutor, ids: Ints, size: int, table: Ints) -> NDArray[np.float32]:
    """Logits of every position, computed `size` tokens at a time."""
    starts = range(0, len(ids), size)
    return np.concatenate([executor.forward(all_rows(ids[s : s + size], s, table)) for s in starts])


@pytest.fixture(scope="session")
def chunked() -> Callable[..., NDArray[np.float32]]:
    """in_chunks"""
    return in_chunks


@pytest.fixture(scope="session")
def scattered() -> Callable[..., tuple[list[Ints], int]]:
    """Page tables for sequences of the given lengths, out of one shuffled pool, and its number of pages."""

    def make(seed: int, *lengths: int) -> tuple[list[Ints], int]:
        needs = [-(-length // PAGE) for length in lengths]
        order = np.random.default_rng(seed).permutation(sum(needs)).astype(np.int32)
        return np.split(order, np.cumsum(needs)[:-1]), sum(needs)

    return make
