"""Unfinished blobs: bytes that survive any end of the process, and what is needed to go on from them."""

import contextlib
import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from llamay.errors import StoreError
from llamay.store.locks import Lock

SYNC_EVERY = 64 << 20  # bytes between two fsyncs while receiving
FICLONE = 0x40049409  # Linux: share another file's blocks


class Part:
    """The file `KEY.part`, held under a lock, with `KEY.json` telling how far it is safely on disk.

    A killed process loses nothing: the kernel has the bytes.  After a loss of power the
    tail may be zeros, so the bytes beyond the last fsync are dropped unless `addressed`
    (a digest is known and will judge the finished bytes).
    """

    def __init__(self, folder: Path, key: str, addressed: bool) -> None:
        self.path = folder / f"{key}.part"
        self.length = 0  # bytes received so far
        self.validator = ""  # ETag or date of the resource the bytes are of; "" when unknown
        self._addressed = addressed
        self._state = folder / f"{key}.json"
        self._lock = Lock(folder / f"{key}.lock")
        self._file = -1
        self._synced = 0

    def open(self, waiting: Callable[[], None] = lambda: None) -> Self:
        """Takes the part over, waiting for whoever holds it; `waiting` is called once if so."""
        self._lock.acquire(waiting)
        self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644)
        self.length = os.fstat(self._file).st_size
        validator, synced, boot = self._load_state()
        if not self._addressed and (not boot or boot != _boot()) and self.length > synced:
            self.length = synced
            os.ftruncate(self._file, synced)
        self.validator = validator if self.length else ""
        self._synced = min(synced, self.length)
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def restart(self, validator: str = "") -> None:
        """Drops what was received; what follows is of the resource the validator names."""
        os.ftruncate(self._file, 0)
        self.length = self._synced = 0
        self.validator = validator
        self._save_state()

    def write(self, data: bytes) -> None:
        """Appends bytes; raises StoreError when the disk takes no more."""
        view = memoryview(data)
        os.lseek(self._file, self.length, os.SEEK_SET)
        with explained(self.path):
            while view:
                count = os.write(self._file, view)
                self.length += count
                view = view[count:]
        if self.length - self._synced >= SYNC_EVERY:
            self.sync()

    def sync(self) -> None:
        """Brings the bytes to the disk and notes how many they are."""
        if self._file >= 0:
            with explained(self.path):
                os.fsync(self._file)
                self._synced = self.length
                self._save_state()

    def adopt(self, path: Path) -> None:
        """Makes the part another name of an existing file; raises OSError where the system cannot."""
        os.close(self._file)
        self._file = -1
        self.path.unlink()
        try:
            os.link(path, self.path)
        finally:
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644)
            self.length = os.fstat(self._file).st_size

    def clone(self, source: int) -> bool:
        """Shares the blocks of an open file, where system and file system can; tells whether it did."""
        if not sys.platform.startswith("linux"):
            return False
        import fcntl

        try:
            fcntl.ioctl(self._file, FICLONE, source)
        except OSError:
            return False
        self.length = os.fstat(self._file).st_size
        return True

    def discard(self) -> None:
        """Drops the bytes for good; the part may be written anew."""
        self.restart()

    def finish(self) -> Path:
        """Syncs and closes the file (Windows renames no open one), still holding the lock; returns its path."""
        self.sync()
        os.close(self._file)
        self._file = -1
        return self.path

    def close(self) -> None:
        """Lets go: bytes stay for the next pull, unless there are none or a rename took them."""
        try:
            self.sync()
        finally:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1
                if not self.length:
                    self.path.unlink(missing_ok=True)
            gone = not self.path.exists()
            if gone:
                self._state.unlink(missing_ok=True)
            self._lock.release(remove=gone)

    def _load_state(self) -> tuple[str, int, str]:
        try:
            state = json.loads(self._state.read_bytes())
            return str(state["validator"]), max(0, int(state["synced"])), str(state["boot"])
        except FileNotFoundError:
            return "", 0, ""
        except (ValueError, KeyError, TypeError, RecursionError):  # half written before a loss of power
            return "", 0, ""

    def _save_state(self) -> None:
        state = {"validator": self.validator, "synced": self._synced, "boot": _boot()}
        replace_file(self._state, json.dumps(state).encode(), durable=False)  # an older state is a safe one


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns the system's refusal to write into a StoreError that says what would help."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, getattr(errno, "EDQUOT", errno.ENOSPC))
        advice = "the disk is full; free some space and pull again, what was received is kept" if full else str(error)
        raise StoreError(f"{path.parent} takes no more: {advice}") from error


def replace_file(path: Path, data: bytes, durable: bool = True) -> None:
    """Writes a small file so that readers and crashes see the old bytes or the new, nothing between.

    If not `durable`, a loss of power may bring the old bytes back, or none.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    with explained(path):
        with open(beside, "wb") as file:
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(beside, path)
        if durable:
            sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes renames in a folder survive a loss of power, where the system can."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _boot() -> str:
    """What tells this start of the machine from others; "" where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""
