"""Twins of mixtures of experts: which experts a row gets and by how much, the pairs by expert, the sum of their outputs."""

import numpy as np
from numpy.typing import NDArray

from llamay.tensor.program import Route
from llamay.tensor.twins.linear import Real, residual

LEAST_SUM = 1e-20  # added to a sum of sigmoids, all of which may have vanished


def route(logits: Real, op: Route) -> tuple[NDArray[np.int64], Real]:
    """The experts of each row [T, used], best first, and their weights with the shared expert's [T, used + 1].

    logits [T, experts or one more].  Equal ones go by the lower expert, and what is no number comes last.
    """
    chosen = np.argsort(-standing(logits, op), axis=1, kind="stable")[:, : op.used]
    return chosen, weighed(logits, chosen, op)


def standing(logits: Real, op: Route) -> Real:
    """What experts are chosen by [T, experts]: logits, or sigmoids with a bias; no number in groups that are left out."""
    own = logits[:, : op.experts]
    if op.bias is None and not op.groups:
        return own
    own = own if op.gating == "softmax" else _sigmoid(own)
    own = own if op.bias is None else own + op.bias
    if not op.groups:
        return own
    apart = own.reshape(len(own), op.groups, -1)
    best: Real = -np.sort(-apart, axis=2)[..., : op.best].sum(axis=2)
    kept = np.argsort(-best, axis=1, kind="stable")[:, : op.groups_used]
    out = np.full_like(apart, np.nan)
    rows = np.arange(len(own))[:, None]
    out[rows, kept] = apart[rows, kept]
    return out.reshape(own.shape)


def weighed(logits: Real, chosen: NDArray[np.int64], op: Route) -> Real:
    """The weights of the experts chosen and of the shared one [T, used + 1]."""
    own, last = logits[:, : op.experts], logits[:, op.experts :]
    picked = np.take_along_axis(own, chosen, axis=1)
    if op.gating == "sigmoid":
        weights = _sigmoid(picked)
        if op.normalised:
            weights = weights / (weights.sum(axis=1, keepdims=True) + LEAST_SUM)
    else:
        peak = picked[:, :1]
        among = picked if op.normalised else own
        weights = np.exp(picked - peak) / np.exp(among - peak).sum(axis=1, keepdims=True)
    shared = _sigmoid(last) if op.varying else np.ones((len(logits), 1), logits.dtype)
    weighted: Real = np.concatenate([weights * op.scale, shared], axis=1)
    return weighted


def group_pairs(chosen: NDArray[np.int64], experts: int, size: int) -> list[list[int]]:
    """The pairs of row and rank (row * used + rank), by expert, in groups of at most `size`."""
    flat = chosen.reshape(-1)
    groups = []
    for expert in range(experts):
        pairs = np.flatnonzero(flat == expert).tolist()
        groups += [pairs[start : start + size] for start in range(0, len(pairs), size)]
    return groups


def expert_add(h: Real, parts: Real, weights: Real, scale: float = 1.0) -> Real:
    """h [T, H] + scale * the weighted sum of parts [T, n, H], first to last; weights [T, n or more]."""
    total = parts[:, 0] * weights[:, :1]
    for rank in range(1, parts.shape[1]):
        total += parts[:, rank] * weights[:, rank : rank + 1]
    return residual(h, total, scale)


def _sigmoid(x: Real) -> Real:
    y: Real = 1.0 / (1.0 + np.exp(-x))
    return y
