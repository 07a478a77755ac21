"""Multi-head latent attention on the NumPy executor: queries that have absorbed what makes keys, values of each head."""

from collections.abc import Callable

import numpy as np

from llamay.tensor import twins
from llamay.tensor.program import Latent, Lift, Linear
from llamay.tensor.twins.linear import Real

Product = Callable[[Linear, Real], Real]


def asked(op: Latent, x: Real, product: Product) -> tuple[Real, Real]:
    """Latents with what is turned [T, rank + turned] and raw queries [T, heads, own + turned] of normed rows x [T, H]."""
    y = product(op.down, x)
    raw, kept = y[:, : op.asked], y[:, op.asked :]
    if op.up is not None and op.q_norm is not None:
        raw = product(op.up, twins.norm(raw, op.q_norm))
    return kept, raw.reshape(len(x), op.heads, -1)


def absorbed(op: Latent, q: Real, own: Real, product: Product) -> Real:
    """q [T, heads, hd] with each head's own part [T, heads, own] through its linear in it."""
    for head, linear in enumerate(op.absorb):
        q[:, head, op.turned : op.turned + op.rank] = product(linear, np.ascontiguousarray(own[:, head]))
    return q


def lifted(op: Lift, x: Real, product: Product) -> Real:
    """[T, heads * rows] of the heads' values x [T, heads * value_dim]."""
    heads = x.reshape(len(x), len(op.linears), -1)[:, :, : op.linears[0].columns]
    parts = [product(linear, np.ascontiguousarray(heads[:, head])) for head, linear in enumerate(op.linears)]
    return np.concatenate(parts, axis=1)
