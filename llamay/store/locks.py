"""Locks between processes that the system lets go when their holder ends, however it ends."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from llamay.errors import StoreError

POLL = 0.1  # seconds between two tries for a lock that is held


class Lock:
    """An exclusive lock on a file of its own; a killed holder's lock is free at once.

    Text may be kept in the file (`write`, `read`): what a holder says about itself.
    """

    def __init__(self, path: Path, variable: str = "LLAMAY_MODELS") -> None:
        """`variable` names the setting that moves the folder, for the error where its file system has no locks."""
        self.path = path
        self._variable = variable
        self._file: int | None = None

    def try_acquire(self) -> bool:
        """Takes the lock if nobody holds it."""
        while True:
            try:
                file = os.open(self.path, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644)
            except PermissionError as error:
                raise StoreError(f"{self.path} cannot be written: {error.strerror}; {self._variable} names another folder") from error
            try:
                taken = _try_lock(file)
            except OSError as error:
                os.close(file)
                raise StoreError(
                    f"{self.path} cannot be locked ({error.strerror}); its folder must lie on a file system "
                    f"with locks (set {self._variable} to a local one)"
                ) from error
            if not taken:
                os.close(file)
                return False
            if _is_still(file, self.path):
                self._file = file
                return True
            os.close(file)  # its last holder removed the file between our open and our lock

    def acquire(self, waiting: Callable[[], None] = lambda: None) -> None:
        """Takes the lock, waiting for it; `waiting` is called once when the wait begins."""
        if self.try_acquire():
            return
        waiting()
        while not self.try_acquire():
            time.sleep(POLL)

    def release(self, remove: bool = False) -> None:
        """Lets go; with `remove` the file goes too."""
        if self._file is None:
            return
        file, self._file = self._file, None
        if remove and sys.platform != "win32":
            self.path.unlink(missing_ok=True)
        os.close(file)
        if remove and sys.platform == "win32":  # an open file cannot be removed there
            with contextlib.suppress(OSError):  # somebody else has it open: theirs to remove
                self.path.unlink()

    def write(self, text: str) -> None:
        """Replaces the text in the held file."""
        if self._file is None:
            raise StoreError(f"{self.path} is written without being held")
        os.lseek(self._file, 0, os.SEEK_SET)
        os.ftruncate(self._file, 0)
        os.write(self._file, text.encode())

    @contextlib.contextmanager
    def held(self, waiting: Callable[[], None] = lambda: None, remove: bool = False) -> Iterator[None]:
        """Holds the lock for the length of a block."""
        self.acquire(waiting)
        try:
            yield
        finally:
            self.release(remove)


def _is_still(file: int, path: Path) -> bool:
    """Whether the opened file is the one the path names now."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


if sys.platform == "win32":
    import msvcrt

    _LOCKED_BYTE = 1 << 30  # far beyond the text, which then stays readable

    def _try_lock(file: int) -> bool:
        os.lseek(file, _LOCKED_BYTE, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        except PermissionError:
            return False
        return True

else:
    import fcntl

    def _try_lock(file: int) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
