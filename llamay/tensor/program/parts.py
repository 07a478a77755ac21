"""What operations are made of: matrices that still hold their file's bytes, linears, norms, rotary embeddings."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from llamay.errors import MalformedFile
from llamay.quant import LAYOUTS, TensorType, damaged

WHOLE = 32  # values of a unit, which linears read whole
SPARSE = 4  # rows of a file read for each that is wanted, before only the wanted ones are read

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]
Activation = Literal["silu", "gelu_tanh", "gelu_erf", "relu_squared", "clipped"]
NormKind = Literal["rms", "layer", "none"]
Branch = Literal["attention", "feed_forward"]
HeadNorms = Literal["", "each", "late", "all", "layer", "whole"]
Pooling = Literal["mean", "first", "last"]
Gating = Literal["softmax", "sigmoid"]


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
    read: Callable[[int, int], Bytes]  # (start, stop) -> the file's rows [start, stop), of `row_bytes` each
    order: NDArray[np.int64] | None = None

    @property
    def row_bytes(self) -> int:
        return LAYOUTS[self.type].row_bytes(self.columns)

    def take(self, rows: NDArray[np.integer[Any]]) -> Bytes:
        """The bytes of these rows of the loaded matrix, at least one; MalformedFile where they are damaged."""
        wanted = rows if self.order is None else self.order[rows]
        first, last = int(wanted.min()), int(wanted.max())
        if last - first < SPARSE * len(wanted):
            found = self.read(first, last + 1)
            if len(wanted) != len(found) or (np.diff(wanted) != 1).any():
                found = found[wanted - first]
        else:
            distinct, back = np.unique(wanted, return_inverse=True)
            runs = np.split(distinct, np.flatnonzero(np.diff(distinct) > 1) + 1)
            found = np.concatenate([self.read(int(run[0]), int(run[-1]) + 1) for run in runs])[back]
        wrong = damaged(self.type, found)
        if wrong is not None:
            raise MalformedFile(
                f"the weights are damaged: row {int(wanted[wrong]):,} of {self.name} ({self.type.name}) holds "
                f"what is no finite number; get the file again"
            )
        return found


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


Experts = tuple[Linear, ...]  # one linear of each expert, or of each head, all of one shape and one tensor type


@dataclass(frozen=True, slots=True, eq=False)
class Norm:
    """A norm of the rows of x, with m their mean.

    rms: w * x / sqrt(mean(x^2) + eps).  layer: w * (x - m) / sqrt(mean((x - m)^2) + eps) + b.
    none: w * x alone, which with ones is no norm.
    """

    weight: Floats  # [H]; of heads see Qkv
    eps: float
    kind: NormKind = "rms"
    bias: Floats | None = None  # [H], of a layer norm


@dataclass(frozen=True, slots=True, eq=False)
class Rope:
    """Rotary embedding of the first 2 * len(frequencies) dimensions of each head.

    The pair (2i, 2i+1) turns by position * frequencies[i]; cos and sin are multiplied
    by `magnitude` (YaRN), so q.k scales by its square.  Dimensions beyond pass through.
    """

    frequencies: NDArray[np.float64]  # [rotated dimensions / 2], radians a position
    magnitude: float = 1.0
