"""Blocks of any bytes are read without a warning, whatever their scales are."""

import numpy as np
import pytest

from llamay.quant import LAYOUTS, TensorType, dequantize, supported


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("type", [type for type in TensorType if type in LAYOUTS and supported(type)], ids=lambda type: type.name)
@pytest.mark.parametrize("fill", [0xFF, 0x7C, 0x00])
def test_any_bytes_are_read(type, fill: int) -> None:
    layout = LAYOUTS[type]
    random = np.random.default_rng(3).integers(0, 256, (64, layout.bytes), np.uint8)
    for raw in (random, np.full((1, layout.bytes), fill, np.uint8)):
        assert dequantize(type, raw).shape == (len(raw), layout.elements)
