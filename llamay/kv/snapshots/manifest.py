"""The manifest of a saved context: what it is, what made its pages, its tokens, and the checksum of every page.

On disk: magic, version, length of the body, the body's SHA-256, and the body, which is JSON.
docs/contexts.md describes every field.
"""

import hashlib
import math
import struct
from typing import Annotated, Any

import msgspec

from llamay.errors import LlamayError, MalformedContext, UsageError
from llamay.kv.snapshots.labels import check_name, check_tags
from llamay.kv.table import sized
from llamay.tensor.batch import PAGE

VERSION = 1
HEAD = struct.Struct("<8sII32s")  # magic, version, length, SHA-256 of all that but the magic, and of the body
MAGIC = b"LLAMAYCX"
MOST_BYTES = 64 << 20  # of a body
MOST_PAGE_BYTES = 512 << 20
MOST_STATE_BYTES = 4 << 20
DEEPEST_STATE = 16
MOST_GROUPS = 2
LATEST = 250_000_000_000  # seconds after 1970: the year 9892

Token = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]
Line = Annotated[str, msgspec.Meta(max_length=1024)]
Digest = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", max_length=64)]  # SHA-256 of a page's bytes
WeightsDigest = Annotated[str, msgspec.Meta(pattern="^sha256:[0-9a-f]{64}$", max_length=71)]
State = dict[str, Any]  # of samplers and constraints: what JSON can say, by the name of whoever reads it


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One page group: bytes of a page (0: it has no layers), and the window of its layers in tokens (0: they see all)."""

    page_bytes: Annotated[int, msgspec.Meta(ge=0, le=MOST_PAGE_BYTES)]
    span: Annotated[int, msgspec.Meta(ge=0, lt=2**31)] = 0

    def first(self, position: int) -> int:
        """The first page that computing `position` needs; of pages without bytes none is."""
        if not self.page_bytes:
            return sized(position)
        return max(0, position - self.span + 1) // PAGE if self.span else 0


class Origin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What computed the pages.  Where all but `model` is equal, their bytes are what would be computed here."""

    model: Line  # for people: nothing depends on it
    weights: WeightsDigest
    numerics: Line
    kv: Line
    vocabulary: Annotated[int, msgspec.Meta(ge=1, le=2**31)]
    groups: Annotated[tuple[Shape, ...], msgspec.Meta(min_length=1, max_length=MOST_GROUPS)]


class Run(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The pages of one group: digests of page `first` and those that follow; what is before has left the window."""

    first: Annotated[int, msgspec.Meta(ge=0)]
    pages: tuple[Digest, ...]


class Manifest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A saved context.  Make one with `checked`, or from bytes with `decode`."""

    name: str
    tags: tuple[str, ...]
    created: float  # Unix seconds
    parent: str  # name of the context it was forked from, or ""
    origin: Origin
    tokens: tuple[Token, ...]
    held: Annotated[int, msgspec.Meta(ge=0)]  # of the tokens, how many have their keys and values in the pages
    runs: tuple[Run, ...]  # by group
    text: str  # of the tokens, for people; may be ""
    state: State
    page_tokens: int = PAGE

    def digests(self) -> list[str]:
        """Every page, each digest once, in the order of first use."""
        return list(dict.fromkeys(digest for run in self.runs for digest in run.pages))

    def sizes(self) -> dict[str, int]:
        """Bytes of each page by its digest."""
        shapes = zip(self.origin.groups, self.runs, strict=True)
        return {digest: shape.page_bytes for shape, run in shapes for digest in run.pages}

    def usable(self, tokens: int) -> bool:
        """Whether the pages hold all that going on from the first `tokens` tokens needs; after none that is nothing."""
        if tokens == 0:
            return True
        shapes = zip(self.origin.groups, self.runs, strict=True)
        return tokens <= self.held and all(
            run.first <= shape.first(tokens) for shape, run in shapes if shape.page_bytes
        )


def checked(manifest: Manifest) -> Manifest:
    """The manifest, or UsageError naming what in it contradicts the rest."""
    names = [manifest.name, *([manifest.parent] if manifest.parent else [])]
    if [check_name(name) for name in names] != names or check_tags(manifest.tags) != manifest.tags:
        raise UsageError("the names and tags are not in their composed, sorted form")
    if not 0 <= manifest.created < LATEST:  # false for NaN, too
        raise UsageError(f"it was made {manifest.created} seconds after 1970, which is no year people count")
    if manifest.page_tokens != PAGE:
        raise UsageError(f"its pages hold {manifest.page_tokens} tokens; here they hold {PAGE}")
    if manifest.held > len(manifest.tokens):
        raise UsageError(f"{manifest.held} tokens are said to be in pages, of {len(manifest.tokens)}")
    if manifest.tokens and max(manifest.tokens) >= manifest.origin.vocabulary:
        raise UsageError(f"token {max(manifest.tokens)} lies outside its vocabulary of {manifest.origin.vocabulary}")
    if len(manifest.runs) != len(manifest.origin.groups):
        raise UsageError(f"pages of {len(manifest.runs)} groups, but {len(manifest.origin.groups)} are described")
    for number, (shape, run) in enumerate(zip(manifest.origin.groups, manifest.runs, strict=True)):
        _check_run(number, shape, run, manifest.held)
    _check_sizes(manifest)
    _check_state(manifest.state, DEEPEST_STATE)
    return manifest


def encode(manifest: Manifest) -> bytes:
    """The manifest as it is stored, read back and found the same; UsageError where that cannot be."""
    try:
        state, body = msgspec.json.encode(checked(manifest).state), msgspec.json.encode(manifest)
    except (msgspec.MsgspecError, UnicodeError, TypeError, OverflowError) as error:
        raise UsageError(f"the context cannot be described: {error}") from error
    if len(state) > MOST_STATE_BYTES:
        raise UsageError(f"the state of sampler and constraints takes {len(state)} bytes; at most {MOST_STATE_BYTES}")
    if len(body) > MOST_BYTES:
        raise UsageError(f"the description of the context takes {len(body)} bytes; at most {MOST_BYTES} are stored")
    data = HEAD.pack(MAGIC, VERSION, len(body), _digest(VERSION, len(body), body)) + body
    try:
        same = decode(data, "the context") == manifest
    except MalformedContext as error:
        raise UsageError(str(error)) from error
    if not same:
        raise UsageError("the context's description would not be read back as it is")
    return data


def body_length(head: bytes, available: int, whence: str) -> int:
    """The length that a head announces; MalformedContext where it is none of ours or more than is `available`."""
    if len(head) < HEAD.size or not head.startswith(MAGIC):
        raise MalformedContext(f"{whence} is no saved context: it does not begin as one")
    _, version, length, _ = HEAD.unpack(head[: HEAD.size])
    if version != VERSION:
        raise MalformedContext(f"{whence} is of version {version}; this llamay reads version {VERSION}")
    if length > min(MOST_BYTES, available):
        raise MalformedContext(f"{whence} announces {length} bytes of description, {available} follow")
    return int(length)


def decode(data: bytes, whence: str) -> Manifest:
    """Reads and checks a manifest, all of `data`; MalformedContext names `whence` and what is wrong."""
    length = body_length(data, len(data) - HEAD.size, whence)
    body = data[HEAD.size :]
    if length != len(body):
        raise MalformedContext(f"{whence} announces {length} bytes of description and has {len(body)}")
    if HEAD.unpack(data[: HEAD.size])[3] != _digest(VERSION, length, body):
        raise MalformedContext(f"{whence} is damaged: its description does not match its checksum")
    try:
        manifest = msgspec.json.decode(body, type=Manifest)
        return checked(manifest)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, LlamayError) as error:
        raise MalformedContext(f"{whence} contradicts itself: {error}") from error


def _digest(version: int, length: int, body: bytes) -> bytes:
    return hashlib.sha256(struct.pack("<II", version, length) + body).digest()


def _check_run(number: int, shape: Shape, run: Run, held: int) -> None:
    """The pages reach from what the next position needs, or before, to the last one held."""
    if run.first + len(run.pages) != sized(held):
        found = f"pages {run.first} to {run.first + len(run.pages)}"
        raise UsageError(f"group {number} has {found}; {held} tokens end in page {sized(held)}")
    if run.first > shape.first(held):
        raise UsageError(f"group {number} begins with page {run.first}; page {shape.first(held)} is needed")


def _check_sizes(manifest: Manifest) -> None:
    sizes = manifest.sizes()
    for shape, run in zip(manifest.origin.groups, manifest.runs, strict=True):
        if any(sizes[digest] != shape.page_bytes for digest in run.pages):
            raise UsageError("one page is said to be of two sizes")


def _check_state(value: Any, depth: int) -> None:
    """Only what JSON gives back unchanged."""
    if depth < 0:
        raise UsageError(f"the state of sampler and constraints is nested deeper than {DEEPEST_STATE}")
    match value:
        case None | bool() | str():
            return
        case int() if -(2**63) <= value < 2**64:
            return
        case float() if math.isfinite(value):
            return
        case list():
            for element in value:
                _check_state(element, depth - 1)
        case dict():
            for key, element in value.items():
                if not isinstance(key, str):
                    raise UsageError(f"the state of sampler and constraints has the key {key!r}; expected text")
                _check_state(element, depth - 1)
        case _:
            raise UsageError(f"the state of sampler and constraints holds {type(value).__name__}: {ascii(value)[:60]}")
