"""Blocks of every tensor type for the kernels' tests."""

import numpy as np
from numpy.typing import NDArray

from llamay.quant import LAYOUTS, TensorType

ELSE = (TensorType.Q8_K, TensorType.MXFP4, TensorType.IQ1_M, TensorType.NVFP4)  # scales that are no halves, made below


def blocks(type: TensorType, rows: int, columns: int, random: np.random.Generator) -> NDArray[np.uint8]:
    """Blocks [rows, row bytes] whose quants, scales and signs take every value there is."""
    layout = LAYOUTS[type]
    if layout.elements == 1:
        values = (random.standard_normal((rows, columns)) * 2.0 ** random.integers(-3, 3)).astype(np.float32)
        if type is TensorType.F32:
            return values.view(np.uint8)
        if type is TensorType.F16:
            return values.astype(np.float16).view(np.uint8)
        return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
    halves = [number.start for number in layout.numbers if number.exponent == 0x7C00]
    assert halves or type in ELSE, f"nothing makes scales for {type.name}"
    raw = random.integers(0, 256, (rows, columns // layout.elements, layout.bytes), np.uint8)
    size = 2.0 ** random.uniform(-8, -3, raw.shape[:2])
    for offset in halves:
        sign = random.choice([-1.0, 1.0], raw.shape[:2])
        raw[:, :, offset : offset + 2] = (size * sign).astype(np.float16)[..., None].view(np.uint8)
    if type is TensorType.Q8_K:
        raw[:, :, :4] = size.astype(np.float32)[..., None].view(np.uint8)
    if type is TensorType.MXFP4:
        raw[:, :, 0] = random.integers(118, 124, raw.shape[:2])
    if type is TensorType.IQ1_M:  # whose half lies in nibbles
        nibbles = size.astype(np.float16).view(np.uint16)[..., None] >> np.arange(0, 16, 4) & 15
        raw[:, :, 49::2] = raw[:, :, 49::2] & 15 | nibbles << 4
    if type is TensorType.NVFP4:
        raw[:, :, :4] = random.integers(0, 64, (*raw.shape[:2], 4))
    return raw.reshape(rows, -1)
