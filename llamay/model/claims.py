"""Claiming a file's tensors by name, shape checked, so that what nobody claimed can be told."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

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

    @property
    def data(self) -> Bytes:
        """[rows, bytes a row]."""

    def release(self) -> None:
        """Lets the bytes leave memory until they are read again."""


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
        tensor = self._claim(name, (columns, rows))
        return Matrix(name, tensor.type, rows, columns, lambda: tensor.data, None, tensor.release)

    def vector(self, name: str, length: int) -> Floats:
        """The tensor as float32 [length]."""
        tensor = self._claim(name, (length,))
        return dequantize(tensor.type, tensor.data).reshape(length)

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


def _trimmed(shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape without trailing ones, which some writers add and others leave out."""
    length = len(shape)
    while length > 1 and shape[length - 1] == 1:
        length -= 1
    return shape[:length]
