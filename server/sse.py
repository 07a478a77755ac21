"""Server-sent events, as bytes."""

from typing import Any

import msgspec

TYPE = "text/event-stream; charset=utf-8"
PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"
HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}

_encoder = msgspec.json.Encoder()


def event(data: Any, name: str = "") -> bytes:
    """One event; `name` is its type, for families that name theirs."""
    head = b"event: " + name.encode() + b"\n" if name else b""
    return head + b"data: " + _encoder.encode(data) + b"\n\n"
