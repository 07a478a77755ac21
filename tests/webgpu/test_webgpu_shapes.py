"""Shapes that end inside a unit, a tile or a vector, and layers of mixed types: the device agrees with NumPy's float64."""

from dataclasses import replace

import numpy as np
import pytest

from llamay.bench import shapes, synthetic
from llamay.errors import Unsupported
from llamay.quant import TensorType
from llamay.tensor.batch import Batch
from llamay.tensor.numpy import NumpyExecutor
from llamay.tensor.webgpu.launch import SPLIT

T = TensorType
LENGTH = 40


def program(architecture, hidden, heads, kv_heads, head_dim, feed_forward, vocabulary, type, **always):
    """A model of two layers with random weights; matrices of the parts in `always` have another type."""
    shape = shapes.Shape(
        architecture, 2, hidden, heads, kv_heads, head_dim, feed_forward, vocabulary, 64, rope_base=1e4,
        window=16 if architecture.startswith("gemma") else 0,
    )  # fmt: skip
    return synthetic.build(shape, shapes.Mix(type, output=None, always=always)).program


def apart(opened, program, pages, ids, table) -> float:
    """The largest difference between the executors, in units of the largest logit."""
    batch = Batch.single(ids, 0, table, np.arange(len(ids), dtype=np.int32))
    expected = NumpyExecutor(program, pages, precise=True).forward(batch)
    assert np.abs(expected).max() > 0.1
    found = opened(program, pages).forward(batch)
    return float(np.abs(found - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize(
    "shape",
    [
        ("llama", 100, 5, 1, 20, 92, 317, T.F16),
        ("llama", 66, 2, 1, 32, 45, 31, T.F32),
        ("llama", 64, 9, 1, 4, 32, 31, T.F16),  # more query heads than a workgroup of attention does
        ("qwen2", 64, 4, 2, 16, 90, 1000, T.BF16),
        ("qwen3", 96, 3, 3, 32, 68, 33, T.F16),
        ("gemma2", 36, 3, 1, 12, 45, 317, T.BF16),
        ("gemma3", 100, 5, 1, 20, 92, 317, T.F16),
    ],
    ids=lambda shape: f"{shape[0]}-{shape[1]}",
)
def test_ragged(shape, opened, scattered):
    [table], pages = scattered(1, LENGTH)
    ids = np.random.default_rng(2).integers(0, shape[6], LENGTH).astype(np.int32)
    assert apart(opened, program(*shape), pages, ids, table) < 2e-5


@pytest.mark.parametrize(
    ("architecture", "always"),
    [
        ("llama", {"attn_v": T.Q6_K, "ffn_down": T.Q5_K}),  # v a stream of its own
        ("qwen3", {"attn_k": T.F16, "attn_v": T.Q8_0, "ffn_up": T.Q5_0}),  # three streams; gate and up apart
        ("llama", {"attn_q": T.Q4_0, "ffn_gate": T.Q2_K, "attn_output": T.Q3_K}),
    ],
    ids=["v", "k-v-up", "q-gate"],
)
def test_mixed_types(architecture, always, opened, scattered):
    [table], pages = scattered(3, LENGTH)
    ids = np.random.default_rng(4).integers(0, 320, LENGTH).astype(np.int32)
    mixed = program(architecture, 256, 4, 2, 64, 512, 320, T.Q4_K, **always)
    assert apart(opened, mixed, pages, ids, table) < 2e-5


@pytest.mark.parametrize("name", ["llama-gqa.f16", "gemma2.f16", "gemma3.f16"])
def test_far_positions(name, named_case, opened, scattered):
    """Past two splits of attention, windows that reach across their bounds."""
    from llamay import gguf
    from llamay.arch import describe
    from llamay.model import bind

    file = gguf.open(named_case(name).path)
    model = replace(bind(file, describe(file)).program, context=1024)
    length = 2 * SPLIT + 10
    [table], pages = scattered(5, length)
    ids = np.random.default_rng(6).integers(0, 320, length).astype(np.int32)
    assert apart(opened, model, pages, ids, table) < 2e-5


def test_refusals(opened):
    with pytest.raises(Unsupported, match=r"heads of 30 values; .*multiples of 4, -device numpy takes any"):
        opened(program("llama", 90, 3, 1, 30, 92, 317, T.F16), 4)
    with pytest.raises(Unsupported, match=r"of 38 values; .*multiples of 4, -device numpy any"):
        opened(program("gemma2", 38, 2, 1, 20, 44, 317, T.F16), 4)
