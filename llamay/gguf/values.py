"""The value types of GGUF metadata, and arrays that are read only when asked."""

import struct
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamay.errors import MalformedFile
from llamay.gguf.source import Source


class ValueType(IntEnum):
    """Metadata value types as the file stores them."""

    UINT8 = 0
    INT8 = 1
    UINT16 = 2
    INT16 = 3
    UINT32 = 4
    INT32 = 5
    FLOAT32 = 6
    BOOL = 7
    STRING = 8
    ARRAY = 9
    UINT64 = 10
    INT64 = 11
    FLOAT64 = 12


NUMBERS: dict[ValueType, np.dtype[Any]] = {
    ValueType.UINT8: np.dtype("u1"),
    ValueType.INT8: np.dtype("i1"),
    ValueType.UINT16: np.dtype("<u2"),
    ValueType.INT16: np.dtype("<i2"),
    ValueType.UINT32: np.dtype("<u4"),
    ValueType.INT32: np.dtype("<i4"),
    ValueType.FLOAT32: np.dtype("<f4"),
    ValueType.BOOL: np.dtype("?"),
    ValueType.UINT64: np.dtype("<u8"),
    ValueType.INT64: np.dtype("<i8"),
    ValueType.FLOAT64: np.dtype("<f8"),
}

SCALARS: dict[ValueType, struct.Struct] = {
    type: struct.Struct("<" + code) for type, code in zip(NUMBERS, "BbHhIif?Qqd", strict=True)
}

U32, U64 = struct.Struct("<I"), struct.Struct("<Q")


def kind(type: ValueType) -> type[Any]:
    """The Python type a value of this declared type is read as."""
    if type is ValueType.STRING:
        return str
    if type is ValueType.ARRAY:
        return Array
    if type is ValueType.BOOL:
        return bool
    return float if type in (ValueType.FLOAT32, ValueType.FLOAT64) else int


def quoted(name: str) -> str:
    """A name from the file for a message: escaped, and cut when it is long."""
    return repr(name) if len(name) <= 80 else repr(name[:77]) + "..."


@dataclass(frozen=True, slots=True)
class Array:
    """One metadata array, still in the file; its extent was checked when the file was opened.

    `type` is the type of its elements; every call of a reading method reads anew.
    """

    key: str
    type: ValueType
    count: int
    _source: Source
    _start: int  # of the first element, in bytes from the start of the file
    _end: int

    def __len__(self) -> int:
        return self.count

    def raw(self) -> bytes:
        """The elements as the file stores them."""
        return self._source.read(self._start, self._end - self._start, quoted(self.key))

    def numpy(self) -> NDArray[Any]:
        """A copy as [count] of the declared number type (bool for booleans); MalformedFile for other elements."""
        if self.type not in NUMBERS:
            raise self._wrong("numbers")
        if self.type is ValueType.BOOL:
            return np.frombuffer(self.raw(), np.uint8).astype(np.bool_)
        return np.frombuffer(self.raw(), NUMBERS[self.type]).copy()

    def bytes(self) -> "list[bytes]":
        """The strings as stored; MalformedFile when the elements are not strings."""
        if self.type is not ValueType.STRING:
            raise self._wrong("strings")
        raw, unpack, position = self.raw(), U64.unpack_from, 0
        found: list[bytes] = []
        try:
            for _ in range(self.count):
                start = position + 8
                position = start + unpack(raw, position)[0]
                found.append(raw[start:position])
        except (struct.error, OverflowError) as error:
            raise MalformedFile(f"{self._source.path}: {quoted(self.key)} changed while the file was open") from error
        return found

    def strings(self) -> list[str]:
        """The strings; MalformedFile when the elements are not strings or one is not UTF-8."""
        found = self.bytes()
        try:
            return [text.decode() for text in found]
        except UnicodeDecodeError as error:
            index = found.index(error.object)
            raise MalformedFile(f"{self._source.path}: {quoted(self.key)}[{index}] is not UTF-8: {error}") from error

    def _wrong(self, expected: str) -> MalformedFile:
        found = f"an array of {self.type.name.lower()}"
        return MalformedFile(f"{self._source.path}: {quoted(self.key)} is {found}, {expected} expected")


@dataclass(frozen=True, slots=True)
class Text:
    """A string still in the file, for its length or for bytes that are not UTF-8; `File.metadata` hands out its text.

    Bytes that are not UTF-8 show as \\xNN, so that one of them does not refuse the whole file.
    """

    key: str
    source: Source
    start: int
    end: int

    def raw(self) -> bytes:
        return self.source.read(self.start, self.end - self.start, quoted(self.key))

    def read(self) -> str:
        return self.raw().decode(errors="backslashreplace")


Scalar = bool | int | float | str
Value = Scalar | Array


@dataclass(frozen=True, slots=True)
class Typed:
    """A value to write with its declared type: of the scalar, or of each element of a list or array."""

    type: ValueType
    value: Any
