"""The store: installed models, their blobs, and the short critical sections that keep both whole."""

import contextlib
import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from llamay.errors import DigestMismatch, NotInstalled, StoreError, UsageError
from llamay.store import digests, manifest, names
from llamay.store.claims import Claim, claimed
from llamay.store.locks import Lock
from llamay.store.manifest import Layer, Manifest
from llamay.store.names import ModelName
from llamay.store.parts import explained, replace_file, sync_folder
from llamay.store.sweep import sweep

SMALL_BYTES = 4 << 20  # the most a template, parameters or a licence may hold


@dataclass(frozen=True, slots=True)
class Installed:
    """A model of the store: its name, manifest, id (64 hex), bytes of all blobs, and when it came (Unix seconds)."""

    name: ModelName
    manifest: Manifest
    id: str
    size: int
    modified: float

    @property
    def source(self) -> str:
        """What `llamay pull` takes to get it again."""
        return self.manifest.annotations.get(manifest.SOURCE) or self.name.typed()


@dataclass(frozen=True, slots=True)
class Survey:
    """What a walk over the manifests found: models, newest first, and unreadable ones with the reason."""

    models: list[Installed]
    broken: list[tuple[ModelName, str]]


class Store:
    """The folder of models at `root`.  Making one touches nothing; folders appear with the first write."""

    def __init__(self, root: Path) -> None:
        self.root = Path(os.path.abspath(Path(root).expanduser()))
        self.blobs = self.root / "blobs"
        self.manifests = self.root / "manifests"
        self.partials = self.root / "partials"
        self.claims = self.root / "claims"
        self.views = self.root / "views"

    # Reading

    def survey(self) -> Survey:
        """Every installed model, and every manifest that cannot be read."""
        models: list[Installed] = []
        broken: list[tuple[ModelName, str]] = []
        for name in self._names():
            try:
                models.append(self._read(name))
            except NotInstalled:
                continue  # removed since the walk
            except StoreError as error:
                broken.append((name, str(error)))
        return Survey(sorted(models, key=lambda model: (-model.modified, model.name)), broken)

    def installed(self, name: ModelName) -> Installed | None:
        """The model of exactly this name (case apart), or None; raises StoreError for a broken manifest."""
        with contextlib.suppress(NotInstalled):
            return self._read(name)
        for other in self._names():
            if other.folded() == name.folded():
                return self._read(other)
        return None

    def has(self, layer: Layer) -> bool:
        """Whether the blob is here with its full size."""
        try:
            return digests.blob_path(self.blobs, layer.digest).stat().st_size == layer.size
        except FileNotFoundError:
            return False

    def blob(self, layer: Layer) -> Path:
        """The file of a layer; raises StoreError when it is missing or cut."""
        path = digests.blob_path(self.blobs, layer.digest)
        if not self.has(layer):
            found = f"has {path.stat().st_size} bytes" if path.exists() else "is missing"
            raise StoreError(f"{path} {found}, expected {layer.size} bytes; pull the model again to restore it")
        return path

    def text(self, model: Installed, kind: str) -> str | None:
        """The text of a small layer (`template`, `params`, `system`, `license`), or None when there is none."""
        for layer in model.manifest.layers:
            if layer.kind == kind:
                if layer.size > SMALL_BYTES:
                    raise StoreError(f"{model.name}: its {kind} is {layer.size} bytes; at most {SMALL_BYTES} are read")
                return self.blob(layer).read_bytes().decode("utf-8", "replace")
        return None

    def file(self, model: Installed) -> Path:
        """The GGUF file of a model; for a split one the first part, its siblings beside it under their proper names."""
        parts = model.manifest.models()
        if not parts:
            raise StoreError(f"{model.name} holds no GGUF file, so nothing can be run; pull another model")
        paths = [self.blob(part) for part in parts]
        return paths[0] if len(paths) == 1 else self._view(model, paths)

    def free(self) -> int:
        """Bytes free where blobs go."""
        folder = self.root
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent
        return shutil.disk_usage(folder).free

    # Writing

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """The critical section of every change to blobs, claims or manifests; never held over a transfer."""
        self.make(self.root)
        with Lock(self.root / "store.lock").held():
            yield

    @contextlib.contextmanager
    def claim(self) -> Iterator[Claim]:
        """A promise of blobs: what it holds is not removed by anybody while the block runs."""
        self.make(self.claims)
        claim = Claim(self.claims)
        with self.locked():
            claim.begin()
        try:
            yield claim
        finally:
            claim.end()

    def protect(self, claim: Claim, digest: str) -> None:
        """Adds a digest to a claim; from here on an installed blob of it stays."""
        with self.locked():
            claim.add(digest)

    def install_blob(self, path: Path, digest: str) -> Layer:
        """Moves a finished, closed file of this file system to the blob of the digest of its own bytes.

        The bytes were hashed by the caller; `digest` is what came out.  Returns the layer
        without a media type.
        """
        size = path.stat().st_size
        target = digests.blob_path(self.blobs, digest)
        self.make(self.blobs)
        with self.locked(), explained(target):
            if target.exists() and target.stat().st_size == size:
                path.unlink()
            else:
                os.replace(path, target)
            sync_folder(self.blobs)
        return Layer("", digest, size)

    def put_bytes(self, data: bytes, digest: str | None = None) -> Layer:
        """Installs a small blob from memory; raises DigestMismatch when it is not what `digest` announces."""
        found = digests.of_bytes(data)
        if digest is not None and found != digest:
            raise DigestMismatch(f"{len(data)} bytes announced as {digest} hash to {found}; nothing was installed")
        target = digests.blob_path(self.blobs, found)
        self.make(self.blobs)
        with self.locked():
            if not self.has(Layer("", found, len(data))):
                replace_file(target, data)
        return Layer("", found, len(data))

    def put_manifest(self, name: ModelName, data: bytes, claim: Claim | None = None) -> Installed:
        """Makes a model installed, last of all writes; blobs only its predecessor used are removed.

        The claim of the pull that writes it has served from then on.
        """
        document = manifest.decode(data, f"the manifest of {name}")
        path = names.check(name).path(self.manifests)
        with self.locked():
            for layer in document.blobs():
                self.blob(layer)
            existing = self.installed_anyhow(name)
            before = existing.path(self.manifests) if existing else path
            old = before.read_bytes() if before.exists() else b""
            if before != path:
                before.unlink(missing_ok=True)
            self.make(path.parent)
            replace_file(path, data)
            if claim is not None:
                claim.clear()
            self._drop(old)
        return self._read(name)

    def copy(self, source: Installed, target: ModelName) -> Installed:
        """Gives a model a second name; no blob is copied."""
        names.check(target)
        path = source.name.path(self.manifests)
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            raise NotInstalled(f"{source.name} was removed meanwhile; nothing was copied") from None
        return self.put_manifest(target, manifest.with_source(data, source.source))

    def remove(self, name: ModelName) -> int:
        """Removes a model and the blobs only it used; returns the bytes freed.

        Raises NotInstalled when there is no such model.  A broken manifest can be removed.
        """
        with self.locked():
            path = name.path(self.manifests)
            try:
                data = path.read_bytes()
            except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
                raise NotInstalled(f"{name} is not installed; nothing was removed") from None
            path.unlink()
            for folder in path.parents:
                if folder == self.manifests or any(folder.iterdir()):
                    break
                folder.rmdir()
            return self._drop(data)

    def sweep(self) -> int:
        """Removes what no model uses: blobs, abandoned parts, stale temporary files; returns the bytes freed.

        Parts somebody is receiving and blobs somebody claims stay.
        """
        with self.locked():
            views = {model.id[:16] for model in self.survey().models}
            return sweep(self.root, self._referenced(), views)

    def make(self, folder: Path) -> None:
        """Creates a folder of the store; raises StoreError saying which variable moves the store."""
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"{folder} cannot be made: {error.strerror}; LLAMAY_MODELS names another folder"
            ) from error

    def installed_anyhow(self, name: ModelName) -> ModelName | None:
        """The name under which a manifest, readable or not, is kept for this name."""
        if name.path(self.manifests).is_file():
            return name
        return next((other for other in self._names() if other.folded() == name.folded()), None)

    # Inside

    def _names(self) -> list[ModelName]:
        found = []
        try:
            paths = sorted(self.manifests.glob("*/*/*/*"))
        except PermissionError as error:
            raise StoreError(f"{self.manifests} cannot be read: {error.strerror}; LLAMAY_MODELS names another folder") from error
        for path in paths:
            host, namespace, name, tag = path.relative_to(self.manifests).parts
            with contextlib.suppress(UsageError):  # not a file of ours
                found.append(names.check(ModelName(host.replace("+", ":"), namespace, name, tag)))
        return found

    def _read(self, name: ModelName) -> Installed:
        path = name.path(self.manifests)
        try:
            with open(path, "rb") as file:
                data = file.read(manifest.LIMIT_BYTES + 1)
                modified = os.fstat(file.fileno()).st_mtime
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise NotInstalled(f"{name} is not installed") from None
        except OSError as error:
            raise StoreError(f"{path} cannot be read: {error.strerror}") from error
        document = manifest.decode(data, str(path))
        return Installed(name, document, digests.of_bytes(data).removeprefix("sha256:"), document.size(), modified)

    def _referenced(self) -> set[str]:
        """Digests that a manifest, broken ones included, or a live claim mentions; call it locked."""
        used = claimed(self.claims)
        for name in self._names():
            with contextlib.suppress(FileNotFoundError):
                used |= digests.mentioned(name.path(self.manifests).read_bytes())
        return used

    def _drop(self, data: bytes) -> int:
        """Removes the blobs and the view of a manifest that is gone; call it locked."""
        freed = 0
        candidates = digests.mentioned(data) - self._referenced() if data else set()
        if candidates:
            shutil.rmtree(self.views / digests.of_bytes(data)[7:23], ignore_errors=True)
        for digest in sorted(candidates):
            path = digests.blob_path(self.blobs, digest)
            with explained(path), contextlib.suppress(FileNotFoundError):
                size = path.stat().st_size
                path.unlink()
                freed += size
        return freed

    def _view(self, model: Installed, paths: list[Path]) -> Path:
        """Links the parts of a split file under names that tell them as parts."""
        folder = self.views / model.id[:16]
        wanted = [folder / f"model-{i:05d}-of-{len(paths):05d}.gguf" for i in range(1, len(paths) + 1)]
        pairs = list(zip(paths, wanted, strict=True))
        if all(_is_same(blob, link) for blob, link in pairs):
            return wanted[0]  # so that a store that is only read can be read-only
        with self.locked(), explained(wanted[0]):
            self.make(folder)
            for blob, link in pairs:
                if _is_same(blob, link):
                    continue
                link.unlink(missing_ok=True)
                try:
                    os.link(blob, link)
                except OSError:
                    link.symlink_to(os.path.relpath(blob, folder))
        return wanted[0]


def _is_same(path: Path, other: Path) -> bool:
    return other.exists() and os.path.samefile(path, other)
