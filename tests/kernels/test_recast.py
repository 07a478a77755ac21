"""The types that lie otherwise where the processor computes: what they mean, to the last code, sign and step, in both forms."""

from dataclasses import replace

import numpy as np
import pytest

from llamay.quant import TensorType
from llamay.quant.codebooks import CODEBOOKS, Fields, even
from llamay.tensor.webgpu.formats import RECAST
from llamay.tensor.webgpu.launch import LAUNCHES

PLACES = 64  # codes of a block


def every(type: TensorType) -> np.ndarray:
    """Blocks [n, bytes] that have at each place each code with each choice of its four signs, and each code with each step."""
    book = CODEBOOKS[type]
    numbers = np.arange(16 * book.grid.size)[:, None]
    codes = (numbers + 977 * np.arange(PLACES)) % book.grid.size
    nibbles = (numbers // book.grid.size + np.arange(PLACES) // 2) % 16
    low, high = nibbles[:, ::2], nibbles[:, 1::2] * 7 % 16
    signs = (low | high << 4).astype(np.uint8)
    if book.signs == 7:
        signs = np.concatenate([even(signs & 127), even(signs >> 1)])  # once the low four as given, once the high four
        codes = np.tile(codes, (2, 1))
    steps = (codes[:, :: PLACES // 8] + np.arange(len(codes))[:, None] // book.grid.size) % 16
    d = np.float32(0.0117) * (-1) ** np.arange(len(codes))[:, None]
    return book.blocks(Fields(d.astype(np.float32), steps.astype(np.uint8), codes.astype(np.uint16), signs))


@pytest.mark.parametrize("type", RECAST, ids=lambda type: type.name)
def test_blocks_are_complete(type):
    book = CODEBOOKS[type]
    fields = book.fields(every(type))
    signs = np.stack([fields.signs & 15, fields.signs >> 4], -1).reshape(-1, PLACES)
    for place in range(PLACES):
        assert len(np.unique(fields.codes[:, place] * 16 + signs[:, place])) == 16 * book.grid.size
    assert len(np.unique(fields.codes.reshape(-1, 8, 8) * 16 + fields.steps[..., None])) == 16 * book.grid.size


@pytest.mark.parametrize("recast", [True, False])
@pytest.mark.parametrize("launch", ["own", "slim"])
@pytest.mark.parametrize("type", RECAST, ids=lambda type: type.name)
def test_every_weight(lab, type, launch, recast):
    """Through `linear`, whose x is 1 in one place and 0 elsewhere: what NumPy reads, in either form."""
    variant = lab.variant("own")
    if launch == "slim":
        variant = replace(variant, launch=LAUNCHES[launch], tile=LAUNCHES[launch].tile)
    variant = replace(variant, launch=replace(variant.launch, recast=recast))
    raw = every(type)
    for some in np.split(raw, len(raw) // 4096):
        weights = lab.load(variant, type, some)
        write = {"y": lab.poisoned(256, len(some))}
        found = lab.linear(variant, weights, np.eye(256, dtype=np.float32), 1, "plain", {"y_stride": len(some) // 4}, {}, write)
        assert np.array_equal(found["y"], weights.values.T.astype(np.float32))
