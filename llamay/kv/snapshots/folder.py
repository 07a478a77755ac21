"""The folder of saved contexts: a manifest a context, a file a page, and the short critical sections between them.

    saved/DIGEST-OF-THE-NAME   manifests, replaced as a whole
    pages/SHA-256              pages, never changed, shared by the manifests that name them
    aside/KEY/                 what somebody is saving right now, its own until it is moved in place

A page is whole and on the disk before it has its place, and all pages of a manifest before that has.
"""

import contextlib
import difflib
import os
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from llamay.errors import ContextFileError, MalformedContext, NoSuchContext, StoreError, UsageError
from llamay.kv.snapshots import manifest, page
from llamay.kv.snapshots.labels import check_name, file_name
from llamay.kv.snapshots.manifest import Manifest
from llamay.store.locks import Lock

VARIABLE = "LLAMAY_CONTEXTS"

_DIGEST = re.compile(rb"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Saved:
    """A saved context as its manifest tells it, and the bytes of that on disk."""

    manifest: Manifest
    description_bytes: int

    @property
    def name(self) -> str:
        return self.manifest.name


@dataclass(frozen=True, slots=True)
class Survey:
    """What a walk over the folder found: contexts, newest first, and files that cannot be read with the reason."""

    contexts: list[Saved]
    broken: list[tuple[Path, str]]


class Folder:
    """The folder at `root`.  Making one touches nothing; it appears with the first save.  Safe between processes."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(Path(root).expanduser()))
        self.saved = self.root / "saved"
        self.pages = self.root / "pages"
        self.aside = self.root / "aside"
        self._threads = threading.Lock()  # within the process waiting costs less than polling for a file's lock

    # reading

    def survey(self) -> Survey:
        """Every saved context, and every manifest that cannot be read."""
        contexts: list[Saved] = []
        broken: list[tuple[Path, str]] = []
        try:
            paths = sorted(self.saved.glob("[0-9a-f]*"))
        except PermissionError as error:
            raise ContextFileError(f"{self.saved} cannot be read: {error.strerror}; {VARIABLE} names another folder") from error
        for path in paths:
            try:
                contexts.append(self._read(path))
            except FileNotFoundError:
                continue  # removed since the walk
            except (ContextFileError, OSError) as error:
                broken.append((path, str(error)))
        return Survey(sorted(contexts, key=lambda saved: (-saved.manifest.created, saved.name)), broken)

    def find(self, name: str) -> Saved:
        """The context saved as `name`; NoSuchContext names those near it, MalformedContext what is wrong with it."""
        path = self.saved / file_name(check_name(name))
        try:
            return self._read(path)
        except FileNotFoundError:
            raise NoSuchContext(f"no context is saved as {name!a}{self._near(name)}") from None
        except OSError as error:
            raise ContextFileError(f"{path} cannot be read: {error.strerror}") from error

    def page(self, digest: str) -> Path:
        """Where the page of a checked digest is."""
        return self.pages / digest

    def stored_bytes(self, digests: list[str]) -> int:
        """Bytes on disk of these pages; those that are missing count nothing."""
        total = 0
        for digest in digests:
            with contextlib.suppress(FileNotFoundError):
                total += self.page(digest).stat().st_size
        return total

    # writing

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """The critical section of every change to manifests and to which pages there are."""
        make(self.root)
        with self._threads, Lock(self.root / "store.lock", VARIABLE).held():
            yield

    def commit(self, document: Manifest, aside: Path, *, replace: bool) -> Saved:
        """Moves the pages that `aside` holds (a synced file each) in place, and the manifest last of all.

        UsageError where the name is taken and `replace` is not set.  Pages that only the replaced one used are removed.
        """
        data = manifest.encode(document)
        path = self.saved / file_name(document.name)
        make(self.saved)
        make(self.pages)
        with explained(path):
            write_synced(aside / "manifest", data)
            with self.locked():
                taken = path.exists()
                if taken and not replace:
                    raise UsageError(f"a context is saved as {document.name!a} already; choose another name")
                for digest in document.digests():
                    _place(aside / digest, self.page(digest))
                sync_folder(self.pages)
                os.replace(aside / "manifest", path)
                sync_folder(self.saved)
                if taken:
                    self._sweep_pages()
        return Saved(document, len(data))

    def remove(self, name: str) -> int:
        """Removes a saved context, readable or not, and the pages nobody uses; returns the bytes freed."""
        path = self.saved / file_name(check_name(name))
        if not path.exists():
            raise NoSuchContext(f"no context is saved as {name!a}{self._near(name)}; nothing was removed")
        return self.remove_file(path)

    def remove_file(self, path: Path) -> int:
        """As `remove`, of a manifest that a survey found broken."""
        with explained(path), self.locked():
            return _unlink(path) + self._sweep_pages()

    def sweep(self) -> int:
        """Removes what nobody uses: pages, and what killed processes left aside; returns the bytes freed."""
        if not self.root.exists():
            return 0
        with explained(self.pages), self.locked():
            return self._sweep_pages() + self.sweep_aside()

    def sweep_aside(self) -> int:
        """Removes what killed processes left aside; returns the bytes freed."""
        freed = 0
        for path in self.aside.glob("*.lock"):
            lock = Lock(path, VARIABLE)
            if lock.try_acquire():  # nobody holds it: its process has ended
                left = path.with_suffix("")
                freed += sum(file.lstat().st_size for file in left.glob("*"))
                shutil.rmtree(left, ignore_errors=True)
                lock.release(remove=True)
        return freed

    def _sweep_pages(self) -> int:
        """Removes pages that no manifest mentions, broken ones included.  Call it locked."""
        used: set[str] = set()
        for path in self.saved.glob("*"):
            used.update(found.decode("ascii") for found in _DIGEST.findall(path.read_bytes()))
        return sum(_unlink(path) for path in self.pages.glob("*") if path.name not in used)

    def _read(self, path: Path) -> Saved:
        with page.open_plain(path) as file:
            size = os.fstat(file.fileno()).st_size
            if size > manifest.HEAD.size + manifest.MOST_BYTES:
                raise MalformedContext(f"{path} is {size} bytes; a description has at most {manifest.MOST_BYTES}")
            data = file.read(size + 1)
        document = manifest.decode(data, str(path))
        if file_name(document.name) != path.name:
            raise MalformedContext(f"{path} describes {document.name!a}, whose file has another name")
        return Saved(document, len(data))

    def _near(self, name: str) -> str:
        names = [saved.name for saved in self.survey().contexts]
        near = difflib.get_close_matches(name, names, n=3, cutoff=0.5) or names[:3]
        return f"; there are {', '.join(map(ascii, near))}" if near else "; none is"


def make(folder: Path) -> None:
    """Creates a folder; ContextFileError says which variable names another."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ContextFileError(f"{folder} cannot be made: {error.strerror}; {VARIABLE} names another folder") from error


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turns the system's refusal to write into a ContextFileError; what was saved before stays."""
    try:
        yield
    except OSError as error:
        raise ContextFileError(f"{path.parent} takes no more: {error}; what was saved before is kept") from error
    except StoreError as error:
        raise ContextFileError(str(error)) from error


def write_synced(path: Path, *parts: bytes | memoryview) -> None:
    """A new file with these bytes, on the disk when this returns."""
    with open(path, "xb", buffering=0) as file:
        for part in parts:
            view = memoryview(part).cast("B")
            while view:
                view = view[file.write(view) :]
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Makes renames in a folder survive a loss of power, where the system can."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _place(ours: Path, place: Path) -> None:
    """Gives a page its place; where ours is only another name of the file there, that goes."""
    try:
        os.replace(ours, place)
    except PermissionError:  # Windows, while somebody reads the one that is there
        if not place.exists():
            raise
    ours.unlink(missing_ok=True)


def _unlink(path: Path) -> int:
    try:
        size = path.lstat().st_size
        path.unlink()
    except FileNotFoundError:
        return 0
    return size
