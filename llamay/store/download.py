"""Downloads: a part file grows over retries and restarts until it holds what was announced, and no byte more."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from llamay.errors import DigestMismatch, PullError, StoreError
from llamay.store import addresses, digests
from llamay.store.network import Network, Reply, Request, Transient, refusal
from llamay.store.parts import Part
from llamay.store.progress import Reporter, size

MAGIC = b"GGUF"
RESERVE = 64 << 20  # bytes of free disk a download leaves
RECHECK = 64 << 20  # bytes between two looks at the free disk

_CONTENT_RANGE = re.compile(r"bytes (?:(\d{1,18})-(\d{1,18})|\*)/(\d{1,18}|\*)")


class NotModified(Exception):
    """The file is still the one whose ETag was sent along."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a download must turn out to be: its digest and size where known, GGUF or anything, its label."""

    label: str
    digest: str | None = None
    size: int | None = None
    gguf: bool = True


@dataclass(frozen=True, slots=True)
class Fetcher:
    """What downloads share: the way out, the ear, and how much disk is free."""

    network: Network
    reporter: Reporter
    free: Callable[[], int]

    def fetch(self, request: Request, target: Target, part: Part) -> Mapping[str, str]:
        """Receives until the part is complete and, where a digest is known, right; returns the last answer's headers.

        A part that turns out wrong is dropped; one that was resumed is fetched once more
        from the start before that is called an error.  Raises PullError, DigestMismatch,
        StoreError; the part keeps what was received in all other cases.
        """
        resumed = part.length > 0
        headers = self._receive(request, target, part)
        if target.digest is None:
            return headers
        found = self.hash(target.label, part)
        if found != target.digest and resumed:
            self.reporter.say(f"{target.label}: the resumed bytes are not those announced; fetching it anew")
            part.discard()
            headers = self._receive(request, target, part)
            found = self.hash(target.label, part)
        if found != target.digest:
            count = part.length
            part.discard()
            raise DigestMismatch(
                f"{target.label}: {count} bytes from {addresses.host_of(request.url)} hash to {found}, announced was "
                f"{target.digest}; nothing was installed"
            )
        return headers

    def hash(self, label: str, part: Part) -> str:
        """The digest of the part's bytes as they are on disk."""
        part.sync()
        self.reporter.begin(f"verifying {label}", part.length, 0)
        try:
            return digests.of_file(part.path, self.reporter.advance)
        finally:
            self.reporter.end()

    def room(self, label: str, wanted: int) -> None:
        """Raises StoreError when `wanted` more bytes would fill the disk."""
        free = self.free()
        if wanted + RESERVE > free:
            raise StoreError(
                f"{label} needs {size(wanted)} more and {size(RESERVE)} to spare; {size(free)} are free. "
                "Free some space (`llamay rm`) or set LLAMAY_MODELS to another disk; what was received is kept"
            )

    def _receive(self, request: Request, target: Target, part: Part) -> Mapping[str, str]:
        patience = self.network.patience()
        self.reporter.begin(target.label, target.size, part.length)
        try:
            while True:
                before = part.length
                try:
                    return _Transfer(self, request, target, part).run()
                except Transient as failure:
                    part.sync()
                    patience.progressed(max(0, part.length - before))
                    patience.wait(failure, target.label, self.reporter.say)
        finally:
            self.reporter.end()


@dataclass(slots=True)
class _Transfer:
    """One request of a download."""

    fetcher: Fetcher
    request: Request
    target: Target
    part: Part

    def run(self) -> Mapping[str, str]:
        target, part = self.target, self.part
        if target.size is not None and part.length > target.size:
            self._restart()
        if target.size is not None and part.length == target.size and target.digest is not None:
            return {}
        if part.length and target.digest is None and not part.validator:
            self._restart()  # nothing could tell whether the rest belongs to the same file
        asked = part.length
        with self.fetcher.network.open(replace(self.request, headers=self._headers())) as reply:
            if reply.status == 416 and asked:
                return self._beyond(reply)
            total = self._judge(reply, asked)
            self._body(reply, total)
            return reply.headers

    def _headers(self) -> dict[str, str]:
        headers = dict(self.request.headers)
        if self.part.length:
            headers["Range"] = f"bytes={self.part.length}-"
            if self.target.digest is None:
                headers["If-Range"] = self.part.validator
        return headers

    def _judge(self, reply: Reply, asked: int) -> int | None:
        """Checks status and lengths against what was asked; returns the whole file's size where it is told."""
        if reply.status == 206 and asked:
            start, total = _content_range(reply)
            if start != asked:
                self._refuse(f"answers with bytes from {start} where {asked} was asked")
        elif reply.status == 200:
            total = _content_length(reply)
            self._restart(_validator(reply))  # a server that ignores Range begins anew
        elif reply.status == 304 and "If-None-Match" in self.request.headers:
            raise NotModified
        else:
            raise refusal(reply)
        if total is not None and self.target.size is not None and total != self.target.size:
            self._refuse(f"announces {total} bytes where {self.target.size} are expected")
        if total is None and self.target.digest is None and reply.headers.get("transfer-encoding") is None:
            self._refuse("tells no length, so that a cut could not be noticed")
        known = total if total is not None else self.target.size
        self.fetcher.room(self.target.label, max(0, (known or 0) - self.part.length))
        return known

    def _body(self, reply: Reply, total: int | None) -> None:
        """Appends the answer's bytes, never beyond `total` nor beyond the free disk."""
        part, checked = self.part, self.part.length
        if total is not None:
            self.fetcher.reporter.begin(self.target.label, total, part.length)
        head = b"" if part.length == 0 and self.target.gguf else None
        for chunk in reply.chunks:
            if head is not None:
                chunk, head = head + chunk, None
                if len(chunk) < len(MAGIC):
                    head = chunk
                    continue
                self._check_magic(chunk, reply)
            if total is not None and part.length + len(chunk) > total:
                part.discard()
                self._refuse(f"sends more than the {total} bytes it announced")
            if total is None and part.length - checked >= RECHECK:
                checked = part.length
                self.fetcher.room(self.target.label, RECHECK)
            part.write(chunk)
            self.fetcher.reporter.advance(len(chunk))
        if head is not None:
            self._check_magic(head, reply)
        if total is not None and part.length < total:
            raise Transient(f"the connection ended {total - part.length} bytes early")

    def _check_magic(self, start: bytes, reply: Reply) -> None:
        if start.startswith(MAGIC):
            return
        kind = reply.headers.get("content-type", "no content type")
        self._refuse(f"sends no GGUF file but {ascii(kind)[1:-1][:60]} beginning with {ascii(start[:24])[1:]}")

    def _beyond(self, reply: Reply) -> Mapping[str, str]:
        """416: the part is either all there is, or more than there is."""
        _, total = _content_range(reply)
        if total == self.part.length:
            return reply.headers
        self._restart()
        raise Transient(f"the server holds {total if total is not None else 'fewer'} bytes now; starting anew")

    def _restart(self, validator: str = "") -> None:
        self.fetcher.reporter.advance(-self.part.length)
        self.part.restart(validator)

    def _refuse(self, what: str) -> NoReturn:
        raise PullError(f"{self.target.label}: {addresses.host_of(self.request.url)} {what}; nothing was installed")


def _content_length(reply: Reply) -> int | None:
    text = reply.headers.get("content-length", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 18 else None


def _content_range(reply: Reply) -> tuple[int | None, int | None]:
    """First byte and whole size of a partial answer, None where not told."""
    match = _CONTENT_RANGE.fullmatch(reply.headers.get("content-range", ""))
    if match is None:
        return None, None
    return (int(match[1]) if match[1] else None), (None if match[3] == "*" else int(match[3]))


def _validator(reply: Reply) -> str:
    """What If-Range may carry: a strong ETag, else a date."""
    etag = reply.headers.get("etag", "")
    if etag.startswith('"'):
        return etag
    return "" if etag else reply.headers.get("last-modified", "")
