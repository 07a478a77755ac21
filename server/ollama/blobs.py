"""HEAD and POST /api/blobs/sha256:HEX: files that a client brings for /api/create."""

import hashlib
import secrets
from typing import Protocol

import falcon

from llamay.errors import DigestMismatch, NotInstalled, StoreError, UsageError
from llamay.server.site import Site
from llamay.store import Store, digests
from llamay.store.download import RESERVE
from llamay.store.parts import Part
from llamay.store.progress import size

CHUNK = 1 << 20


class Readable(Protocol):
    """Where the bytes of a request's body come from."""

    def read(self, size: int, /) -> bytes:
        """At most so many; none at the end."""


class Other(DigestMismatch):
    """The bytes that a client sent are not those that it announced."""

    http_status = 400


class Blobs:
    """Tells whether a blob is here, and takes one."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_head(self, request: falcon.Request, response: falcon.Response, digest: str) -> None:
        if not digests.blob_path(self._site.models.store.blobs, checked(digest)).is_file():
            raise NotInstalled(f"there is no blob {digest}")

    def on_post(self, request: falcon.Request, response: falcon.Response, digest: str) -> None:
        store, wanted = self._site.models.store, checked(digest)
        if not digests.blob_path(store.blobs, wanted).is_file():
            take(store, request.bounded_stream, request.content_length or 0, wanted)
        response.status = 201


def checked(digest: str) -> str:
    """The digest as the store spells it; UsageError for anything else, so that none becomes a path."""
    try:
        return digests.parse(digest)
    except StoreError as error:
        raise UsageError(str(error)) from None


def take(store: Store, stream: Readable, announced: int, digest: str) -> None:
    """Installs the bytes of a stream under their digest; raises Other where they are others, and keeps nothing then."""
    if announced + RESERVE > store.free():
        raise StoreError(f"the blob needs {size(announced)} and {size(RESERVE)} to spare; {size(store.free())} are free")
    store.make(store.partials)
    hasher = hashlib.sha256()
    with Part(store.partials, f"upload-{secrets.token_hex(12)}", addressed=True).open() as part:
        try:
            while chunk := stream.read(CHUNK):
                hasher.update(chunk)
                part.write(chunk)
            found = f"sha256:{hasher.hexdigest()}"
            if found != digest:
                raise Other(f"the {part.length} bytes that came hash to {found}, not to {digest}; nothing was kept")
        except BaseException:
            part.discard()  # an upload is not resumed
            raise
        store.install_blob(part.finish(), digest)
