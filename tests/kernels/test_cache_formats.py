"""The words of every cache format, exactly: what rope_store writes is what the twins of the formats give."""

import numpy as np
import pytest

from llamay.tensor import twins
from llamay.tensor.batch import PAGE
from llamay.tensor.cache import CACHE_FORMATS
from llamay.tensor.pools import LayerPages
from llamay.tensor.program import Linear, Norm, Qkv

HEAD_DIM = 32
ONE = Qkv(0, Norm(np.ones(1, np.float32), 0.0), Linear(()), 1, 1, HEAD_DIM, 1.0, None)


def heads(random):
    """Keys and values [T, 2, hd] to keep: of every size, with ties, zeros and what a format cannot hold."""
    x = (random.standard_normal((14, 2, HEAD_DIM)) * 10.0 ** random.integers(-4, 4, (14, 2, 1))).astype(np.float32)
    x[0, :, 1:5] = 0
    x[1] = 0
    x[2] = np.linspace(-63.5, 63.5, HEAD_DIM)  # a scale of one half
    x[3] = 127
    x[3, :, ::3] = np.arange(11) - 5.5  # ties at a scale of 1
    x[4] *= 1e5 / np.abs(x[4]).max()  # beyond the largest half
    x[5] = 1e-36  # no scale
    x[6] = np.float32(1) + np.arange(HEAD_DIM, dtype=np.float32) * np.float32(2**-11)  # between halves
    x[7] *= 1e-4 * 2.0**-10 / np.abs(x[7]).max()  # subnormal halves
    x[8, :, 7] = -1e9
    return x


@pytest.mark.parametrize("kv", CACHE_FORMATS)
def test_words(lab, pool, variant, kv):
    format = CACHE_FORMATS[kv]
    x = heads(np.random.default_rng(8))
    pages = pool(1, HEAD_DIM, [len(x)], np.random.default_rng(1))
    y = np.concatenate([np.ones((len(x), 1, HEAD_DIM), np.float32), x], 1).reshape(len(x), -1)
    state, where = pages.state(np.arange(len(x)), np.zeros(len(x), int), len(x))
    names = ("keys", "values")
    write = {
        name: lab.poisoned(pages.pages, 1, pages.words(kind), dtype=np.uint32)
        for name, kind in zip(names, (format.keys, format.values), strict=True)
    }
    choices = {
        **variant.attention, "head_norms": "", "one_bit": format.one_bit,
        "key_format": format.keys, "value_format": format.values,
    }  # fmt: skip
    dims = {
        **where, "x_stride": 3 * HEAD_DIM // 4, "y_stride": HEAD_DIM // 4, "scale": 1, "heads": 1, "kv_heads": 1,
        "head_dim": HEAD_DIM,
    }  # fmt: skip
    read = {"qkv": y, "state": state, "turns": np.zeros((1, 2), np.float32)}
    found = lab.run(
        variant, "rope_store", choices, (3, len(x), 1), dims, read, {"q_out": lab.poisoned(len(x), HEAD_DIM), **write}
    )

    layer = LayerPages(ONE, 1, format, np.float32)
    slots = np.arange(len(x))
    with np.errstate(over="ignore"):
        twins.rope_store(
            y, ONE, None, layer.keys, layer.values, slots, layer.key_scales, layer.value_scales, one_bit=format.one_bit
        )
    page = int(pages.tables[0][0])
    kinds = (format.keys, format.values)
    for name, kind, data in zip(names, kinds, (layer.read_keys([0]), layer.read_values([0])), strict=True):
        here, theirs = pieces(name, kind, found[name][page]), pieces(name, kind, data)
        assert len(here[0]) == PAGE
        for line in range(len(x)):
            if kind == "q8":  # a last bit of the scale may move what lies on a tie by one
                np.testing.assert_allclose(here[1][line], theirs[1][line], rtol=3e-7 if not format.one_bit else 2e-6)
                apart = np.abs(here[0][line].astype(int) - theirs[0][line])
                scaled = x[line, names.index(name)] / max(theirs[1][line], 1e-30)
                on_a_tie = np.abs(np.abs(scaled) % 1 - 0.5) < 1e-4
                assert apart.max() <= 1 and not apart[~on_a_tie].any(), line
            else:
                assert np.array_equal(here[0][line], theirs[0][line]), line
        assert np.isfinite(theirs[0][:14].astype(np.float64)).all()


def pieces(name, kind, raw):
    """Elements [16, hd] and scales [16] of one head's page."""
    data = np.ascontiguousarray(raw).reshape(-1).view(np.uint8)
    type = {"f32": np.float32, "f16": np.float16, "q8": np.int8}[kind]
    size = PAGE * HEAD_DIM * np.dtype(type).itemsize
    elements = data[:size].copy().view(type)
    lines = elements.reshape(-1, PAGE, 4).transpose(1, 0, 2) if name == "keys" else elements.reshape(PAGE, HEAD_DIM)
    return lines.reshape(PAGE, HEAD_DIM), data[size:].copy().view(np.float32)
