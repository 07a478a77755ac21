"""The forward program: the short list of coarse operations a model is made of.

`model` builds one Program from a Config and its bound weights; an executor runs it.
Prefill and decode are the same program with other token counts.  Every matrix here
still holds its file's quantised bytes; every vector is float32.

Conventions: `H` hidden size, `hd` head size.  A linear is y = W x with W [rows, columns].
Rotary pairs are always neighbours (2i, 2i+1): `model` permutes the rows of q and k of
architectures whose pairs lie half a head apart (see `Matrix.order`), so no executor
knows two styles.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from llamay.quant import TensorType

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]


@dataclass(frozen=True, slots=True, eq=False)
class Matrix:
    """One matrix of the file, still quantised, read only when asked.

    `order` is the permutation of rows to apply when the matrix is loaded (row i of the
    loaded matrix is row order[i] of the file), or None for the file's own order.
    """

    name: str
    type: TensorType
    rows: int
    columns: int
    read: Callable[[], Bytes]  # -> [rows, bytes a row], a view of the file's mapping
    order: NDArray[np.int64] | None = None
    release: Callable[[], None] | None = None  # tells the system that the mapped pages may go


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """y = W x + b, where W is the parts stacked by rows (q, k, v fused; or one part)."""

    parts: tuple[Matrix, ...]
    bias: Floats | None = None  # [rows of all parts], in the loaded order

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    @property
    def columns(self) -> int:
        return self.parts[0].columns


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """RMS norm: w * x / sqrt(mean(x^2) + eps)."""

    weight: Floats  # [H] (or [hd] for a norm of each head)
    eps: float


@dataclass(frozen=True, slots=True, eq=False)
class Rope:
    """Rotary embedding of the first 2 * len(frequencies) dimensions of each head.

    The pair (2i, 2i+1) turns by position * frequencies[i]; cos and sin are multiplied
    by `magnitude` (YaRN), so q.k scales by its square.  Dimensions beyond pass through.
    """

    frequencies: NDArray[np.float64]  # [rotated dimensions / 2], radians a position
    magnitude: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Embed:
    """h = table[token] * scale."""

    table: Matrix
    scale: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Qkv:
    """q, k, v = norm(h) through one fused linear; rope; k and v into the layer's pages.

    With `q_norm`/`k_norm` each head of q and k is RMS-normed before rope.  q is
    multiplied by `scale` (the softmax scale) after rope.
    """

    layer: int
    norm: Norm
    linear: Linear  # rows: q heads, k heads, v heads
    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    rope: Rope | None
    q_norm: Norm | None = None
    k_norm: Norm | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Attend:
    """softmax(mask(softcap(q k^T))) v over the layer's pages.

    Query head h uses kv head h // (heads / kv_heads).  Position i sees j <= i, and with
    a window w > 0 only j > i - w.  `softcap` c > 0 maps a logit s to c * tanh(s / c).
    """

    layer: int
    heads: int
    kv_heads: int
    head_dim: int
    window: int = 0
    softcap: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """h = h + scale * post_norm(linear(branch)), where branch is the last Attend or Gated output."""

    linear: Linear
    post_norm: Norm | None = None
    scale: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Gated:
    """branch = activation(gate(norm(h))) * up(norm(h))."""

    norm: Norm
    gate: Linear
    up: Linear
    activation: Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """logits = softcap(linear(norm(h)) * scale), of the rows asked for only."""

    norm: Norm
    linear: Linear
    scale: float = 1.0
    softcap: float = 0.0


Operation = Embed | Qkv | Attend | Residual | Gated | Head


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """What an executor needs to know of a model."""

    operations: tuple[Operation, ...]
    hidden: int
    vocabulary: int
    context: int  # positions the model was made for

    @property
    def layers(self) -> tuple[Qkv, ...]:
        """The operations that write pages, by layer."""
        return tuple(op for op in self.operations if isinstance(op, Qkv))

    @property
    def windowed(self) -> frozenset[int]:
        """The layers with a sliding window."""
        return frozenset(op.layer for op in self.operations if isinstance(op, Attend) and op.window)
