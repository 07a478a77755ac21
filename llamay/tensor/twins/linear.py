"""Twins of the linear kernel and its epilogues, and of the norms around it."""

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Real = NDArray[np.floating[Any]]


def embed(rows: Real, scale: float) -> Real:
    """h = table[token] * scale, of the rows already looked up [T, H]."""
    return rows * scale


def rms_norm(x: Real, weight: Real, eps: float) -> Real:
    """w * x / sqrt(mean(x^2) + eps) over the last axis (Zhang and Sennrich, arXiv 1910.07467)."""
    mean_square = np.mean(np.square(x), axis=-1, keepdims=True)
    normed: Real = x * (1.0 / np.sqrt(mean_square + eps)) * weight
    return normed


def linear(x: Real, weight: Real, bias: Real | None = None) -> Real:
    """y = W x + b for each row: x [T, columns], W [rows, columns] -> [T, rows]."""
    y: Real = x @ weight.T
    return y if bias is None else y + bias


def residual(h: Real, y: Real, scale: float = 1.0) -> Real:
    """The epilogue `residual`: h + scale * y."""
    return h + y if scale == 1.0 else h + y * scale


def norm_add(h: Real, y: Real, weight: Real, eps: float, scale: float = 1.0) -> Real:
    """h + scale * norm(y): the residual of a block with post-norms."""
    return residual(h, rms_norm(y, weight, eps), scale)


def activate(gate: Real, up: Real, activation: Literal["silu", "gelu_tanh"]) -> Real:
    """activation(gate) * up, also the epilogue `gated` (Shazeer, arXiv 2002.05202)."""
    if activation == "silu":
        return gate / (1.0 + np.exp(-gate)) * up
    inner = math.sqrt(2.0 / math.pi) * (gate + 0.044715 * gate * gate * gate)
    return 0.5 * gate * (1.0 + np.tanh(inner)) * up


def softcap(x: Real, cap: float) -> Real:
    """cap * tanh(x / cap), or x where cap is 0."""
    return np.tanh(x / cap) * cap if cap else x


def head(y: Real, scale: float, cap: float) -> Real:
    """The epilogue `head`: logits of the output product [T, vocabulary]."""
    return softcap(y if scale == 1.0 else y * scale, cap)
