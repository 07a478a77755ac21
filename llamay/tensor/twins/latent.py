"""Twin of what latent attention stores."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamay.tensor.program import Latent
from llamay.tensor.twins.linear import Real, norm
from llamay.tensor.twins.rope import kept, rope


def latent_store(
    latents: Real,
    asked: Real,
    op: Latent,
    turn: tuple[Real, Real],
    keys: NDArray[Any],
    slots: NDArray[np.int64],
    scales: NDArray[np.float32] | None = None,
    *,
    one_bit: bool = False,
) -> tuple[Real, Real]:
    """Stores the rows of a layer's pages; returns queries [T, heads, hd] that lack `absorb`'s part, and what that reads.

    latents [T, rank + turned] and asked [T, heads, own + turned] are what the linears gave, keys
    [1, hd, slots] one layer's pages; see `rope_store`.  What `absorb` reads is [T, heads, own], scaled.
    """
    row = np.zeros((len(latents), 1, op.head_dim), latents.dtype)
    row[..., : op.turned] = rope(latents[:, None, op.rank :], *turn)
    row[:, 0, op.turned : op.turned + op.rank] = norm(latents[:, : op.rank], op.kv_norm)
    keys[:, :, slots] = kept(row, keys, slots, scales, one_bit).transpose(1, 2, 0)
    q = np.zeros((*asked.shape[:2], op.head_dim), asked.dtype)
    q[..., : op.turned] = rope(asked[..., op.own :], *turn) * op.scale
    return q, asked[..., : op.own] * op.scale
