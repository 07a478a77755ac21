"""A model's file or files, opened: metadata by key, tensors by name."""

import os
import re
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar, overload

from llamay.errors import MalformedFile, ModelFileError
from llamay.gguf.parse import Part, open_part
from llamay.gguf.tensor import Tensor
from llamay.gguf.values import Array, Text, Typed, Value, ValueType, kind, quoted

T = TypeVar("T", int, float, bool, str, Array)
D = TypeVar("D")

_REQUIRED: Any = object()
_SPLIT_NAME = re.compile(r"(?P<stem>.*)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)
_KINDS = {int: "an integer", float: "a float", bool: "a boolean", str: "a string", Array: "an array"}


class Metadata(Mapping[str, Value]):
    """The metadata of a file in its order: numbers, booleans, strings and lazy arrays."""

    def __init__(self, types: Mapping[str, ValueType], values: Mapping[str, Value | Text]) -> None:
        self.types = types  # the declared type of each
        self._values = values

    def __getitem__(self, key: str) -> Value:
        value = self._values[key]
        return value.read() if isinstance(value, Text) else value

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def typed(self, key: str) -> Typed | Array:
        """The value with its declared type and its very bytes, as `gguf.write` takes it."""
        value = self._values[key]
        if isinstance(value, Array):
            return value
        return Typed(self.types[key], value.raw() if isinstance(value, Text) else value)


class File:
    """An open model: one file, or all parts of a split one.  Usable in a with statement."""

    def __init__(self, parts: tuple[Part, ...]) -> None:
        self._parts = parts
        self.path = parts[0].path
        self.paths = tuple(part.path for part in parts)
        self.version = parts[0].version
        self.size = sum(part.size for part in parts)  # bytes of all parts
        self.metadata = Metadata(parts[0].types, parts[0].values)
        self.tensors: dict[str, Tensor] = {}
        for part in parts:
            for name, tensor in part.tensors.items():
                if name in self.tensors:
                    other = self.tensors[name].path
                    raise MalformedFile(f"the tensor {quoted(name)} is both in {other} and in {part.path}")
                self.tensors[name] = tensor

    @overload
    def get(self, key: str, type: type[T]) -> T: ...
    @overload
    def get(self, key: str, type: type[T], default: D) -> T | D: ...
    def get(self, key: str, type: type[Any], default: Any = _REQUIRED) -> Any:
        """The value of `key` as `type`, one of int, float, bool, str and Array.

        A missing key gives the default, or MalformedFile without one; so does a key declared as another type.
        """
        declared = self.metadata.types.get(key)
        if declared is None:
            if default is _REQUIRED:
                raise MalformedFile(f"{self.path}: the metadata key {key!r} is missing, {_KINDS[type]} expected")
            return default
        if kind(declared) is not type:
            found = f"declared as {declared.name.lower()}"
            raise MalformedFile(f"{self.path}: the metadata key {key!r} is {found}, {_KINDS[type]} expected")
        return self.metadata[key]

    def array(self, key: str, of: type[Any], length: int | None = None) -> Array | None:
        """The array `key` with elements read as `of` (int, float, bool or str), None when there is none.

        MalformedFile when it is no array, has other elements, or another length than `length`.
        """
        found = self.get(key, Array, None)
        if found is None:
            return None
        if kind(found.type) is not of:
            what = f"an array of {found.type.name.lower()}"
            raise MalformedFile(f"{self.path}: the metadata key {key!r} is {what}, {_KINDS[of]} for each expected")
        if length is not None and len(found) != length:
            what = f"{len(found):,} elements"
            raise MalformedFile(f"{self.path}: the metadata key {key!r} has {what}, {length:,} expected")
        return found

    def close(self) -> None:
        """Give the files back.  What was read stays; nothing more can be read."""
        for part in self._parts:
            part.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open(path: str | os.PathLike[str]) -> File:
    """Open the model at `path`; with the first part of a split model all parts are opened.

    ModelFileError (MalformedFile, Unsupported) says what is wrong; nothing stays open then.
    """
    parts = [open_part(os.fspath(path))]
    try:
        for other in _other_parts(parts[0]):
            parts.append(open_part(other))
            _check_part(parts[0], parts[-1], len(parts) - 1)
        file = File(tuple(parts))
        _check_total(file)
        return file
    except BaseException:
        for part in parts:
            part.close()
        raise


def _split(part: Part, key: str) -> int:
    value = part.values.get(key, 0)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise MalformedFile(f"{part.path}: {key} is declared as {part.types[key].name.lower()}, a count expected")
    return value


def _other_parts(first: Part) -> list[str]:
    """The paths of parts 2 to N when `first` is the first of N, each known to exist."""
    count, number = _split(first, "split.count"), _split(first, "split.no")
    if count <= 1 and number == 0:
        return []
    folder, name = os.path.split(first.path)
    match = _SPLIT_NAME.fullmatch(name)
    if number:
        start = f", {match['stem']}-00001-of-{match['count']}.gguf" if match else ""
        raise ModelFileError(
            f"{first.path} is part {number + 1:,} of a model split in {count:,}: open the first part{start}"
        )
    if match is None or (int(match["number"]), int(match["count"])) != (1, count):
        expected = f"...-00001-of-{count:05d}.gguf"
        raise ModelFileError(f"{first.path} is the first of {count:,} parts; to find the others name it {expected}")
    paths = [os.path.join(folder, f"{match['stem']}-{i:05d}-of-{count:05d}.gguf") for i in range(2, count + 1)]
    missing = [path for path in paths if not os.path.isfile(path)]
    if missing:
        some = ", ".join(missing[:3]) + (", ..." if len(missing) > 3 else "")
        raise ModelFileError(f"{first.path}: {len(missing):,} of {count:,} parts are missing: {some}")
    return paths


def _check_part(first: Part, part: Part, number: int) -> None:
    found = _split(part, "split.no"), _split(part, "split.count")
    expected = number, _split(first, "split.count")
    if found != expected:
        raise MalformedFile(
            f"{part.path} says it is part {found[0] + 1:,} of {found[1]:,}, {expected[0] + 1:,} of {expected[1]:,} expected"
        )


def _check_total(file: File) -> None:
    total = file.get("split.tensors.count", int, None)
    if total is not None and len(file.paths) > 1 and total != len(file.tensors):
        raise MalformedFile(
            f"{file.path} announces {total:,} tensors in its parts, but they hold {len(file.tensors):,}"
        )
