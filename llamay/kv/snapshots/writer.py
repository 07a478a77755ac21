"""A Writer: takes pages as they come, checksums and compresses them in threads, and makes them a saved context."""

import os
import secrets
import shutil
import threading
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from llamay.errors import UsageError
from llamay.kv.snapshots import page
from llamay.kv.snapshots.folder import VARIABLE, Folder, Saved, explained, make
from llamay.kv.snapshots.manifest import Manifest, Shape
from llamay.kv.snapshots.page import Head
from llamay.store.locks import Lock

Bytes = NDArray[np.uint8]

MOST_WAITING = 64 << 20  # bytes of pages that wait for a thread
AT_ONCE = 256 << 10  # bytes of pages a thread takes, or one page
TRY_EVERY = 16  # of so many pages one is tried with zstd, and says whether the others are
THREADS = min(4, os.cpu_count() or 1)
SYNCERS = 16  # threads that wait for the disk: the system brings what many ask for there in one go
MOST_OPEN = 64  # files that wait for one of those


class Writer:
    """Pages on their way into a folder.  Nobody sees anything of them before `commit` returns.

    Use it in a with statement: leaving that removes what was not committed.  Not for two
    threads at once, but any thread may take over.
    """

    def __init__(self, folder: Folder, shapes: Sequence[Shape]) -> None:
        self._folder = folder
        self._shapes = tuple(shapes)
        self._counts = [0] * len(self._shapes)  # pages added, by group
        self._pays = [True] * len(self._shapes)  # whether zstd paid for the last page that was tried
        self._digests: list[list[Future[list[str]]]] = [[] for _ in self._shapes]
        self._waiting: deque[tuple[Future[list[str]], int]] = deque()
        self._waiting_bytes = 0
        self._have: set[str] = set()  # digests that are aside, or about to be
        self._guard = threading.Lock()
        self._open = threading.BoundedSemaphore(MOST_OPEN)
        self._synced: list[Future[None]] = []
        make(folder.aside)
        folder.sweep_aside()
        self._path = folder.aside / f"{os.getpid()}-{secrets.token_hex(8)}"
        self._lock = Lock(self._path.with_suffix(".lock"), VARIABLE)
        with explained(self._path):
            self._lock.acquire()
            self._path.mkdir()
        self._threads = ThreadPoolExecutor(THREADS, "snapshot")
        self._syncers = ThreadPoolExecutor(SYNCERS, "snapshot-sync")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Removes what was not committed.  Safe to call twice."""
        self._threads.shutdown(cancel_futures=True)
        self._syncers.shutdown()
        shutil.rmtree(self._path, ignore_errors=True)
        self._lock.release(remove=True)

    def add(self, group: int, pages: Bytes) -> None:
        """The next pages of a group, [pages, page_bytes]; the caller does not write to the array any more.

        Waits while more than MOST_WAITING bytes have not been dealt with.  ContextFileError of any earlier page.
        """
        size = self._shapes[group].page_bytes
        if pages.ndim != 2 or pages.shape[1] != size or pages.dtype != np.uint8 or not pages.flags.c_contiguous:
            raise UsageError(f"pages of group {group} are bytes [pages, {size}], got {pages.dtype} {pages.shape}")
        step = max(1, AT_ONCE // size)
        for start in range(0, len(pages), step):
            some = pages[start : start + step]
            future = self._threads.submit(self._store, group, self._counts[group] + start, some)
            self._digests[group].append(future)
            self._waiting.append((future, some.nbytes))
            self._waiting_bytes += some.nbytes
        self._counts[group] += len(pages)
        while self._waiting and (self._waiting_bytes > MOST_WAITING or self._waiting[0][0].done()):
            oldest, size = self._waiting.popleft()
            oldest.result()
            self._waiting_bytes -= size

    def put(self, head: Head, body: Any) -> None:
        """A page that is packed already, and checked."""
        self._keep(head.digest, head.size, lambda: (head, body))

    def digests(self) -> tuple[tuple[str, ...], ...]:
        """Of every page that was added, by group, in order.  Waits for them; ContextFileError where one failed."""
        return tuple(tuple(digest for some in group for digest in some.result()) for group in self._digests)

    def commit(self, document: Manifest, *, replace: bool) -> Saved:
        """Saves the context whose pages were added or put; see `Folder.commit`."""
        self.digests()
        for synced in self._synced:
            synced.result()
        return self._folder.commit(document, self._path, replace=replace)

    def _store(self, group: int, first: int, pages: Bytes) -> list[str]:
        """In a thread: the digests of pages that follow each other, from number `first` of the group."""
        digests = []
        for index, row in enumerate(pages, first):
            digest = page.digest_of(row)
            digests.append(digest)
            tried = index % TRY_EVERY == 0

            def pack(row: Bytes = row, digest: str = digest, tried: bool = tried) -> tuple[Head, Any]:
                head, body = page.packed(row, digest, tried or self._pays[group])
                if tried:
                    self._pays[group] = head.method == page.ZSTD
                return head, body

            self._keep(digest, row.nbytes, pack)
        return digests

    def _keep(self, digest: str, size: int, pack: Any) -> None:
        """Sees to it that the page is aside: as another name of the file in place, or as a new one."""
        with self._guard:
            if digest in self._have:
                return
            self._have.add(digest)
        with explained(self._path):
            if not self._linked(digest, size):
                head, body = pack()
                self._write(digest, head.encode(), body)

    def _linked(self, digest: str, size: int) -> bool:
        """Whether the page is in place, and now also aside, so that no removal takes it from this context."""
        place = self._folder.page(digest)
        try:
            os.link(place, self._path / digest)
        except OSError:  # there is none, or the file system has no links: it is written anew
            return False
        if page.seems_whole(self._path / digest, digest, size):
            return True
        (self._path / digest).unlink()
        return False

    def _write(self, digest: str, head: bytes, body: Any) -> None:
        self._open.acquire()
        try:
            file = open(self._path / digest, "xb", buffering=0)
            for part in (head, body):
                view = memoryview(part).cast("B")
                while view:
                    view = view[file.write(view) :]
        except BaseException:
            self._open.release()
            raise
        self._synced.append(self._syncers.submit(self._sync, file))

    def _sync(self, file: Any) -> None:
        try:
            with explained(self._path), file:
                os.fsync(file.fileno())
        finally:
            self._open.release()
