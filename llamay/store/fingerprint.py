"""The digest of a model's weights, by which saved contexts know the model they are of.

It is the SHA-256 of the file's bytes, so a file and its copy in the store have the same.  Of a
blob of the store it is the digest it was checked against when it was pulled, and costs nothing.
Another file is hashed whole, once (1 to 2 GB a second where the processor has instructions for it):
the result is kept in the cache folder under the file's device, inode, size and time of change.
Of a split model it is the SHA-256 of its parts' digests.
"""

import contextlib
import hashlib
import json
import os
import time
from collections.abc import Sequence
from pathlib import Path

from llamay.errors import ModelFileError, StoreError
from llamay.store import digests
from llamay.store.parts import replace_file

CACHE_FILE = "digests.json"
MOST_ENTRIES = 1024
MOST_BYTES = 1 << 20
FRESH_SECONDS = 2.0  # a file that changed so recently may change again within the same tick of its clock


def fingerprint(paths: Sequence[str | os.PathLike[str]], blobs: Path, cache: Path) -> str:
    """`sha256:` and 64 digits for the file or parts of a model; `blobs` is the store's folder, `cache` the cache's.

    ModelFileError for a file that cannot be read.
    """
    try:
        found = [_of_file(Path(path), blobs, cache) for path in paths]
    except OSError as error:
        raise ModelFileError(f"the weights cannot be read: {error}") from error
    return _joined(found)


def known(paths: Sequence[str | os.PathLike[str]], blobs: Path, cache: Path) -> str | None:
    """The fingerprint where it costs nothing; None where a file would have to be read, or is not there."""
    try:
        found = [_at_hand(Path(path), blobs, cache) for path in paths]
    except OSError:
        return None
    whole = [digest for digest in found if digest is not None]
    return _joined(whole) if len(whole) == len(found) else None


def _joined(found: list[str]) -> str:
    return found[0] if len(found) == 1 else digests.of_bytes("\n".join(found).encode())


def _of_file(path: Path, blobs: Path, cache: Path) -> str:
    at_hand = _at_hand(path, blobs, cache)
    if at_hand is not None:
        return at_hand
    real = Path(os.path.realpath(path))
    status = os.stat(real)
    with open(real, "rb") as file:
        digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
        after = os.fstat(file.fileno())
    steady = (after.st_ino, after.st_size, after.st_mtime_ns) == (status.st_ino, status.st_size, status.st_mtime_ns)
    if steady and abs(time.time() - status.st_mtime) > FRESH_SECONDS:
        _remember(cache, {**_known(cache), _key(status): digest})
    return digest


def _at_hand(path: Path, blobs: Path, cache: Path) -> str | None:
    """The digest of a blob of the store, or one that was computed before; None where the file must be read."""
    real = Path(os.path.realpath(path))
    if real.parent == Path(os.path.realpath(blobs)):
        with contextlib.suppress(StoreError):  # a file of the folder with a name that is no digest
            return digests.parse(real.name)
    return _known(cache).get(_key(os.stat(real)))


def _key(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"


def _known(cache: Path) -> dict[str, str]:
    """Digests by key; none where the file is missing or not as we write it."""
    try:
        with open(cache / CACHE_FILE, "rb") as file:
            found = json.loads(file.read(MOST_BYTES))
        return {str(key): digests.parse(value) for key, value in found.items()}
    except (OSError, ValueError, AttributeError, RecursionError, StoreError):
        return {}


def _remember(cache: Path, known: dict[str, str]) -> None:
    newest = dict(list(known.items())[-MOST_ENTRIES:])
    with contextlib.suppress(OSError, StoreError):  # a cache that takes nothing costs time, not the answer
        cache.mkdir(parents=True, exist_ok=True)
        replace_file(cache / CACHE_FILE, json.dumps(newest, indent=0).encode(), durable=False)
