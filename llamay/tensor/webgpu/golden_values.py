"""What the twins give for a part of an operation's results, in float64, and the magnitudes that were summed for it."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from llamay.tensor import twins
from llamay.tensor.batch import PAGE
from llamay.tensor.pools import LayerPages
from llamay.tensor.program import Attend, Linear, Norm, Qkv
from llamay.tensor.twins.linear import Real
from llamay.tensor.weights import linear_rows

FIRST, LAST = 48, 16  # rows of a matrix that are checked


def some(rows: int) -> NDArray[np.int64]:
    """The rows of a matrix that are checked: its first and its last."""
    return np.unique(np.concatenate([np.arange(min(FIRST, rows)), np.arange(max(0, rows - LAST), rows)]))


def product(x: Real, linear: Linear, rows: NDArray[np.int64], scale: Real | float = 1.0) -> tuple[Real, Real]:
    """(scale * W x + b, the magnitudes that were summed) for some rows of W, in float64."""
    runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
    weight = np.concatenate([linear_rows(linear, int(run[0]), int(run[-1]) + 1) for run in runs]).astype(np.float64)
    bias = np.zeros(len(rows)) if linear.bias is None else linear.bias[rows].astype(np.float64)
    wide = x.astype(np.float64)
    return twins.linear(wide, weight) * scale + bias, np.abs(wide) @ np.abs(weight.T) * scale + np.abs(bias)


def heads(op: Qkv, x: Real, scale: Real, positions: NDArray[np.int64]) -> list[tuple[Real, Real]]:
    """The first head of q, the first of k and the last of v, each [T, hd] with the magnitudes in it."""
    last = op.heads + 2 * op.kv_heads - 1
    joined = (op.heads, op.kv_heads) if op.head_norms in ("all", "whole") else (1, 1)  # heads that are normed together
    spans = ((0, joined[0], op.q_norm), (op.heads, joined[1], op.k_norm), (last, 1, None))
    products = [
        (product(x, op.linear, np.arange(first * op.head_dim, (first + count) * op.head_dim), scale), norm)
        for first, count, norm in spans
    ]
    bare = [norm if norm is None or not op.late else replace(norm, weight=np.ones_like(norm.weight)) for _, norm in products]
    normed = [_normed_head(*product, norm) for (product, _), norm in zip(products, bare, strict=True)]
    q, k, v = ((part[:, : op.head_dim], size[:, : op.head_dim]) for part, size in normed)
    if op.rope is not None:
        turn = twins.rotation(positions.astype(np.int32), op.rope, np.float64)
        larger = max(1.0, op.rope.magnitude)
        q, k = (
            (twins.rope(part[:, None], *turn)[:, 0], larger * size.max(axis=-1, keepdims=True)) for part, size in (q, k)
        )
    if op.late and op.q_norm is not None and op.k_norm is not None:
        weighted = zip((q, k), (op.q_norm.weight, op.k_norm.weight), strict=True)
        q, k = ((part * weight, size * np.abs(weight).max()) for (part, size), weight in weighted)
    return [(q[0] * op.scale, q[1] * op.scale), k, v]


def _normed_head(y: Real, size: Real, norm: Norm | None) -> tuple[Real, Real]:
    """A head and the magnitudes in it, through its own norm where it has one."""
    if norm is None:
        return y, size
    weight = norm.weight[: y.shape[1]]  # of layer norms the first head's
    if norm.kind == "layer":
        bias = None if norm.bias is None else norm.bias[: y.shape[1]]
        normed = twins.layer_norm(y, weight, bias, norm.eps)
        y = y - y.mean(axis=-1, keepdims=True)
    else:
        normed = twins.rms_norm(y, weight, norm.eps)
    root = np.sqrt(np.mean(np.square(y), axis=-1, keepdims=True) + norm.eps)
    return normed, (size.max(axis=-1, keepdims=True) / root + 1) * np.abs(weight).max()


def attended(op: Attend, q: Real, keys: Real, values: Real, position: int, last: int) -> Real:
    """[heads * hd] of one row, whose table repeats one page: keys [kv_heads, hd, 16], values [kv_heads, 16, hd].

    `last` is the last position of its sequence.
    """
    first = max(0, position + 1 - op.window) if op.window else 0
    end = position if not op.both_ways else min(last, position + op.window - 1) if op.window else last
    seen = np.arange(first, end + 1)
    slots = seen % PAGE
    bias = None
    if op.slopes is not None:
        bias = op.slopes.astype(np.float64).reshape(op.kv_heads, -1, 1) * -np.abs(seen - position)
    heads = q.astype(np.float64).reshape(op.kv_heads, -1, op.head_dim)
    partial = twins.attention(heads, keys[:, :, slots], values[:, slots], None, op.softcap, bias=bias)
    sinks = None if op.sinks is None else op.sinks.astype(np.float64).reshape(op.kv_heads, -1, 1)
    return twins.attention_combine([partial], sinks).reshape(-1)


def decoded(pages: LayerPages) -> tuple[Real, Real]:
    """Keys [kv_heads, hd, 16] and values [kv_heads, 16, hd] that the pages stand for."""
    kept = pages.look(slice(0, PAGE), PAGE)
    keys = kept.keys if kept.key_scales is None else kept.keys * kept.key_scales[:, None]
    values = kept.values if kept.value_scales is None else kept.values * kept.value_scales[:, :, None]
    return keys, values


def rounding(kind: str, kept: Real, one_bit: bool) -> Real:
    """How far a cache format may move a head [T, hd] that it keeps."""
    largest = np.abs(kept).max(axis=-1, keepdims=True)
    share, least = {"f32": (0.0, 0.0), "f16": (2.0**-11, 2.0**-24), "q8": (1.01 if one_bit else 1 / 127, 0.0)}[kind]
    moved: Real = share * largest + least
    return moved
