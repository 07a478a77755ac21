"""Writing GGUF files, version 3, in one piece: aside first, then under their name."""

import os
import secrets
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from llamay.errors import ModelFileError, UsageError
from llamay.gguf.parse import DEFAULT_ALIGNMENT, MAX_ALIGNMENT, MAX_DIMENSIONS
from llamay.gguf.values import NUMBERS, SCALARS, Array, Typed, ValueType
from llamay.quant import LAYOUTS, TensorType

Content = bytes | memoryview | NDArray[Any]
Source = Content | Callable[[], Content]  # a callable makes its bytes when they are written
TensorSource = tuple[str, TensorType, Sequence[int], Source]

_VERSION = 3


def write(path: str | os.PathLike[str], metadata: Mapping[str, Any], tensors: Iterable[TensorSource]) -> None:
    """Write a model to `path`, replacing what is there only when all of it is on the disk.

    metadata: bool, int (the smallest of uint32, int32, uint64, int64 that holds it), float (float32), str,
    non-empty lists of those (lists of int as int32 when they fit), NumPy arrays, an `Array` of an open file,
    or `Typed` for another declared type.  tensors: (name, type, shape with the fastest dimension first, bytes),
    the bytes as anything with the buffer interface or a function returning it.
    UsageError for values that cannot be written, ModelFileError when the disk refuses.
    """
    listed = list(tensors)
    alignment = _alignment(metadata)
    header = _header(metadata, listed, alignment)
    target = Path(path)
    aside = target.with_name(f".{target.name}.{secrets.token_hex(6)}.part")
    try:
        with open(aside, "xb") as file:
            file.write(header)
            for tensor in listed:
                _write_tensor(file, tensor, alignment)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, target)
        _sync_folder(target.parent)
    except OSError as error:
        raise ModelFileError(f"cannot write {target}: {error}") from error
    finally:
        aside.unlink(missing_ok=True)


def write_split(
    stem: str | os.PathLike[str], metadata: Mapping[str, Any], tensors: Iterable[TensorSource], each: int
) -> list[Path]:
    """Write `stem`-00001-of-0000N.gguf and so on with `each` tensors a file; returns the paths.

    The first file carries all metadata, each of them the three split.* keys.
    """
    listed = list(tensors)
    if each < 1:
        raise UsageError(f"{each} tensors a file cannot be; 1 or more expected")
    pieces = [listed[start : start + each] for start in range(0, len(listed), each)] or [[]]
    paths: list[Path] = []
    for number, piece in enumerate(pieces):
        split = {
            "split.no": Typed(ValueType.UINT16, number),
            "split.count": Typed(ValueType.UINT16, len(pieces)),
            "split.tensors.count": Typed(ValueType.INT32, len(listed)),
        }
        own = metadata if number == 0 else {k: v for k, v in metadata.items() if k == "general.alignment"}
        paths.append(Path(f"{os.fspath(stem)}-{number + 1:05d}-of-{len(pieces):05d}.gguf"))
        write(paths[-1], {**own, **split}, piece)
    return paths


def _sync_folder(folder: Path) -> None:
    """Make the rename itself durable, where folders can be opened."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _alignment(metadata: Mapping[str, Any]) -> int:
    value = metadata.get("general.alignment", DEFAULT_ALIGNMENT)
    value = value.value if isinstance(value, Typed) else value
    if not isinstance(value, int) or not 1 <= value <= MAX_ALIGNMENT or value & (value - 1):
        raise UsageError(f"general.alignment is {value!r}; a power of two up to {MAX_ALIGNMENT:,} expected")
    return value


def _header(metadata: Mapping[str, Any], tensors: Sequence[TensorSource], alignment: int) -> bytes:
    pieces = [b"GGUF", struct.pack("<IQQ", _VERSION, len(tensors), len(metadata))]
    for key, value in metadata.items():
        pieces += [_text(key, "a metadata key"), _value(key, value)]
    offset = 0
    names: set[str] = set()
    for name, type, shape, _ in tensors:
        if name in names:
            raise UsageError(f"two tensors are named {name!r}")
        names.add(name)
        place = struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, type, offset)
        pieces += [_text(name, "a tensor name"), place]
        offset += _padded(_nbytes(name, type, shape), alignment)
    head = b"".join(pieces)
    return head.ljust(_padded(len(head), alignment), b"\0")


def _padded(size: int, alignment: int) -> int:
    return -(-size // alignment) * alignment


def _text(text: str, what: str) -> bytes:
    """A key or name with its length: 1 to 65,535 bytes."""
    raw = text.encode()
    if not 1 <= len(raw) <= 65_535:
        raise UsageError(f"{what} of {len(raw):,} bytes cannot be written; 1 to 65,535 expected")
    return struct.pack("<Q", len(raw)) + raw


def _nbytes(name: str, type: TensorType, shape: Sequence[int]) -> int:
    layout = LAYOUTS.get(type)
    if layout is None:
        raise UsageError(f"tensor {name!r} is of type {type.name}, which has no layout here")
    if not 1 <= len(shape) <= MAX_DIMENSIONS or min(shape) < 1 or shape[0] % layout.elements:
        expected = f"1 to {MAX_DIMENSIONS} sizes above 0, the first a multiple of {layout.elements}"
        raise UsageError(f"tensor {name!r} of type {type.name} has shape {list(shape)}; {expected} expected")
    elements = 1
    for size in shape:
        elements *= size
    return elements // layout.elements * layout.bytes


def _write_tensor(file: BinaryIO, tensor: TensorSource, alignment: int) -> None:
    name, type, shape, source = tensor
    content = source() if callable(source) else source
    raw = np.ascontiguousarray(content).data if isinstance(content, np.ndarray) else memoryview(content)
    expected = _nbytes(name, type, shape)
    if raw.nbytes != expected:
        raise UsageError(f"tensor {name!r} came with {raw.nbytes:,} bytes, {expected:,} expected")
    file.write(raw.cast("B"))
    file.write(b"\0" * (_padded(expected, alignment) - expected))


def _value(key: str, value: Any) -> bytes:
    """A value with its type in front."""
    if isinstance(value, Array):
        return struct.pack("<IIQ", ValueType.ARRAY, value.type, len(value)) + value.raw()
    if isinstance(value, np.ndarray):
        return _numpy_array(key, value)
    type, content = (value.type, value.value) if isinstance(value, Typed) else (None, value)
    if isinstance(content, list | tuple):
        element = type if type is not None else _element_type(key, content)
        items = b"".join(_scalar(key, element, item) for item in content)
        return struct.pack("<IIQ", ValueType.ARRAY, element, len(content)) + items
    declared = type if type is not None else _scalar_type(key, content)
    return struct.pack("<I", declared) + _scalar(key, declared, content)


def _numpy_array(key: str, array: NDArray[Any]) -> bytes:
    types = {dtype: type for type, dtype in NUMBERS.items()}
    dtype = array.dtype.newbyteorder("<")
    if array.ndim != 1 or dtype not in types:
        raise UsageError(f"{key!r} is an array {list(array.shape)} of {array.dtype}, one dimension of numbers expected")
    return struct.pack("<IIQ", ValueType.ARRAY, types[dtype], len(array)) + array.astype(dtype).tobytes()


def _scalar_type(key: str, value: Any) -> ValueType:
    if isinstance(value, bool):
        return ValueType.BOOL
    if isinstance(value, str):
        return ValueType.STRING
    if isinstance(value, float):
        return ValueType.FLOAT32
    if isinstance(value, int):
        for type in (ValueType.UINT32, ValueType.INT32, ValueType.UINT64, ValueType.INT64):
            if _holds(type, value):
                return type
    raise UsageError(f"{key!r} is {value!r:.80}; a boolean, a number of 64 bits, a string or a list of them expected")


def _holds(type: ValueType, value: int) -> bool:
    limits = np.iinfo(NUMBERS[type])
    return int(limits.min) <= value <= int(limits.max)


def _element_type(key: str, values: Sequence[Any]) -> ValueType:
    if not values:
        raise UsageError(f"{key!r} is an empty list; Typed(type, []) says what it would hold")
    if all(type(value) is int for value in values):
        order = (ValueType.INT32, ValueType.UINT32, ValueType.INT64, ValueType.UINT64)
        for candidate in order:
            if _holds(candidate, min(values)) and _holds(candidate, max(values)):
                return candidate
    types = {_scalar_type(key, value) for value in values}
    if len(types) > 1:
        raise UsageError(f"{key!r} mixes {', '.join(sorted(type.name.lower() for type in types))}; one type expected")
    return types.pop()


def _scalar(key: str, type: ValueType, value: Any) -> bytes:
    if type is ValueType.STRING and isinstance(value, str | bytes):
        raw = value.encode() if isinstance(value, str) else value
        return struct.pack("<Q", len(raw)) + raw
    if type in NUMBERS and isinstance(value, int | float | np.number | np.bool_):
        try:
            return SCALARS[type].pack(value)
        except (struct.error, OverflowError) as error:
            raise UsageError(f"{key!r}: {value!r} is no {type.name.lower()}: {error}") from error
    raise UsageError(f"{key!r}: {value!r:.80} is no {type.name.lower()}")
