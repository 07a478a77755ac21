"""One tensor of an open file: where its bytes are, and a view of them."""

import mmap
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llamay.errors import ModelFileError
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
    _map: mmap.mmap

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
        """Read-only view of the mapped bytes, uint8 [rows, row_bytes]; it keeps the mapping alive."""
        try:
            flat = np.frombuffer(self._map, np.uint8, self.nbytes, self.offset)
        except ValueError as error:
            raise ModelFileError(f"{self.path}: the file was closed; {quoted(self.name)} cannot be read") from error
        return flat.reshape(self.rows, self.row_bytes)

    def release(self) -> None:
        """Tell the system that the pages of this tensor may leave memory; reading them again brings them back."""
        if not hasattr(mmap, "MADV_DONTNEED"):
            return
        start = self.offset // mmap.PAGESIZE * mmap.PAGESIZE
        try:
            self._map.madvise(mmap.MADV_DONTNEED, start, self.offset + self.nbytes - start)
        except ValueError as error:
            raise ModelFileError(f"{self.path}: the file was closed; {quoted(self.name)} has no pages") from error
