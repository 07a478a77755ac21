"""Mixtures of experts on the NumPy executor: each expert computes the rows that chose it."""

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from llamay.tensor import twins
from llamay.tensor.program import ExpertGated, ExpertResidual, Linear
from llamay.tensor.twins.linear import Real

Chosen = NDArray[np.int64]  # [T, used], experts of each row
Product = Callable[[Linear, Real], Real]


def gated(op: ExpertGated, x: Real, chosen: Chosen, product: Product) -> Real:
    """The branches [T, used, width] of normed rows x [T, H]."""
    out = np.empty((*chosen.shape, op.up[0].rows), x.dtype)
    for expert, rows, ranks in _by_expert(chosen):
        up = product(op.up[expert], x[rows])
        if op.gate is None:
            out[rows, ranks] = twins.activated(up, op.activation)
        else:
            out[rows, ranks] = twins.activate(product(op.gate[expert], x[rows]), up, op.activation)
    return out


def residual(
    op: ExpertResidual, h: Real, branch: Real, shared: Real | None, chosen: Chosen, weights: Real, product: Product
) -> Real:
    """h [T, H] with the outputs of branch [T, used, width] added, and that of the shared expert's branch where there is one."""
    parts = np.empty((len(h), weights.shape[1] if op.shared is not None else chosen.shape[1], h.shape[1]), h.dtype)
    for expert, rows, ranks in _by_expert(chosen):
        parts[rows, ranks] = product(op.down[expert], branch[rows, ranks])
    if op.shared is not None and shared is not None:
        parts[:, -1] = product(op.shared, shared)
    return twins.expert_add(h, parts, weights, op.scale)


def _by_expert(chosen: Chosen) -> Iterator[tuple[int, NDArray[np.int64], NDArray[np.int64]]]:
    """Each expert that some row chose, those rows, and which rank it has in them."""
    for expert in np.unique(chosen).tolist():
        rows, ranks = np.nonzero(chosen == expert)
        yield expert, rows, ranks
