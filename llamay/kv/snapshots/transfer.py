"""One file for one saved context: its manifest, then the record of each page, in the order of first use."""

import contextlib
import os
import secrets
from pathlib import Path
from typing import Any

import msgspec

from llamay.errors import ContextFileError, MalformedContext
from llamay.kv.snapshots import manifest, page
from llamay.kv.snapshots.folder import Folder, Saved, sync_folder
from llamay.kv.snapshots.labels import check_name
from llamay.kv.snapshots.manifest import Manifest
from llamay.kv.snapshots.writer import Writer


def export(folder: Folder, name: str, path: Path) -> int:
    """Writes the context saved as `name` to a file, as a whole or not at all, and returns its size in bytes.

    Every page is checked on its way; MalformedContext where one is damaged.  A file of that name is replaced,
    a folder or a device is not.
    """
    saved = folder.find(name).manifest
    path = Path(os.path.abspath(path))
    if os.path.exists(path) and not os.path.isfile(path):
        raise ContextFileError(f"{path} is not a regular file, so no context can be written there")
    beside = path.with_name(f".{path.name[:40]}.{secrets.token_hex(4)}")
    try:
        with open(beside, "xb") as out:
            out.write(manifest.encode(saved))
            for digest, size in saved.sizes().items():
                _copy_page(folder, digest, size, out)
            out.flush()
            os.fsync(out.fileno())
            written = out.tell()
        os.replace(beside, path)
        sync_folder(path.parent)
    except BaseException as error:
        with contextlib.suppress(OSError):
            beside.unlink()
        if isinstance(error, OSError):
            raise ContextFileError(f"{path} cannot be written: {error.strerror or error}") from error
        raise
    return written


def import_file(folder: Folder, path: Path, name: str = "") -> Saved:
    """Saves the context of an exported file, under its own name or another.

    MalformedContext for a file that is damaged in any byte, UsageError for a name that is taken; nothing
    of the file is kept then.  Memory stays within a page and the description.
    """
    try:
        file = page.open_plain(path)
    except OSError as error:
        raise ContextFileError(f"{path} cannot be read: {error.strerror}") from error
    with file:
        left = os.fstat(file.fileno()).st_size
        document, length = _read_manifest(file, left, path)
        left -= length
        if name:
            document = msgspec.structs.replace(document, name=check_name(name))
        with Writer(folder, document.origin.groups) as writer:
            for digest, size in document.sizes().items():
                head = page.read_head(file.readinto, digest, size, left, str(path))
                writer.put(head, page.read_body(file.readinto, head, memoryview(bytearray(size)), str(path)))
                left -= page.HEAD.size + head.stored
            if left or file.read(1):
                raise MalformedContext(f"{path} goes on after its last page")
            return writer.commit(document, replace=False)


def _read_manifest(file: Any, size: int, path: Path) -> tuple[Manifest, int]:
    """The manifest a file of `size` bytes begins with, and how many bytes it takes."""
    head = file.read(manifest.HEAD.size)
    if not head.startswith(manifest.MAGIC):
        raise MalformedContext(f"{path} is no saved context; a file that `llamay context export` wrote is expected")
    length = manifest.body_length(head, size - manifest.HEAD.size, str(path))
    data = head + file.read(length)
    return manifest.decode(data, str(path)), len(data)


def _copy_page(folder: Folder, digest: str, size: int, out: Any) -> None:
    place = folder.page(digest)
    try:
        head, stored = page.load(place, digest, memoryview(bytearray(size)))
    except FileNotFoundError:
        raise MalformedContext(f"page {digest} is missing from {folder.pages}") from None
    except OSError as error:
        raise ContextFileError(f"{place} cannot be read: {error.strerror or error}") from error
    out.write(head.encode())
    out.write(stored)
