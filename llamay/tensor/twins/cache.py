"""Twins of how the formats of the KV cache keep numbers: halves, and bytes with a scale for each head of a token."""

import numpy as np
from numpy.typing import NDArray

from llamay.tensor.twins.linear import Real

LARGEST_HALF = 65504.0
LEAST_SCALE = 1e-30  # a head below it is kept as zeros: its reciprocal would be no number


def halves(x: Real) -> NDArray[np.float16]:
    """x in 16 bits, to nearest even; beyond the largest half, the largest half."""
    return np.clip(x, -LARGEST_HALF, LARGEST_HALF).astype(np.float16)


def shrink(x: Real, *, one_bit: bool = False) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """Bytes [..., hd] and scales [...] of x [..., hd], so that x is nearly scale * byte; ties go away from zero.

    The scale is the head's largest magnitude / 127.  Of a one-bit cache it is its mean
    magnitude / 127, and every byte but those of zeros is 127 or -127.
    """
    size = np.abs(x)
    scale = size.mean(axis=-1, keepdims=True) if one_bit else size.max(axis=-1, keepdims=True) / 127
    factor = np.zeros_like(scale)
    kept = scale > LEAST_SCALE
    factor[kept] = 1e30 if one_bit else 1 / scale[kept]
    y = x * factor
    rounded = np.clip(np.sign(y) * np.floor(np.abs(y) + 0.5), -127, 127).astype(np.int8)
    return rounded, (scale[..., 0] / 127 if one_bit else scale[..., 0]).astype(np.float32)
