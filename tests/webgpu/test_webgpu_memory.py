"""Weights on the device: no larger than the file's, cut where bindings end without changing a bit; nothing made in the loop."""

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from llamay.errors import ContextFull, OutOfMemory, UsageError
from llamay.quant import LAYOUTS, TensorType
from llamay.sample import Sampling
from llamay.tensor.batch import Batch
from llamay.tensor.webgpu.device import Guest
from llamay.tensor.webgpu.formats import FORMATS, tile_vectors
from llamay.tensor.webgpu.launch import LAUNCHES, SPLIT
from llamay.tensor.webgpu.memory import Memory
from llamay.tensor.webgpu.state import StateLayout

GREEDY = Sampling(temperature=0.0)
LIMIT = 21 << 10  # bytes: the pages of the tiny models fit, most matrices do not
NONE = np.empty(0, np.int32)
LARGEST = {"iq3_s_nibbles": 1.22}  # of the file's size; whoever computes on the processor has it looked up when it is loaded
WIDTHS = (576, 640, 896, 1152, 1536, 2048, 2304, 2560, 3072, 4864, 8960, 11008)  # of real models
SOAKED = [pytest.param(f"{name}.f16", marks=pytest.mark.soak) for name in ("llama-mha-bias", "gemma3")]
MAKERS = ("buffer", "texture", "bind_group", "bind_group_layout", "compute_pipeline", "shader_module", "query_set")


@pytest.mark.parametrize("launch", LAUNCHES)
@pytest.mark.parametrize("type", FORMATS, ids=lambda type: type.name)
def test_streams_are_no_larger_than_files(type, launch):
    layout, launch = LAYOUTS[type], LAUNCHES[launch]
    fitting = [columns for columns in WIDTHS if columns % layout.elements == 0]
    assert fitting
    for columns in fitting:
        for rows in (192, 576, 1536, 49152):
            for normed in (False, True):
                tile = launch.tile_for(rows, normed=normed)
                ours = 16 * tile_vectors(launch.format(type), columns, tile, False) * -(-rows // tile.height)
                assert ours <= LARGEST.get(launch.format(type).name, 1.05) * rows * layout.row_bytes(columns), (columns, rows, tile)


@pytest.mark.parametrize("textures", [False, True])
@pytest.mark.parametrize("type", [TensorType.Q4_1, TensorType.Q8_0, TensorType.F16], ids=lambda type: type.name)
def test_weight_bytes(type, textures, of_shape, gpu, monkeypatch):
    """All matrices of layers as wide as those of SmolLM2-135M, the padding of textures included."""
    monkeypatch.setattr(gpu, "launch", replace(gpu.launch, textures=textures))
    made = of_shape(576, 9, 3, 64, 1536, vocabulary=4096, type=type)
    layout, guest = StateLayout(8, 64), Guest(gpu)
    taken = Memory(guest, made.program, layout.rows, 2, layout).weight_bytes
    guest.close()
    vectors = 4 * 576 * 5
    assert 0.95 * made.bytes <= taken <= 1.05 * (made.bytes - vectors)


def cut(name, limit, opened, program, gpu, monkeypatch, key="max-storage-buffer-binding-size"):
    """The model's logits with bindings of at most `limit` bytes, and how many streams it then has."""
    with monkeypatch.context() as patch:
        if limit:
            patch.setitem(gpu.limits, key, limit)
        executor = opened(program(name), 4)
    streams = sum(len(streams) for streams in executor.memory._streams.values())
    ids = np.random.default_rng(1).integers(0, 320, 40).astype(np.int32)
    table = np.array([2, 0, 3, 1], np.int32)
    logits = executor.forward(Batch.single(ids, 0, table, np.arange(40, dtype=np.int32)))
    executor.begin((GREEDY,), (ids,))
    executor.submit(Batch.single(ids, 0, table), 5)
    return logits, executor.collect()[:, 0].tolist(), streams


@pytest.mark.parametrize("name", ["llama-headdim-tied.f16", "qwen2-k.q4_0-mix", "mixtral.f16", *SOAKED])
def test_matrices_cut_at_the_binding_limit(name, opened, program, gpu, monkeypatch):
    logits, tokens, streams = cut(name, 0, opened, program, gpu, monkeypatch)
    again, same, more = cut(name, LIMIT, opened, program, gpu, monkeypatch)
    assert more > 1.2 * streams
    assert np.array_equal(logits, again) and tokens == same


def test_matrices_cut_at_the_texture_limit(opened, program, gpu, monkeypatch):
    monkeypatch.setattr(gpu, "launch", replace(gpu.launch, textures=True))
    logits, tokens, streams = cut("llama-gqa.f16", 0, opened, program, gpu, monkeypatch)
    again, same, more = cut("llama-gqa.f16", 1, opened, program, gpu, monkeypatch, "max-texture-dimension-2d")
    assert more > streams
    assert np.array_equal(logits, again) and tokens == same


def test_a_row_that_fits_no_binding(opened, program, gpu, monkeypatch):
    with pytest.raises(OutOfMemory, match=r"rows take [\d,]+ bytes, a binding 100"):
        cut("llama-gqa.f16", 100, opened, program, gpu, monkeypatch)


@pytest.mark.parametrize("name", ["llama-gqa.f16", "qwen2.f16"])
def test_dispatches(name, opened, program):
    """Five a layer, and embedding, head and choice."""
    executor = opened(program(name), 4)
    executor.begin((GREEDY,), (NONE,))
    layers = len(executor.program.layers)
    assert executor.dispatches == 5 * layers + 3


@pytest.fixture
def stepping(opened, program, scattered):
    """An executor that is past its first steps and both attention lists, and a function that takes steps."""
    [table], pages = scattered(1, 1024)
    executor = opened(program("llama-gqa.f16"), pages)

    def steps(submissions, each=8):
        for _ in range(submissions):
            executor.submit(None, each)
            yield executor.collect()

    def start(position):
        executor.begin((GREEDY,), (NONE,))
        executor.submit(Batch.single(np.array([1], np.int32), position, table), 1)
        executor.collect()

    start(SPLIT - 8)
    list(steps(4))
    return executor, start, steps


def test_nothing_is_made_in_the_loop(stepping, monkeypatch):
    """200 steps make one command encoder a submission, and no other object of the device."""
    executor, start, steps = stepping
    start(SPLIT)
    list(steps(2))
    made = []
    handle = executor.device.handle

    def counting(name):
        real = getattr(handle, f"create_{name}")

        def create(*positional, **named):
            if named != {"entries": []}:  # an empty layout is how the device is asked whether it still lives
                made.append(name)
            return real(*positional, **named)

        monkeypatch.setattr(handle, f"create_{name}", create)

    for name in (*MAKERS, "command_encoder"):
        counting(name)
    list(steps(25))
    assert made == ["command_encoder"] * 25


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_memory_does_not_grow(stepping):
    """2,000 steps."""
    _, start, steps = stepping

    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

    seen = []
    for _ in range(9):
        start(SPLIT)
        list(steps(25, 10))
        seen.append(resident())
    growth = seen[-1] - seen[0]
    assert growth < 2 << 20, f"{growth / 2**20:.1f} MiB in 2,000 steps"


def test_refusals(opened, program):
    executor = opened(program("llama-gqa.f16"), 2)
    table = np.arange(2, dtype=np.int32)
    with pytest.raises(UsageError, match="outside the vocabulary of 320"):
        executor.forward(Batch.single(np.array([320], np.int32), 0, table))
    with pytest.raises(ContextFull, match="position 32 lies outside the context of 32"):
        executor.forward(Batch.single(np.array([1], np.int32), 32, table))
    with pytest.raises(UsageError, match="has 1 pages, its positions need 2"):
        executor.forward(Batch.single(np.array([1], np.int32), 31, table[:1]))
    with pytest.raises(UsageError, match="outside the pool of 2"):
        executor.forward(Batch.single(np.array([1], np.int32), 0, np.array([2], np.int32)))
    with pytest.raises(UsageError, match="takes 1 to 64 steps, not 65"):
        executor.submit(None, 65)
    with pytest.raises(UsageError, match="nothing was submitted"):
        executor.collect()


def test_steps_past_the_pages(opened, program, chunked):
    """A step beyond a table would write into the pages that the next table names: it is refused, nobody is harmed."""
    executor = opened(program("llama-gqa.f16"), 3)
    tables = (np.array([2], np.int32), np.array([0, 1], np.int32))
    both = Batch(
        np.array([1, 2], np.int32), np.array([11, 20], np.int32), np.arange(2, dtype=np.int32), tables,
        np.arange(2, dtype=np.int32),
    )  # fmt: skip
    other = np.random.default_rng(2).integers(0, 320, 21).astype(np.int32)
    before = chunked(executor, other, 21, tables[1])
    executor.begin((GREEDY, GREEDY), (NONE, NONE))
    with pytest.raises(ContextFull, match="6 steps were asked for; the page tables and the context have room for 5"):
        executor.submit(both, 6)
    executor.submit(both, 3)
    executor.submit(None, 2)
    with pytest.raises(ContextFull, match="1 steps were asked for; the page tables and the context have room for 0"):
        executor.submit(None, 1)
    assert [executor.collect().shape for _ in range(2)] == [(3, 2), (2, 2)]
    again = executor.forward(Batch.single(other[20:], 20, tables[1]))
    assert np.array_equal(again[0], before[20])


def test_more_sequences_than_splits_fit(opened, program, scattered, monkeypatch):
    """Splits of many long sequences share one buffer; where they would not fit it, steps are refused."""
    tables, pages = scattered(3, *[SPLIT + 16] * 4)
    executor = opened(program("llama-gqa.f16"), pages)
    monkeypatch.setattr(executor.memory, "split_rows", 6)
    four = np.arange(4, dtype=np.int32)
    executor.begin((GREEDY,) * 4, (NONE,) * 4)
    executor.submit(Batch(four, four * 0 + SPLIT - 2, four, tuple(tables), four), 2)
    assert executor.collect().shape == (2, 4)
    with pytest.raises(OutOfMemory, match=f"4 sequences at position {SPLIT} were to step together; 3 fit"):
        executor.submit(None, 1)
