"""Claims: the blobs a running pull counts on, told to other processes so that none removes them."""

import contextlib
import os
import secrets
from pathlib import Path

from llamay.store import digests
from llamay.store.locks import Lock


class Claim:
    """A list of digests in a file that stays locked while its process lives.

    `begin`, `add` and `clear` are called inside the store's critical section.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = Lock(folder / f"{os.getpid()}-{secrets.token_hex(4)}.claim")
        self._digests: set[str] = set()

    def begin(self) -> None:
        """Makes the claim visible, still empty."""
        self._lock.acquire()

    def add(self, digest: str) -> None:
        """Claims a blob, whether it is installed yet or not."""
        self._digests.add(digests.parse(digest))
        self._lock.write("\n".join(sorted(self._digests)))

    def clear(self) -> None:
        """Claims nothing any more."""
        self._digests.clear()
        self._lock.write("")

    def end(self) -> None:
        """Withdraws the claim."""
        self._lock.release(remove=True)


def claimed(folder: Path) -> set[str]:
    """The digests of all live claims; files of dead processes are removed.  Call it in the critical section."""
    found: set[str] = set()
    if not folder.is_dir():
        return found
    for path in folder.glob("*.claim"):
        lock = Lock(path)
        if lock.try_acquire():  # nobody holds it: its process has ended
            lock.release(remove=True)
            continue
        with contextlib.suppress(FileNotFoundError):  # withdrawn this moment
            found |= digests.mentioned(path.read_bytes())
    return found
