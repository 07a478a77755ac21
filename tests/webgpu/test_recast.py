"""Models of the types that lie otherwise where the processor computes, in both forms: bits, ids and memory."""

from dataclasses import replace

import numpy as np
import pytest

from llamay.bench import shapes, synthetic
from llamay.quant import TensorType
from llamay.tensor.batch import Batch
from llamay.tensor.cache import cache_format
from llamay.tensor.numpy import NumpyExecutor
from llamay.tensor.webgpu import budget
from llamay.tensor.webgpu.formats import RECAST

SHAPES = {
    "dense": shapes.Shape("llama", 1, 768, 4, 2, 64, 1280, 509, 1024, 1e4),
    "experts": shapes.Shape("qwen3moe", 1, 256, 4, 2, 64, 256, 320, 1024, 1e4, experts=5, used=2),
}
TOKENS, PAGES = 20, 2
TABLE = np.array([1, 0], np.int32)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("type", RECAST, ids=lambda type: type.name)
def test_models(type: TensorType, shape: str, gpu, opened, chunked, monkeypatch: pytest.MonkeyPatch) -> None:
    """Near NumPy and with equal bits in any chunks; equal ids have equal bits; what is counted before is what is taken."""
    program = synthetic.build(SHAPES[shape], shapes.Mix(type, output=type)).program
    ids = np.random.default_rng(1).integers(0, program.vocabulary, TOKENS).astype(np.int32)
    expected = NumpyExecutor(program, PAGES).forward(Batch.single(ids, 0, TABLE, np.arange(TOKENS, dtype=np.int32)))
    found = {}
    for recast in (True, False):
        monkeypatch.setattr(gpu, "launch", replace(gpu.launch, recast=recast))
        executor = opened(program, PAGES)
        logits = chunked(executor, ids, TOKENS, TABLE)
        assert np.abs(logits - expected).max() < 2e-5 * np.abs(expected).max()
        assert np.array_equal(chunked(executor, ids, 7, TABLE), logits)
        assert np.array_equal(found.setdefault(executor.numerics, logits), logits)
        need = budget.need(executor.device, program, executor.rows, PAGES, executor.layout, 0, cache_format("f32"))
        assert need.weights == executor.memory.weight_bytes
        formats = {stream.format for streams in executor.memory._streams.values() for stream in streams}
        assert (RECAST[type] in formats) is recast
