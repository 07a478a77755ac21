"""Matrix products whose rows have the same bits however many rows are computed together.

BLAS libraries pick kernels by shape, and kernels sum in different orders.  So columns are
cut below the length at which libraries split a sum, rows are computed only in group sizes
whose kernels agreed bit for bit when the executor started, and a group that is not full
is padded with zeros.
"""

import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamay.tensor.twins.linear import Real

LONGEST_SUM = 320  # OpenBLAS starts a second partial sum beyond this (its GEMM_Q) or larger lengths
CANDIDATES = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True, slots=True)
class Stable:
    """`groups` are the row counts in use, ascending; `fingerprint` sums up the bits this machine computes."""

    groups: tuple[int, ...]
    fingerprint: str

    def product(self, x: Real, weight: Real) -> Real:
        """x [..., rows, K] times weight [..., K, N], for any number of rows; K at most LONGEST_SUM."""
        x, weight = _rows_first(x), _rows_first(weight)
        rows, largest = x.shape[-2], self.groups[-1]
        if rows in self.groups:
            result: Real = np.matmul(x, weight)
            return result
        pieces = [_padded(x[..., start : start + largest, :], self.groups, weight) for start in range(0, rows, largest)]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces, axis=-2)


def _rows_first(array: Real) -> Real:
    """The array with neighbours in its last axis next to each other: BLAS has other kernels for the transpose."""
    return array if array.strides[-1] == array.itemsize else np.ascontiguousarray(array)


def _padded(x: Real, groups: tuple[int, ...], weight: Real) -> Real:
    rows = x.shape[-2]
    group = next(size for size in groups if size >= rows)
    if group > rows:
        padded = np.zeros((*x.shape[:-2], group, x.shape[-1]), x.dtype)
        padded[..., :rows, :] = x
        x = padded
    result: Real = np.matmul(x, weight)[..., :rows, :]
    return result


def choose(shapes: Iterable[tuple[int, int]], dtype: type[np.floating[Any]]) -> Stable:
    """Measures which group sizes agree bit for bit on every [K, N] in `shapes`, at every row of the group."""
    fitting: dict[int, list[bytes]] = {group: [] for group in CANDIDATES}
    random = np.random.default_rng(17)
    for columns, rows in sorted(set(shapes)):
        weight = random.standard_normal((columns, rows)).astype(dtype)
        vectors = random.standard_normal((3, columns)).astype(dtype)
        for group in list(fitting):
            bits = _same_at_every_row(vectors, weight, group)
            if bits is None:
                del fitting[group]
            else:
                fitting[group].append(bits)
    alike: dict[bytes, list[int]] = {}
    for group, found in fitting.items():
        alike.setdefault(b"".join(found), []).append(group)
    # Most sizes, then the smallest: a prompt gains from a large group, a lone row loses by padding to one.
    bits, groups = max(alike.items(), key=lambda item: (len(item[1]), -item[1][0]))
    samples = np.linspace(-20, 5, 999).astype(dtype)
    functions = b"".join(function(samples).tobytes() for function in (np.exp, np.tanh))
    return Stable(tuple(groups), f"{zlib.crc32(bits + functions):08x}")


def _same_at_every_row(vectors: NDArray[Any], weight: NDArray[Any], group: int) -> bytes | None:
    """The bits of vectors @ weight, or None where they depend on the row of the group a vector stands in."""
    bits = b""
    for vector in vectors:
        result = np.matmul(np.repeat(vector[None], group, axis=0), weight)
        if (result != result[0]).any():
            return None
        bits += result[0].tobytes()
    return bits
