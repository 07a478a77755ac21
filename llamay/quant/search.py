"""Scales for groups of weights: those that leave the least squared error, found by trying several.

For a fixed choice of quants q the best scale is a small least-squares problem with a
closed solution, and the error it leaves is the sum of squares of x minus a `gain`; so a
trial is: round x with some scale, solve, keep the solution if its gain is the largest yet.
"""

import numpy as np
from numpy.typing import NDArray

from llamay.quant.codec import Bytes, Floats
from llamay.quant.simple import inverse

Signs = NDArray[np.int8]

_TRIALS = np.linspace(-1.0, 1.0, 15, dtype=np.float32)  # how far from the full range the first rounding aims


def signed_scales(x: Floats, half: int) -> Floats:
    """s for x ~ s * q with q from -half to half - 1: x [..., n] -> s [...]; 0 where x is 0."""
    largest = np.take_along_axis(x, np.abs(x).argmax(axis=-1)[..., None], axis=-1)
    unit = inverse(-largest)
    best = np.zeros(x.shape[:-1], np.float32)
    best_gain = np.zeros_like(best)
    for trial in _TRIALS:
        q = np.clip(np.rint(x * (unit * (half + trial))), -half, half - 1)
        xq, qq = np.einsum("...n,...n->...", x, q), np.einsum("...n,...n->...", q, q)
        scale = xq * inverse(qq)
        gain = xq * scale
        better = gain > best_gain
        best[better], best_gain[better] = scale[better], gain[better]
    return best


def ranged_scales(x: Floats, top: int) -> tuple[Floats, Floats]:
    """s >= 0 and m >= 0 for x ~ s * q - m with q from 0 to top: x [..., n] -> s [...], m [...]."""
    n = np.float32(x.shape[-1])
    low = np.minimum(x.min(axis=-1, keepdims=True), 0)
    unit = inverse(x.max(axis=-1, keepdims=True) - low)
    total = x.sum(axis=-1)
    scale, minimum = np.zeros_like(total), -low[..., 0]
    best_gain = minimum * (-2 * total - n * minimum)  # of q = 0 everywhere
    above = x - low
    for trial in _TRIALS:
        q = np.clip(np.rint(above * (unit * (top + trial))), 0, top)
        sums = q.sum(axis=-1), np.einsum("...n,...n->...", x, q), np.einsum("...n,...n->...", q, q)
        s, m = _line(total, *sums, n)
        gain = s * sums[1] - m * total
        better = (gain > best_gain) & (s > 0)
        for kept, found in ((scale, s), (minimum, m), (best_gain, gain)):
            kept[better] = found[better]
    return scale, minimum


def _line(x: Floats, q: Floats, xq: Floats, qq: Floats, n: np.float32) -> tuple[Floats, Floats]:
    """Solve x ~ s * q - m for s and m >= 0 from the sums over a group of n."""
    determinant = n * qq - q * q
    s = (n * xq - x * q) * inverse(determinant)
    m = (q * xq - qq * x) * inverse(determinant)
    through_zero = (m < 0) | (determinant <= 0)
    return np.where(through_zero, xq * inverse(qq), s), np.where(through_zero, np.float32(0), m)


def codes(scales: Floats, low: int, high: int) -> tuple[Floats, Floats]:
    """d and whole c from low to high with scales ~ d * c: [blocks, groups] -> d [blocks, 1], c [blocks, groups].

    The scale largest in size takes the code farthest from 0.
    """
    largest = np.take_along_axis(scales, np.abs(scales).argmax(axis=1, keepdims=True), axis=1)
    unit = largest / np.float32(low if low else high)
    return unit, np.clip(np.rint(scales * inverse(unit)), low, high)


def as_half(values: Floats) -> Floats:
    """Rounded to what the block's half float will hold."""
    with np.errstate(over="ignore"):
        return values.astype(np.float16).astype(np.float32)


def refit_signed(x: Floats, scales: Floats, half: int, codes_of: Floats) -> Floats:
    """The d [blocks, 1] that fits x [blocks, groups, n] ~ d * codes * q best, for the q that `scales` give."""
    q = np.clip(np.rint(x * inverse(scales)[..., None]), -half, half - 1) * codes_of[..., None]
    xq, qq = np.einsum("bgn,bgn->b", x, q), np.einsum("bgn,bgn->b", q, q)
    return as_half((xq * inverse(qq))[:, None])


def refit_ranged(
    x: Floats, scales: Floats, minima: Floats, top: int, codes_of: Floats, low_codes: Floats
) -> tuple[Floats, Floats]:
    """d and e [blocks, 1] for x ~ d * codes * q - e * low_codes, for the q that `scales` and `minima` give."""
    q = np.clip(np.rint((x + minima[..., None]) * inverse(scales)[..., None]), 0, top)
    a = codes_of * q.sum(axis=-1)  # [blocks, groups]
    aa = (codes_of * codes_of * np.einsum("bgn,bgn->bg", q, q)).sum(axis=1)
    ab = -(a * low_codes).sum(axis=1)
    bb = x.shape[-1] * (low_codes * low_codes).sum(axis=1)
    xa = (codes_of * np.einsum("bgn,bgn->bg", x, q)).sum(axis=1)
    xb = -(low_codes * x.sum(axis=-1)).sum(axis=1)
    determinant = aa * bb - ab * ab
    sound = determinant > 1e-6 * aa * bb
    d = np.where(sound, (xa * bb - xb * ab) * inverse(determinant), xa * inverse(aa))
    e = np.where(sound, (xb * aa - xa * ab) * inverse(determinant), xb * inverse(bb) * (aa == 0))
    return as_half(d[:, None]), as_half(e[:, None])


def signed_quants(x: Floats, scales: Floats, half: int) -> Signs:
    """q for x [blocks, groups, n] ~ scales [blocks, groups] * q, as int8 [blocks, groups * n]."""
    q: Floats = np.clip(np.rint(x * inverse(scales)[..., None]), -half, half - 1)
    return q.astype(np.int8).reshape(len(x), -1)


def ranged_quants(x: Floats, scales: Floats, minima: Floats, top: int) -> Bytes:
    """q for x [blocks, groups, n] ~ scales * q - minima, as uint8 [blocks, groups * n]."""
    q: Floats = np.clip(np.rint((x + minima[..., None]) * inverse(scales)[..., None]), 0, top)
    return q.astype(np.uint8).reshape(len(x), -1)
