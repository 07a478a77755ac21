"""Twins of rotary embedding and of writing keys and values into their pages."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamay.tensor.program import Rope
from llamay.tensor.twins.linear import Real


def rotation(positions: NDArray[np.int32], rope: Rope, dtype: type[np.floating[Any]]) -> tuple[Real, Real]:
    """cos and sin [T, 1, rotated / 2] of each position's angles; the angles are float64 in every type."""
    angles = positions.astype(np.float64)[:, None, None] * rope.frequencies
    return (np.cos(angles) * rope.magnitude).astype(dtype), (np.sin(angles) * rope.magnitude).astype(dtype)


def rope(x: Real, cos: Real, sin: Real) -> Real:
    """Turns the pairs (2i, 2i+1) of each head of x [T, heads, hd]; dimensions beyond pass through."""
    rotated = 2 * cos.shape[-1]
    even, odd = x[..., 0:rotated:2], x[..., 1:rotated:2]
    turned = x.copy()
    turned[..., 0:rotated:2] = even * cos - odd * sin
    turned[..., 1:rotated:2] = even * sin + odd * cos
    return turned


def rope_store(keys: Real, values: Real, slots: NDArray[np.int64], k: Real, v: Real) -> None:
    """Writes k (already turned) and v [T, kv_heads, hd] to the slots [T] of one layer's pages.

    keys [kv_heads, hd, slots], values [kv_heads, slots, hd]; slot = page * 16 + position % 16.
    """
    keys[:, :, slots] = k.transpose(1, 2, 0)
    values[:, slots] = v.transpose(1, 0, 2)
