"""One GGUF file: opened, its header read, and its tensors checked against the file's size."""

from collections.abc import Sequence
from dataclasses import dataclass

from llamay.errors import MalformedFile, Unsupported
from llamay.gguf.cursor import ANEW, Cursor
from llamay.gguf.source import Source
from llamay.gguf.tensor import Tensor
from llamay.gguf.values import Text, Value, ValueType, quoted
from llamay.quant import LAYOUTS, TensorType

HEADER = 24  # bytes before the first entry: magic, version, two counts
MAX_ENTRIES = 65_536  # metadata entries, and tensors, of one file
MAX_ALIGNMENT = 1 << 20
MAX_DIMENSIONS = 4
DEFAULT_ALIGNMENT = 32

_ENTRY_BYTES = 8 + 1 + 4 + 1  # the least a metadata entry takes: a key of one byte and a boolean
_INFO_BYTES = 8 + 1 + 4 + 4 + 8  # the least a tensor's entry takes

_OTHER_MAGICS: tuple[tuple[bytes, str], ...] = (
    (b"lmgg", "a GGML file, the format before GGUF"),
    (b"fmgg", "a GGMF file, a format before GGUF"),
    (b"tjgg", "a GGJT file, a format before GGUF"),
    (b"algg", "a GGLA file, the LoRA format before GGUF"),
    (b"PK\x03\x04", "a zip archive (a PyTorch checkpoint, perhaps)"),
    (b"version https", "a Git LFS pointer: the file it stands for was not downloaded"),
    (b"<", "an HTML or XML page, most likely an error page in place of the model"),
    (b"\x1f\x8b", "gzip data: unpack it first"),
    (b"\x28\xb5\x2f\xfd", "zstd data: unpack it first"),
    (b"\x89HDF", "an HDF5 file"),
)
_TYPES = {int(type): type for type in TensorType}
_GONE = {4: "Q4_2", 5: "Q4_3", 31: "Q4_0_4_4", 32: "Q4_0_4_8", 33: "Q4_0_8_8", 36: "IQ4_NL_4_4", 37: "IQ4_NL_4_8"}


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """One file on disk, opened: all of a model, or one part of a split one."""

    path: str
    version: int
    size: int
    types: dict[str, ValueType]
    values: dict[str, Value | Text]
    tensors: dict[str, Tensor]
    source: Source

    def close(self) -> None:
        """Give the file back."""
        self.source.close()


@dataclass(frozen=True, slots=True)
class _Info:
    """A tensor as its entry describes it: `offset` counts from the start of the data."""

    name: str
    shape: tuple[int, ...]
    type: TensorType
    offset: int
    nbytes: int


def open_part(path: str) -> Part:
    """Open and read one file; ModelFileError says what is wrong with it."""
    source = Source(path)
    try:
        if source.size < HEADER:
            raise MalformedFile(f"{path}: {source.size} bytes are no GGUF file; its header alone takes {HEADER}; {ANEW}")
        return _parse(Cursor(source), source)
    except BaseException:
        source.close()
        raise


def _parse(cursor: Cursor, source: Source) -> Part:
    _check_magic(cursor, source.read(0, 16, "the magic"))
    cursor.take(4, "the magic")
    version = _version(cursor)
    tensor_count = _count(cursor, "tensors")
    entry_count = _count(cursor, "metadata entries")
    types, values = _entries(cursor, entry_count)
    alignment = _alignment(cursor, types, values)
    infos = _infos(cursor, tensor_count, alignment)
    data = -(-cursor.position // alignment) * alignment
    _check_places(cursor, infos, data)
    tensors = {i.name: Tensor(i.name, i.type, i.shape, data + i.offset, cursor.path, source) for i in infos}
    return Part(cursor.path, version, cursor.end, types, values, tensors, source)


def _check_magic(cursor: Cursor, head: bytes) -> None:
    if head.startswith(b"GGUF"):
        return
    for magic, meaning in _OTHER_MAGICS:
        if head.startswith(magic):
            raise cursor.fail(f"this is {meaning}; llamay reads GGUF version 2 and 3", Unsupported)
    if head[8:10] == b'{"':
        raise cursor.fail("this is a safetensors file; convert it to GGUF first", Unsupported)
    raise cursor.fail(f"the file starts with {head[:4]!r}, b'GGUF' expected", do="name a GGUF file, or get this one again if it is one")


def _version(cursor: Cursor) -> int:
    version = cursor.u32("the version")
    if version and not version & 0xFFFF:
        raise cursor.fail("this is a big-endian GGUF file; llamay reads little-endian ones", Unsupported)
    if version == 1:
        raise cursor.fail("this is GGUF version 1; llamay reads 2 and 3: convert the model anew", Unsupported)
    if version not in (2, 3):
        raise cursor.fail(f"this is GGUF version {version:,}; llamay reads 2 and 3", Unsupported)
    return version


def _count(cursor: Cursor, what: str) -> int:
    count = cursor.u64(f"the number of {what}")
    if count > MAX_ENTRIES:
        raise cursor.fail(f"the file announces {count:,} {what}, at most {MAX_ENTRIES:,} expected")
    return count


def _entries(cursor: Cursor, count: int) -> tuple[dict[str, ValueType], dict[str, Value | Text]]:
    _fits(cursor, count, _ENTRY_BYTES, "metadata entries")
    types: dict[str, ValueType] = {}
    values: dict[str, Value | Text] = {}
    for index in range(count):
        key = cursor.name(f"the key of metadata entry {index:,}")
        if key in types:
            raise cursor.fail(f"the key {quoted(key)} appears twice")
        types[key] = cursor.value_type(key)
        values[key] = cursor.value(key, types[key])
    return types, values


def _fits(cursor: Cursor, count: int, least: int, what: str) -> None:
    left = cursor.end - cursor.position
    if count * least > left:
        raise cursor.fail(f"the file announces {count:,} {what}, but has {left:,} bytes left")


def _alignment(cursor: Cursor, types: dict[str, ValueType], values: dict[str, Value | Text]) -> int:
    alignment = values.get("general.alignment", DEFAULT_ALIGNMENT)
    if types.get("general.alignment", ValueType.UINT32) is not ValueType.UINT32 or not isinstance(alignment, int):
        found = types["general.alignment"].name.lower()
        raise cursor.fail(f"general.alignment is a value of type {found}, uint32 expected")
    if alignment < 1 or alignment > MAX_ALIGNMENT or alignment & (alignment - 1):
        raise cursor.fail(f"general.alignment is {alignment:,}; a power of two up to {MAX_ALIGNMENT:,} expected")
    return alignment


def _infos(cursor: Cursor, count: int, alignment: int) -> list[_Info]:
    _fits(cursor, count, _INFO_BYTES, "tensors")
    infos: dict[str, _Info] = {}
    for index in range(count):
        name = cursor.name(f"the name of tensor {index:,}")
        if name in infos:
            raise cursor.fail(f"the tensor {quoted(name)} appears twice")
        infos[name] = _info(cursor, name, alignment)
    return list(infos.values())


def _info(cursor: Cursor, name: str, alignment: int) -> _Info:
    what = f"tensor {quoted(name)}"
    dimensions = cursor.u32(f"the number of dimensions of {what}")
    if dimensions > MAX_DIMENSIONS:
        raise cursor.fail(f"{what} has {dimensions:,} dimensions, at most {MAX_DIMENSIONS} expected")
    shape = tuple(cursor.u64(f"the shape of {what}") for _ in range(dimensions))
    type = _type(cursor, what)
    offset = cursor.u64(f"the offset of {what}")
    if offset % alignment:
        raise cursor.fail(f"{what} starts at offset {offset:,}, a multiple of {alignment:,} expected")
    return _Info(name, shape, type, offset, _nbytes(cursor, what, shape, type))


def _type(cursor: Cursor, what: str) -> TensorType:
    number = cursor.u32(f"the type of {what}")
    known = _TYPES.get(number)
    if known in LAYOUTS:
        return known
    name = known.name if known else _GONE.get(number)
    found = f"of type {name} (number {number})" if name else f"of the unknown type number {number:,}"
    raise cursor.fail(f"{what} is {found}; llamay reads {', '.join(type.name for type in LAYOUTS)}", Unsupported)


def _nbytes(cursor: Cursor, what: str, shape: Sequence[int], type: TensorType) -> int:
    layout = LAYOUTS[type]
    elements = 1
    for size in shape:
        if not size:
            raise cursor.fail(f"{what} of shape {list(shape)} is empty")
        elements *= size
    columns = shape[0] if shape else 1
    if columns % layout.elements:
        expected = f"a multiple of {layout.elements} expected for {type.name}"
        raise cursor.fail(f"{what} has rows of {columns:,} elements, {expected}")
    return elements // layout.elements * layout.bytes


def _check_places(cursor: Cursor, infos: Sequence[_Info], data: int) -> None:
    """Every tensor inside the file, no two of them sharing a byte."""
    end, before = data, ""
    for info in sorted(infos, key=lambda info: info.offset):
        start = data + info.offset
        if start < end:
            raise cursor.fail(f"the tensors {quoted(before)} and {quoted(info.name)} overlap")
        end, before = start + info.nbytes, info.name
        if end > cursor.end:
            short = f"bytes {start:,} to {end:,} of a file of {cursor.end:,}"
            raise cursor.fail(f"the tensor {quoted(info.name)} takes {short}")
