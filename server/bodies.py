"""Bodies of requests: JSON within bounds of size and depth, checked against a wire type."""

from itertools import accumulate
from typing import Any, TypeVar

import falcon
import msgspec

from llamay.errors import UsageError

MOST_DEPTH = 64  # of arrays and objects in each other; tool schemas have some 20
MOST_PARTS = 1 << 20  # arrays and objects: two bytes of JSON make one of 64
_OTHERS = bytes(set(range(256)) - set(b'{}[]"'))  # all that neither nests nor quotes
_STEPS = {ord("{"): 1, ord("["): 1, ord("}"): -1, ord("]"): -1}

T = TypeVar("T")


class TooLarge(UsageError):
    """A body beyond the bound; the message gives both numbers."""

    http_status = 413


def read(request: falcon.Request, type: type[T], most: int) -> T:
    """The body as a wire type, whatever content type it claims; UsageError says where it is wrong."""
    return convert(document(request, most), type)


def document(request: falcon.Request, most: int) -> Any:
    """The body as plain values; UsageError where it is no JSON or too deep, TooLarge beyond `most` bytes."""
    declared = request.content_length or 0
    if declared > most:
        raise TooLarge(f"the body has {declared} bytes; at most {most} are taken")
    raw = request.bounded_stream.read(most + 1)
    if len(raw) > most:
        raise TooLarge(f"the body has more than {most} bytes, which is all that is taken")
    parts = max(raw.count(b"{") + raw.count(b"["), raw.count(b"}") + raw.count(b"]"))
    if parts > MOST_PARTS:
        raise TooLarge(f"the body has more than {MOST_PARTS} arrays and objects, which is all that is taken")
    if not raw.strip():
        raise UsageError("missing request body: a JSON object was expected")
    if parts > MOST_DEPTH and _depth(raw) > MOST_DEPTH:
        raise UsageError(f"the body is nested too deeply; {MOST_DEPTH} levels are taken")
    try:
        found = msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"the body is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"the body is {kind(found)}; a JSON object was expected")
    return found


def convert(found: Any, type: type[T]) -> T:
    """Plain values as a wire type; UsageError names the field that is wrong."""
    try:
        return msgspec.convert(found, type)
    except msgspec.ValidationError as error:
        raise UsageError(str(error)) from None


def kind(value: Any) -> str:
    """What a JSON value is, in JSON's words."""
    words = ((dict, "an object"), (list, "an array"), (str, "a string"), (bool, "a boolean"), (int | float, "a number"))
    return next((word for of, word in words if isinstance(value, of)), "null")


def _depth(raw: bytes) -> int:
    """How many arrays and objects of JSON lie in each other, counted before it is decoded: a decoder goes as deep as the
    body does, and a thread's stack keeps the memory that it ever took, 300 KB for a thousand levels.

    Exact as far as the bytes are JSON; decoding ends where they are not.
    """
    bare = raw.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHERS)
    bare = bare.replace(b'""', b"")  # two quotes side by side: what is inside of strings stays inside
    brackets = b"".join(bare.split(b'"')[::2])
    return max(accumulate(map(_STEPS.__getitem__, brackets)), default=0)
