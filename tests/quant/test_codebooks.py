"""The codebooks: their points, the blocks that name them, and a search that finds the nearest."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from llamay.quant import LAYOUTS, TensorType, dequantize, grids, quantize
from llamay.quant.codebooks import CODEBOOKS, Fields

VECTORS = Path(__file__).parents[1] / "data" / "quants"
# of the points' bytes in the order of their codes, as ggml's tables have them; recorded blocks name most points, not all
DIGESTS = {
    "IQ3_XXS": "46e35f5a997efdee", "IQ3_S": "bd1af4945a1717c6", "IQ2_XXS": "05826b5d3e472a3a",
    "IQ2_XS": "06e47aaca60b4dc1", "IQ2_S": "e1aa1473412b0552", "IQ1": "07540ffc1aeaf6ad",
}  # fmt: skip
TYPES = pytest.mark.parametrize("type", CODEBOOKS, ids=lambda type: type.name)


@pytest.mark.parametrize("name", DIGESTS)
def test_points_are_ggmls(name):
    grid = getattr(grids, name)
    assert grid.points.shape == (grid.size, grid.width) == grid.digits.shape
    assert hashlib.sha256(grid.points.astype(np.int8).tobytes()).hexdigest()[:16] == DIGESTS[name]


@TYPES
def test_blocks_come_apart_and_together(type):
    raw = np.load(VECTORS / f"{type.name}.npz")["random_raw"].reshape(-1, LAYOUTS[type].bytes)
    fields = CODEBOOKS[type].fields(raw)
    np.testing.assert_array_equal(CODEBOOKS[type].blocks(fields), raw)
    assert len(np.unique(fields.steps)) == 1 << CODEBOOKS[type].bits


@TYPES
def test_one_block_by_hand(type):
    """d = 2, the second group's step 3, and one code beside zeros: the values follow from the definition."""
    book = CODEBOOKS[type]
    codes = np.zeros((1, 256 // book.grid.width), np.uint16)
    codes[0, 256 // book.groups // book.grid.width] = book.grid.size - 1
    steps, signs = np.zeros((1, book.groups), np.uint8), np.zeros((1, 32), np.uint8)
    steps[0, 1] = 3
    at = 256 // book.groups  # the second group's first element
    signs[0, at // 8 : at // 8 + book.shared] = 0b10000001 if book.signs else 1
    raw = book.blocks(Fields(np.full((1, 1), 2, np.float32), steps, codes, signs))
    values = dequantize(type, raw)[0]
    lowest, point = book.grid.points[0], book.grid.points[-1]
    scale, base = 2 * (book.first + 3 * book.more), 2 * book.first
    if book.signs:
        assert values[at] == -scale * point[0] and values[at + 1] == scale * point[1]
        assert values[at + 7] == -scale * (point[7] if book.grid.width == 8 else lowest[3])
        assert values[0] == base * lowest[0]
    else:
        np.testing.assert_array_equal(values[at : at + 8], scale * (point - 0.125))
        np.testing.assert_array_equal(values[:8], base * (lowest + 0.125))


@TYPES
def test_points_are_written_as_themselves(type):
    """A block of points at one scale comes back, but for the sign that seven bits cannot tell."""
    book = CODEBOOKS[type]
    random = np.random.default_rng(8)
    points = book.grid.points[random.integers(0, book.grid.size, (4, 256 // book.grid.width))].reshape(4, 256)
    values = points if book.signs else points + np.float32(0.125)
    values = values * np.float32(2 * (book.first + book.more * ((1 << book.bits) - 1)))
    found = dequantize(type, quantize(type, values))
    close = np.abs(found - values) <= 0.02 * np.abs(values).max()
    assert close.mean() > 0.95


def test_seven_signs_tell_the_eighth():
    raw = np.zeros((1, 66), np.uint8)
    raw[0, :2] = np.array([1.0], np.float16).view(np.uint8)
    for signs, negative in ((0, []), (1, [0, 7]), (3, [0, 1]), (0b1000000, [6, 7]), (127, range(8))):
        raw[0, 6] = signs
        assert np.flatnonzero(dequantize(TensorType.IQ2_XXS, raw)[0] < 0).tolist() == list(negative)
