"""A file on disk read by position, so that one cut short while it is open gives an error and no signal."""

import os
import stat
import threading
import weakref

import numpy as np
from numpy.typing import NDArray

from llamay.errors import MalformedFile, ModelFileError

AT_ONCE = 1 << 30  # bytes asked of the system in one call; some systems give no more than 2 GiB


class Source:
    """One open file.  Any number of threads may read from it; `size` is what it was when it was opened."""

    def __init__(self, path: str) -> None:
        """ModelFileError where there is no regular file that can be read."""
        self.path = path
        self._turn = threading.Lock()  # for systems that cannot read by position
        self._file = _opened(path)
        self._open = weakref.finalize(self, os.close, self._file)
        self.size = os.fstat(self._file).st_size

    def read(self, start: int, count: int, what: str) -> bytes:
        """A copy of `count` bytes; `what` is said of them in errors."""
        return self.array(start, count, what).tobytes()

    def array(self, start: int, count: int, what: str) -> NDArray[np.uint8]:
        """A copy of `count` bytes as an array of one's own."""
        out = np.empty(count, np.uint8)
        self.fill(start, out, what)
        return out

    def fill(self, start: int, out: NDArray[np.uint8], what: str) -> None:
        """Reads as many bytes as `out`, which is contiguous, has room for.

        ModelFileError when the file was closed or cannot be read, MalformedFile when it ends before.
        """
        view = out.data.cast("B")
        done = 0
        while done < len(view):
            got = self._into(view[done : done + AT_ONCE], start + done, what)
            if not got:
                raise self._shorter(start, len(view), what)
            done += got

    def close(self) -> None:
        """Gives the file back.  Safe to call twice."""
        self._open()

    def _into(self, view: memoryview, at: int, what: str) -> int:
        if not self._open.alive:
            raise ModelFileError(f"{self.path}: the file was closed; {what} cannot be read any more")
        try:
            if hasattr(os, "preadv"):
                return os.preadv(self._file, [view], at)
            with self._turn:
                os.lseek(self._file, at, os.SEEK_SET)
                found = os.read(self._file, len(view))
                view[: len(found)] = found
                return len(found)
        except OSError as error:
            raise ModelFileError(f"{self.path}: {what} cannot be read: {error}") from error

    def _shorter(self, start: int, count: int, what: str) -> MalformedFile:
        now = os.fstat(self._file).st_size
        return MalformedFile(
            f"{self.path}: the file became shorter while it was in use: {what} takes bytes {start:,} to "
            f"{start + count:,}, of {self.size:,} at first only {now:,} are left; get the model again, and put a new "
            f"file in the place of one in use by renaming it"
        )


def _opened(path: str) -> int:
    """Open without waiting for a writer should the path be a pipe, and refuse all but regular files."""
    try:
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    except (OSError, ValueError) as error:
        raise ModelFileError(f"cannot open the model file {path}: {getattr(error, 'strerror', None) or error}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ModelFileError(f"{path} is not a regular file; a GGUF file expected")
    return descriptor
