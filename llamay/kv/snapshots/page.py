"""One page as a file: a head that says what follows, and the page's bytes, compressed where that pays.

The file's name and its head carry the SHA-256 of the page's own bytes: address and checksum in one.
An exported context holds the same records, one after the other.
"""

import hashlib
import os
import stat
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llamay.errors import MalformedContext
from llamay.kv.snapshots import codec

HEAD = struct.Struct("<8sIIII32s8x")  # magic, method, bytes of the page, bytes stored, their CRC, SHA-256
MAGIC = b"LLAMAYPG"
RAW, ZSTD = 0, 1
PAYS = 7 / 8  # compressed, a page must be this small or smaller: reading it back costs time

Read = Callable[[Any], int]  # fills a buffer from where the last one ended; returns how much it filled


@dataclass(frozen=True, slots=True)
class Head:
    """What the head of a page's record says."""

    method: int
    size: int  # bytes of the page
    stored: int  # bytes that follow the head
    crc: int  # of those where they are compressed: zstd data has bits that change nothing
    digest: str

    def encode(self) -> bytes:
        """The head's bytes."""
        return HEAD.pack(MAGIC, self.method, self.size, self.stored, self.crc, bytes.fromhex(self.digest))


def digest_of(data: Any) -> str:
    """The SHA-256 of a page's bytes (any contiguous buffer), 64 hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def packed(data: Any, digest: str, compress: bool) -> tuple[Head, Any]:
    """A page's head and what follows it; tried with zstd where `compress`, and left raw where that does not pay."""
    size = memoryview(data).nbytes
    if compress:
        small = codec.compress(data)
        if len(small) <= size * PAYS:
            return Head(ZSTD, size, len(small), zlib.crc32(small), digest), small
    return Head(RAW, size, size, 0, digest), data


def read_head(read: Read, digest: str, size: int, available: int, whence: str) -> Head:
    """Reads a head, which must be that of the page `digest` of `size` bytes; `available` bytes are there with it."""
    data = bytearray(HEAD.size)
    _fill(read, memoryview(data), whence)
    magic, method, found, stored, crc, digest_bytes = HEAD.unpack(data)
    head = Head(method, found, stored, crc, digest_bytes.hex())
    if magic != MAGIC or any(data[-8:]) or method not in (RAW, ZSTD):
        raise MalformedContext(f"{whence} is no page: it does not begin as one")
    if head.digest != digest or found != size:
        raise MalformedContext(
            f"{whence} is page {head.digest[:12]} of {found} bytes; {digest[:12]} of {size} expected"
        )
    if ((stored, crc) != (size, 0)) if method == RAW else stored > size * PAYS:
        raise MalformedContext(f"{whence} announces {stored} bytes for a page of {size}")
    if stored > available - HEAD.size:
        raise MalformedContext(f"{whence} is cut: {stored} bytes are announced, {available - HEAD.size} are there")
    return head


def read_body(read: Read, head: Head, into: memoryview, whence: str) -> Any:
    """Reads and checks what follows a head: the page goes into `into` (its size in bytes), what was stored is returned."""
    stored = into if head.method == RAW else memoryview(bytearray(head.stored))
    _fill(read, stored, whence)
    if head.method == ZSTD:
        if zlib.crc32(stored) != head.crc:
            raise MalformedContext(f"{whence} is damaged: it does not match its checksum")
        try:
            page = codec.decompress(bytes(stored), head.size)
        except MalformedContext as error:
            raise MalformedContext(f"{whence}: {error}") from error
        if len(page) != head.size:
            raise MalformedContext(f"{whence} holds {len(page)} bytes; {head.size} announced")
        into[:] = page
    if digest_of(into) != head.digest:
        raise MalformedContext(f"{whence} is damaged: it does not match its checksum")
    return stored


def load(path: Path, digest: str, into: memoryview) -> tuple[Head, Any]:
    """Reads the page's file into `into`, bytes of exactly its size; returns its head and what was stored.

    MalformedContext where it is not that page, FileNotFoundError where there is none.
    """
    with open_plain(path) as file:
        head = _whole_head(file, path, digest, into.nbytes)
        return head, read_body(file.readinto, head, into, str(path))


def seems_whole(path: Path, digest: str, size: int) -> bool:
    """Whether a file has the head and the length of this page; its bytes are judged when they are read."""
    try:
        with open_plain(path) as file:
            _whole_head(file, path, digest, size)
    except (MalformedContext, OSError):
        return False
    return True


def open_plain(path: Path) -> Any:
    """Opens a file for unbuffered reading; MalformedContext for what is no regular file, without waiting for a pipe."""
    return open(path, "rb", buffering=0, opener=_plain)


def _whole_head(file: Any, path: Path, digest: str, size: int) -> Head:
    """The head of a file that is as long as it says."""
    length = os.fstat(file.fileno()).st_size
    head = read_head(file.readinto, digest, size, length, str(path))
    if length != HEAD.size + head.stored:
        raise MalformedContext(f"{path} has {length} bytes; {HEAD.size + head.stored} expected")
    return head


def _plain(path: str, flags: int) -> int:
    descriptor = os.open(path, flags | getattr(os, "O_NONBLOCK", 0))
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise MalformedContext(f"{path} is not a regular file")
    return descriptor


def _fill(read: Read, view: memoryview, whence: str) -> None:
    """Fills the whole view."""
    while view:
        count = read(view)
        if not count:
            raise MalformedContext(f"{whence} is cut: {view.nbytes} bytes more were announced")
        view = view[count:]
