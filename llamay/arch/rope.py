"""Rotary frequencies of a layer: plain, linear, YaRN, and with divisors for each pair (llama 3, LongRoPE)."""

import math

import numpy as np
from numpy.typing import NDArray

from llamay.arch.config import Rotary, Scaling

Doubles = NDArray[np.float64]


def frequencies(rotary: Rotary, divisors: Doubles | None = None) -> tuple[Doubles, float]:
    """Radians a position of each pair [dimensions / 2], and the factor on cos and sin.

    `divisors` [dimensions / 2] are the file's rope_freqs.weight (llama 3), applied before any scaling,
    or its factors for the context in use (LongRoPE, arXiv 2402.13753).
    """
    pairs = np.arange(rotary.dimensions // 2, dtype=np.float64)
    plain = rotary.base ** (-2.0 * pairs / rotary.dimensions)
    if divisors is not None:
        plain = plain / divisors
    scaling = rotary.scaling
    if scaling is None:
        return plain, 1.0
    if scaling.kind == "longrope":
        return plain, scaling.attention
    if scaling.kind == "linear":
        return plain / scaling.factor, 1.0
    return _yarn(rotary, scaling, plain)


def _yarn(rotary: Rotary, scaling: Scaling, plain: Doubles) -> tuple[Doubles, float]:
    """YaRN (arXiv 2309.00071): fast pairs keep their frequency, slow ones are interpolated, a ramp in between."""

    def dimension(turns: float) -> float:
        """The pair that makes `turns` full turns over the original context."""
        length = scaling.original_context / (2.0 * math.pi * max(turns, 1e-9))
        return rotary.dimensions * math.log(length) / (2.0 * math.log(rotary.base))

    low, high = dimension(scaling.beta_fast), dimension(scaling.beta_slow)
    if scaling.whole:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(0, low), min(rotary.dimensions - 1, high)
    pairs = np.arange(len(plain), dtype=np.float64)
    ramp = np.clip((pairs - low) / max(0.001, high - low), 0.0, 1.0)
    kept = (1.0 - ramp) * scaling.extrapolation
    magnitude = scaling.attention
    if scaling.extrapolation:
        magnitude *= 0.1 * math.log(max(scaling.factor, 1.0)) + 1.0
    return plain / scaling.factor * (1.0 - kept) + plain * kept, magnitude
