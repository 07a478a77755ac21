"""One tensor of an open file: where its bytes are, and how they are read."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llamay.gguf.source import Source
from llamay.gguf.values import quoted
from llamay.quant import LAYOUTS, TensorType


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """Name, type and shape of a tensor, and its bytes while the file is open.

    `shape` has the file's order, fastest dimension first; `rows` x `columns` is the same
    tensor as a matrix, columns being shape[0].  `offset` counts from the start of `path`.
    """

    name: str
    type: TensorType
    shape: tuple[int, ...]
    offset: int
    path: str
    _source: Source

    @property
    def columns(self) -> int:
        return self.shape[0] if self.shape else 1

    @property
    def rows(self) -> int:
        rows = 1
        for size in self.shape[1:]:
            rows *= size
        return rows

    @property
    def row_bytes(self) -> int:
        return LAYOUTS[self.type].row_bytes(self.columns)

    @property
    def nbytes(self) -> int:
        return self.rows * self.row_bytes

    @property
    def data(self) -> NDArray[np.uint8]:
        """All its bytes, read anew: uint8 [rows, row_bytes], read-only."""
        found = self.read(0, self.rows)
        found.flags.writeable = False
        return found

    def read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """The bytes of rows [start, stop), read anew: uint8 [stop - start, row_bytes]."""
        size = self.row_bytes
        flat = self._source.array(self.offset + start * size, (stop - start) * size, quoted(self.name))
        return flat.reshape(stop - start, size)
