"""Claiming a file's tensors by name, shape checked, so that what nobody claimed can be told."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from llamay.errors import MalformedFile, Unsupported
from llamay.quant import TensorType, dequantize, supported
from llamay.tensor.program import Bytes, Floats, Matrix

SHOWN = 8  # unread tensors that the audit line names


class Stored(Protocol):
    """What a claim needs of a tensor; `llamay.gguf.Tensor` is one."""

    @property
    def type(self) -> TensorType:
        """How its bytes are to be read."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The fastest dimension first."""

    def read(self, start: int, stop: int) -> Bytes:
        """The bytes of rows [start, stop): [stop - start, bytes a row]."""


@dataclass(frozen=True, slots=True)
class Audit:
    """Which of the file's tensors the program reads."""

    read: int
    total: int
    unread: tuple[str, ...]

    def __str__(self) -> str:
        named = ", ".join(self.unread[:SHOWN]) or "none"
        rest = named if len(self.unread) <= SHOWN else f"{named} and {len(self.unread) - SHOWN} more"
        return f"tensor audit {self.read} of {self.total} tensors read, {rest} unread"


@dataclass(slots=True)
class Claims:
    """The tensors of one file and the names claimed so far.

    Every claim raises MalformedFile where a tensor is missing or has another shape than
    expected, and Unsupported where its type cannot be read.
    """

    tensors: Mapping[str, Stored]
    claimed: set[str] = field(default_factory=set)

    def has(self, name: str) -> bool:
        """Whether the file holds the tensor; claims nothing."""
        return name in self.tensors

    def matrix(self, name: str, rows: int, columns: int) -> Matrix:
        """The tensor as a matrix [rows, columns]."""
        return self.stacked(name, (rows,), columns)[0]

    def stacked(self, name: str, rows: tuple[int, ...], columns: int) -> tuple[Matrix, ...]:
        """The tensor as matrices that lie one below the other, each named by the tensor and its place."""
        tensor = self._claim(name, (columns, sum(rows)))
        parts, first = [], 0
        for at, count in enumerate(rows):
            read = tensor.read if first == 0 else _below(tensor, first)
            parts.append(Matrix(f"{name}#{at}" if at else name, tensor.type, count, columns, read))
            first += count
        return tuple(parts)

    def rows(self, name: str, columns: int) -> Matrix:
        """The tensor as a matrix of as many rows as it has."""
        shape = tuple(self.tensors[name].shape) if name in self.tensors else ()
        return self.matrix(name, shape[1] if len(shape) == 2 else 1, columns)

    def experts(self, name: str, count: int, rows: int, columns: int) -> tuple[Matrix, ...]:
        """The tensor [columns, rows, count] as a matrix [rows, columns] of each expert."""
        tensor = self._claim(name, (columns, rows, count))
        return tuple(
            Matrix(f"{name}#{expert}", tensor.type, rows, columns, _below(tensor, expert * rows)) for expert in range(count)
        )

    def vector(self, name: str, length: int, count: int = 1) -> Floats:
        """The tensor, `count` vectors end to end, as float32 [count * length]; MalformedFile where a value is no finite number."""
        tensor = self._claim(name, (length, count) if count > 1 else (length,))
        found = dequantize(tensor.type, tensor.read(0, count)).reshape(count * length)
        wrong = np.flatnonzero(~np.isfinite(found))
        if len(wrong):
            what = f"value {wrong[0]:,} of {name} is {found[wrong[0]]}, no finite number"
            raise MalformedFile(f"the weights are damaged: {what}; get the file again")
        return found

    def audit(self) -> Audit:
        """What was claimed of what there is."""
        unread = tuple(name for name in self.tensors if name not in self.claimed)
        return Audit(len(self.claimed), len(self.tensors), unread)

    def _claim(self, name: str, shape: tuple[int, ...]) -> Stored:
        tensor = self.tensors.get(name)
        if tensor is None:
            raise MalformedFile(f"the file has no tensor {name}, expected with shape {list(shape)}")
        found = tuple(tensor.shape)
        if _trimmed(found) != _trimmed(shape):
            raise MalformedFile(f"tensor {name} has shape {list(found)}, expected {list(shape)}")
        if not supported(tensor.type):
            raise Unsupported(f"tensor {name} has type {tensor.type.name}, which llamay does not read yet")
        self.claimed.add(name)
        return tensor


def _below(tensor: Stored, first: int) -> Callable[[int, int], Bytes]:
    """Reads a tensor's rows as counted from row `first`."""
    return lambda start, stop: tensor.read(first + start, first + stop)


def _trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape without trailing ones, which some writers add and others leave out."""
    length = len(shape)
    while length > 1 and shape[length - 1] == 1:
        length -= 1
    return shape[:length]
