"""Twins of rotary embedding and of writing keys and values into their pages."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamay.tensor.program import HeadNorms, Norm, Qkv, Rope
from llamay.tensor.twins.cache import halves, shrink
from llamay.tensor.twins.linear import Real, layer_norm, norm


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


def rope_store(
    y: Real,
    op: Qkv,
    turn: tuple[Real, Real] | None,
    keys: NDArray[Any],
    values: NDArray[Any],
    slots: NDArray[np.int64],
    key_scales: NDArray[np.float32] | None = None,
    value_scales: NDArray[np.float32] | None = None,
    *,
    one_bit: bool = False,
) -> Real:
    """Finishes the fused product y [T, rows], also the epilogue `qkv`: head norms, rope, k and v into their pages.

    keys [kv_heads, hd, slots] and values [kv_heads, slots, hd] are one layer's pages, `slots` [T]
    says where the rows go (page * 16 + position % 16), `turn` is the rotation of their positions.
    Pages of float16 take halves; those with scales [kv_heads, slots] are bytes (see `shrink`).
    Returns q [T, heads, hd] times the softmax scale.
    """
    heads = y.reshape(len(y), -1, op.head_dim)
    q, k, v = np.split(heads, [op.heads, op.heads + op.kv_heads], axis=1)
    if not op.late:
        q, k = head_normed(q, op.q_norm, op.head_norms), head_normed(k, op.k_norm, op.head_norms)
    if turn is not None:
        q, k = rope(q, *turn), rope(k, *turn)
    if op.late:
        q, k = head_normed(q, op.q_norm, op.head_norms), head_normed(k, op.k_norm, op.head_norms)
    keys[:, :, slots] = kept(k, keys, slots, key_scales, one_bit).transpose(1, 2, 0)
    values[:, slots] = kept(v, values, slots, value_scales, one_bit).transpose(1, 0, 2)
    return q * op.scale


def head_normed(x: Real, how: Norm | None, of: HeadNorms) -> Real:
    """x [T, heads, hd] through a norm of q or k; see Qkv.head_norms."""
    if how is None:
        return x
    if of in ("all", "whole"):
        return norm(x.reshape(len(x), -1), how).reshape(x.shape)
    if of == "layer":
        return layer_norm(x, how.weight.reshape(x.shape[1:]), None, how.eps)
    return norm(x, how)


def kept(
    x: Real, pages: NDArray[Any], slots: NDArray[np.int64], scales: NDArray[np.float32] | None, one_bit: bool
) -> NDArray[Any]:
    """x [T, kv_heads, hd] as the pages keep it; its scales go to theirs at once."""
    if scales is not None:
        bytes, own = shrink(x, one_bit=one_bit)
        scales[:, slots] = own.T
        return bytes
    return halves(x) if pages.dtype == np.float16 else x
