"""Twins of a selective state space: the convolution of its inputs, and the scan over a sequence's tokens."""

import numpy as np

from llamay.tensor.program import Scan
from llamay.tensor.twins.linear import Real, silu

STEEP = 20.0  # beyond it softplus is its argument


def convolve(x: Real, before: Real, kernel: Real, bias: Real) -> Real:
    """silu of the causal convolution of each channel: x [T, channels] of tokens in a row, `before` them [K - 1, channels]."""
    return silu(_tapped(np.broadcast_to(bias.astype(x.dtype), x.shape), x, before, kernel))


def short_convolve(x: Real, before: Real, gate: Real, kernel: Real) -> Real:
    """gate * the causal convolution of each channel: x and gate [T, channels] of tokens in a row, `before` them [K - 1, channels]."""
    out: Real = gate * _tapped(np.zeros_like(x), x, before, kernel)
    return out


def _tapped(total: Real, x: Real, before: Real, kernel: Real) -> Real:
    """The total with the taps' products added, that of the oldest token first."""
    rows, count = np.concatenate([before, x]), len(x)
    for k, weight in enumerate(kernel.astype(x.dtype)):
        total = total + rows[k : k + count] * weight
    return total


def softplus(x: Real) -> Real:
    """log(1 + e^x)."""
    y: Real = np.where(x > STEEP, x, np.log1p(np.exp(np.minimum(x, x.dtype.type(STEEP)))))
    return y


def advance(state: Real, x: Real, d: Real, b: Real, op: Scan) -> None:
    """One token in the state [inner, states]: its x [inner], d [heads], B [groups, states]."""
    wide = op.inner // op.heads
    steps, decay = np.repeat(d, wide), np.exp(d[:, None] * op.decay.T.astype(d.dtype))
    state *= np.repeat(decay, wide, axis=0)
    state += (steps * x)[:, None] * np.repeat(b, op.inner // op.groups, axis=0)


def scan(state: Real, x: Real, d: Real, shared: tuple[Real, Real], z: Real, op: Scan) -> Real:
    """y [T, inner] of tokens in a row, gated; the state [inner, states] goes on to what is after them.

    x and z are [T, inner], d [T, heads] through softplus, B and C of `shared` [T, groups, states].
    """
    b, c = shared
    out, wide = np.empty_like(x), op.inner // op.groups
    skip = np.repeat(op.skip.astype(x.dtype), op.inner // op.heads)
    for t in range(len(x)):
        advance(state, x[t], d[t], b[t], op)
        out[t] = (state * np.repeat(c[t], wide, axis=0)).sum(axis=1) + skip * x[t]
    gated: Real = out * silu(z)
    return gated
