"""Sweeping: what neither a model nor a running pull needs is removed."""

import contextlib
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from llamay.store.locks import Lock
from llamay.store.parts import explained

STALE_SECONDS = 3600  # an older temporary file belongs to nobody


def sweep(root: Path, used: set[str], views: set[str]) -> int:
    """Removes unused blobs, abandoned parts, stale temporary files and views; returns the bytes freed.

    `used` are digests, `views` the names of view folders to keep.  Call it in the critical section.
    """
    freed = 0
    for path in (root / "blobs").glob("sha256-*"):
        if path.name.replace("-", ":", 1) not in used:
            freed += _remove(path)
    partials = root / "partials"
    for key in sorted({path.stem for path in partials.glob("[!.]*")}):
        lock = Lock(partials / f"{key}.lock")
        if lock.try_acquire():
            freed += _remove(partials / f"{key}.part")
            _remove(partials / f"{key}.json")
            lock.release(remove=True)
    for path in (root / "views").glob("*"):
        if path.name not in views:
            shutil.rmtree(path, ignore_errors=True)
    for path in _temporary(root):
        freed += _remove(path)
    return freed


def _temporary(root: Path) -> Iterator[Path]:
    """Files a killed process left beside the one it was about to replace."""
    before = time.time() - STALE_SECONDS
    for pattern in ("blobs/.*", "partials/.*", "manifests/*/*/*/.*"):
        for path in root.glob(pattern):
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime < before:
                    yield path


def _remove(path: Path) -> int:
    with explained(path), contextlib.suppress(FileNotFoundError):
        size = path.lstat().st_size
        path.unlink()
        return size
    return 0
