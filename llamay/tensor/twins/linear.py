"""Twins of the linear kernel and its epilogues, and of the norms around it."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamay.tensor.program import Activation, Norm

Real = NDArray[np.floating[Any]]

PIECE = 1 << 14  # elements that stay in a processor's cache while a polynomial is computed of them
ERFC = (  # of erfc's polynomial, the constant first
    0.4216127281222889, 0.32186073977554197, 0.18156564665890976, 0.06850045810882176, 0.01134462005911409,
    -0.0033572179915202457, -0.0019275141182150334, 1.7568639278997192e-4, 2.81074507978078e-4,
    -2.334048165910195e-5, -4.5015226349864635e-5, 7.858206410274698e-6, 7.188562068484958e-6,
    -2.7252177899638056e-6, -7.261702764744691e-7, 6.681254335942755e-7, -1.2931356485467818e-7,
)  # fmt: skip


def embed(rows: Real, scale: float, *more: Real) -> Real:
    """h = table[token] * scale and what is added to it for position and kind, of the rows already looked up [T, H]."""
    h = rows * scale
    for vectors in more:
        h = h + vectors
    return h


def rms_norm(x: Real, weight: Real, eps: float) -> Real:
    """w * x / sqrt(mean(x^2) + eps) over the last axis (Zhang and Sennrich, arXiv 1910.07467)."""
    mean_square = np.mean(np.square(x), axis=-1, keepdims=True)
    normed: Real = x * (1.0 / np.sqrt(mean_square + eps)) * weight
    return normed


def part_norm(x: Real, parts: tuple[int, ...], eps: float) -> Real:
    """x / sqrt(mean(x^2) + eps) of each of the parts, of so many values, that a row of x [T, values] consists of."""
    cut = np.split(x, np.cumsum(parts)[:-1], axis=-1)
    return np.concatenate([rms_norm(part, np.ones(1, x.dtype), eps) for part in cut], axis=-1)


def layer_norm(x: Real, weight: Real, bias: Real | None, eps: float) -> Real:
    """w * (x - mean) / sqrt(variance + eps) + b over the last axis (Ba, Kiros and Hinton, arXiv 1607.06450)."""
    centred = x - np.mean(x, axis=-1, keepdims=True)
    variance = np.mean(np.square(centred), axis=-1, keepdims=True)
    normed: Real = centred * (1.0 / np.sqrt(variance + eps)) * weight
    return normed if bias is None else normed + bias


def norm(x: Real, how: Norm) -> Real:
    """x through a norm of any kind, over the last axis."""
    if how.kind == "rms":
        return rms_norm(x, how.weight, how.eps)
    if how.kind == "layer":
        return layer_norm(x, how.weight, how.bias, how.eps)
    return x * how.weight


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


def sum_norm(h: Real, y: Real, weight: Real, bias: Real | None, eps: float, scale: float = 1.0) -> Real:
    """h + norm(h + scale * y): h and a branch together, normed and added to h once more."""
    return h + layer_norm(residual(h, y, scale), weight, bias, eps)


def silu(x: Real) -> Real:
    """x * sigmoid(x)."""
    y: Real = x / (1.0 + np.exp(-x))
    return y


def gelu_tanh(x: Real) -> Real:
    """The approximation of gelu by tanh (Hendrycks and Gimpel, arXiv 1606.08415)."""
    inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)
    y: Real = 0.5 * x * (1.0 + np.tanh(inner))
    return y


def gelu_erf(x: Real) -> Real:
    """x * Phi(x), Phi the distribution of the standard normal."""
    tail = 0.5 * erfc(np.abs(x) * math.sqrt(0.5))
    y: Real = x * np.where(x < 0, tail, 1.0 - tail)
    return y


def relu_squared(x: Real) -> Real:
    """max(x, 0)^2 (So et al., arXiv 2109.08668)."""
    y: Real = np.square(np.maximum(x, 0.0))
    return y


def clipped(x: Real) -> Real:
    """x * sigmoid(1.702 x) with x clipped at 7, gpt-oss's gate."""
    low = np.minimum(x, 7.0)
    y: Real = low / (1.0 + np.exp(-1.702 * low))
    return y


def raised(x: Real) -> Real:
    """What a clipped gate multiplies: x clipped at 7 and at -7, plus 1."""
    return np.clip(x, -7.0, 7.0) + 1.0


def erfc(a: Real) -> Real:
    """1 - erf(a) for a >= 0, within 2e-14 of it: e^(-a^2) t P(2t - 1), t = 1 / (1 + 0.4 a).

    P is fitted to e^(a^2) erfc(a) / t; NumPy has no erf.
    """
    flat = a.reshape(-1)
    tail = np.empty_like(flat)
    for start in range(0, flat.size, PIECE):
        x = flat[start : start + PIECE]
        t = 1.0 / (1.0 + 0.4 * x)
        u = 2.0 * t - 1.0
        value = np.full_like(u, ERFC[-1])
        for coefficient in ERFC[-2::-1]:
            value *= u
            value += coefficient
        tail[start : start + PIECE] = value * t * np.exp(-np.square(x))
    return tail.reshape(a.shape)


ACTIVATIONS: dict[Activation, Callable[[Real], Real]] = {
    "silu": silu,
    "gelu_tanh": gelu_tanh,
    "gelu_erf": gelu_erf,
    "relu_squared": relu_squared,
    "clipped": clipped,
}


def activate(gate: Real, up: Real, activation: Activation) -> Real:
    """activation(gate) * up, also the epilogue `gated` (Shazeer, arXiv 2002.05202); beside a clipped gate up is raised."""
    return activated(gate, activation) * (raised(up) if activation == "clipped" else up)


def activated(x: Real, activation: Activation) -> Real:
    """The epilogue `activated`."""
    return ACTIVATIONS[activation](x)


def softcap(x: Real, cap: float) -> Real:
    """cap * tanh(x / cap), or x where cap is 0."""
    return np.tanh(x / cap) * cap if cap else x


def head(y: Real, scale: float, cap: float) -> Real:
    """The epilogue `head`: logits of the output product [T, vocabulary]."""
    return softcap(y if scale == 1.0 else y * scale, cap)
