"""Short convolutions on the NumPy executor: what their pages keep, and a sequence's next tokens from them."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamay.tensor import twins
from llamay.tensor.batch import PAGE, Ints
from llamay.tensor.program import Linear, ShortConv
from llamay.tensor.scans import before
from llamay.tensor.twins.linear import Real

Bytes = NDArray[np.uint8]
Product = Callable[[Linear, Real], Real]


class ConvPages:
    """One layer's pages, [16, channels] each where others have keys; `read_keys` and `write_keys` speak a device's bytes."""

    value_bytes = 0

    def __init__(self, op: ShortConv, pages: int, dtype: type[np.floating[Any]]) -> None:
        self.tokens: Real = np.zeros((pages, PAGE, op.inner), dtype)
        self.key_bytes = np.dtype(dtype).itemsize * PAGE * op.inner

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copies pages over pages."""
        self.tokens[list(targets)] = self.tokens[list(sources)]

    def read_keys(self, pages: Sequence[int]) -> Bytes:
        """Bytes [pages, key_bytes]."""
        return np.ascontiguousarray(self.tokens[list(pages)]).view(np.uint8).reshape(len(pages), -1)

    def write_keys(self, pages: Sequence[int], data: Bytes) -> None:
        """Takes bytes [pages, key_bytes]."""
        self.tokens[list(pages)] = np.ascontiguousarray(data).view(self.tokens.dtype).reshape(len(pages), PAGE, -1)

    def read_values(self, pages: Sequence[int]) -> Bytes:
        """Nothing: bytes [pages, 0]."""
        return np.empty((len(pages), 0), np.uint8)

    def write_values(self, pages: Sequence[int], data: Bytes) -> None:
        """There is nothing to take."""


def run(
    op: ShortConv, h: Real, pages: ConvPages, sequences: Sequence[tuple[NDArray[np.intp], Ints, Ints]], product: Product
) -> Real:
    """The branch [T, channels] of rows h [T, H]; of each sequence its rows, their positions in a row, and its table."""
    b, c, x = np.split(product(op.enter, twins.norm(h, op.norm)), 3, axis=1)
    entered, out = b * x, np.empty_like(c)
    for rows, positions, table in sequences:
        earlier = before(pages.tokens, len(op.kernel) - 1, table, int(positions[0]))
        out[rows] = twins.short_convolve(entered[rows], earlier, c[rows], op.kernel)
        pages.tokens[table[positions // PAGE], positions % PAGE] = entered[rows]
    return out
