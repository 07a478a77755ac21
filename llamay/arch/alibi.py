"""ALiBi's slopes: how fast each head forgets what lies behind (Press, Smith and Lewis, arXiv 2108.12409)."""

import numpy as np
from numpy.typing import NDArray


def slopes(heads: int, most: float) -> NDArray[np.float32]:
    """The slope of each head [heads], the last of a power of two of them 2^-most.

    Heads beyond the largest power of two take the slopes that twice as many would have between those.
    """
    whole = 1 << (heads.bit_length() - 1)
    exponents = np.arange(1, whole + 1) / whole
    between = np.arange(1, 2 * (heads - whole), 2) / (2 * whole)
    return np.exp2(-most * np.concatenate([exponents, between])).astype(np.float32)
