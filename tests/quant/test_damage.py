"""Scales and elements that are no finite numbers are found wherever they are, and nothing else is."""

import numpy as np
import pytest

from llamay.quant import LAYOUTS, TensorType, damaged, dequantize, quantize, supported

TYPES = [type for type in TensorType if type in LAYOUTS and supported(type)]


@pytest.mark.parametrize("type", TYPES, ids=lambda type: type.name)
def test_a_row_is_damaged_where_its_values_are_no_numbers(type: TensorType) -> None:
    raw = np.random.default_rng(5).integers(0, 256, (1000, 3 * LAYOUTS[type].bytes), np.uint8)
    wrong = ~np.isfinite(dequantize(type, raw)).all(axis=1)
    found = np.array([damaged(type, raw[row : row + 1]) is not None for row in range(len(raw))])
    if type is TensorType.NVFP4:  # whose scales have no infinity, and no number where others would
        assert not found.any() and not wrong.any()
        return
    assert 0 < found.sum() < len(raw)
    if type in (TensorType.Q8_K, TensorType.MXFP4):  # whose largest scales overflow without being damaged
        assert not (found & ~wrong).any()
    else:
        assert np.array_equal(found, wrong)
    assert damaged(type, raw) == int(found.argmax())


@pytest.mark.parametrize("type", TYPES, ids=lambda type: type.name)
def test_sound_weights_are_sound(type: TensorType) -> None:
    values = np.random.default_rng(6).standard_normal((20, 512)).astype(np.float32) * 1000
    assert damaged(type, quantize(type, values)) is None
    assert damaged(type, quantize(type, np.zeros((3, 256), np.float32))) is None
