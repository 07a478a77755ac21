"""Lines of JSON, and how Ollama's API writes times."""

import time
from datetime import UTC, datetime
from typing import Any

import msgspec

TYPE = "application/x-ndjson"
BILLION = 1_000_000_000
FOREVER = "2318-01-01T00:00:00Z"  # beyond every model's life, and within what other languages take

_encoder = msgspec.json.Encoder()


def line(value: Any) -> bytes:
    """One value as a line."""
    return _encoder.encode(value) + b"\n"


def stamp(nanoseconds: int) -> str:
    """A time since 1970 as RFC 3339 writes it, in UTC."""
    seconds, rest = divmod(nanoseconds, BILLION)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:09d}Z"


def now() -> str:
    """This moment."""
    return stamp(time.time_ns())


def later(seconds: float | None) -> str:
    """The moment in so many seconds; None is for good."""
    return FOREVER if seconds is None else stamp(time.time_ns() + int(seconds * BILLION))


def length(seconds: float) -> int:
    """A duration in whole nanoseconds."""
    return int(seconds * BILLION)
