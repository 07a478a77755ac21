"""Digests: their one spelling, the one function that turns one into a path, and how they are computed."""

import hashlib
import os
import re
from collections.abc import Callable
from pathlib import Path

from llamay.errors import StoreError

CHUNK = 1 << 20  # bytes read at a time when hashing

_DIGEST = re.compile(r"sha256[:-]([0-9a-f]{64})")
_MENTION = re.compile(rb"sha256[:-]([0-9a-f]{64})")


def parse(text: object) -> str:
    """The digest as `sha256:<64 hex>`; raises StoreError for anything else, whatever its type."""
    match = _DIGEST.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise StoreError(f"not a digest: {ascii(text)[:100]}; expected sha256: and 64 lowercase hexadecimal digits")
    return f"sha256:{match[1]}"


def blob_path(blobs: Path, digest: str) -> Path:
    """The file of a digest inside the folder `blobs`.

    Raises StoreError when the digest is malformed or the file is a link that leads elsewhere.
    """
    name = parse(digest).replace(":", "-")
    path = blobs / name
    if os.path.realpath(path) != os.path.join(os.path.realpath(blobs), name):
        raise StoreError(f"{path} leads out of the store, to {os.path.realpath(path)}; expected a plain file")
    return path


def of_bytes(data: bytes) -> str:
    """The digest of bytes in memory."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def of_file(path: Path, advance: Callable[[int], None] = lambda count: None) -> str:
    """The digest of a file's bytes as they are on disk now; `advance` hears of every chunk read."""
    hasher = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            hasher.update(chunk)
            advance(len(chunk))
    return f"sha256:{hasher.hexdigest()}"


def mentioned(data: bytes) -> set[str]:
    """Every digest that occurs anywhere in the bytes of a manifest, even a broken one."""
    return {f"sha256:{match.decode('ascii')}" for match in _MENTION.findall(data)}
