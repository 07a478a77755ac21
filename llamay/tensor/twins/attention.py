"""Twins of attention: one split of the positions at a time, then the splits combined in a fixed order."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamay.tensor.twins.linear import Real, softcap

SPLIT = 256  # positions a split; the combination order follows from it alone, so bits do not depend on the batch
MASKED = -3e38  # WGSL may assume that there are no infinities

Product = Callable[[Any, Any], Any]


@dataclass(frozen=True, slots=True, eq=False)
class Partial:
    """What one split adds to a softmax: its largest score, the sum of exponentials, and the weighted values."""

    peak: Real  # [kv_heads, rows, 1]
    total: Real  # [kv_heads, rows, 1]
    value: Real  # [kv_heads, rows, hd]


def attention(
    q: Real,
    keys: Real,
    values: Real,
    visible: NDArray[np.bool_] | None,
    cap: float = 0.0,
    product: Product = np.matmul,
    key_scales: NDArray[np.float32] | None = None,
    value_scales: NDArray[np.float32] | None = None,
    bias: Real | None = None,
) -> Partial:
    """One split: q [kv_heads, rows, hd] (scaled), keys [kv_heads, hd, S], values [kv_heads, S, hd].

    `visible` [rows, S] says which positions a row sees (None: all).  A row that sees nothing here
    gets a peak of -3e38, so that combining adds exactly nothing.  Scales [kv_heads, S] multiply
    the keys or values of a position, where its page holds bytes.  `bias` [kv_heads, rows, S] is
    added to the scores.
    """
    scores = product(q, keys)
    if key_scales is not None:
        scores = scores * key_scales[:, None]
    scores = softcap(scores, cap)
    if bias is not None:
        scores = scores + bias
    if visible is not None:
        scores = np.where(visible, scores, scores.dtype.type(MASKED))
    peak = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - peak)
    total = weights.sum(axis=-1, keepdims=True)
    if value_scales is not None:
        weights = weights * value_scales[:, None]
    return Partial(peak, total, product(weights, values))


def attention_combine(partials: Sequence[Partial], sinks: Real | None = None) -> Real:
    """The softmax over all splits [kv_heads, rows, hd], summed in ascending order of positions.

    `sinks` [kv_heads, rows, 1] are logits that take part in the softmax and lead to no value.
    """
    if len(partials) == 1 and sinks is None:
        only: Real = partials[0].value / partials[0].total
        return only
    peak = np.maximum.reduce([partial.peak for partial in partials] + ([] if sinks is None else [sinks]))
    total = np.zeros_like(peak) if sinks is None else np.exp(sinks - peak)
    value = np.zeros_like(partials[0].value)
    for partial in partials:
        weight = np.exp(partial.peak - peak)
        total += weight * partial.total
        value += weight * partial.value
    combined: Real = value / total
    return combined
