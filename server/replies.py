"""Replies: JSON values and streams of a Falcon response, and identifiers."""

import secrets
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

import falcon
import msgspec

from llamay.server import sse

JSON = "application/json; charset=utf-8"

_encoder = msgspec.json.Encoder()


def json(response: falcon.Response, value: Any, status: int = 200) -> None:
    """The whole reply."""
    response.status = status
    response.content_type = JSON
    response.data = _encoder.encode(value)


def stream(
    response: falcon.Response, pieces: Iterator[bytes], type: str = sse.TYPE, close: Callable[[], None] = lambda: None
) -> None:
    """A reply in pieces, each sent as soon as it is there; `close` is called in the end, also where none was sent."""
    response.content_type = type
    response.set_headers(sse.HEADERS)
    response.stream = Pieces(pieces, close)


class Under(Protocol):
    """What is under way for a reply: a Turn, or several."""

    def begin(self) -> None:
        """Waits until what forbids it is known; raises that."""

    def close(self) -> None:
        """Cancels what is left.  Safe to call twice."""


T = TypeVar("T", bound=Under, contravariant=True)


class Teller(Protocol[T]):
    """What makes one family's reply of what is under way."""

    def whole(self, turn: T) -> Any:
        """The reply in one piece, as JSON values."""

    def events(self, turn: T) -> Iterator[bytes]:
        """The reply in pieces, of which the last is an end whatever happens."""


def answer(
    response: falcon.Response, turn: T, teller: Teller[T], headers: Mapping[str, str], *, streamed: bool | None, type: str = sse.TYPE
) -> None:
    """The answer to a request, in pieces of that content type where it is to be streamed; raises what forbids it."""
    try:
        if streamed:
            turn.begin()
            stream(response, teller.events(turn), type, turn.close)
        else:
            json(response, teller.whole(turn))
    except BaseException:
        turn.close()
        raise
    response.set_headers(headers)


class Pieces:
    """The body of a stream.  A generator that never began runs no `finally`, so what it would close is closed here."""

    def __init__(self, pieces: Iterator[bytes], close: Callable[[], None]) -> None:
        self._pieces, self._close = pieces, close

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        return next(self._pieces)

    def close(self) -> None:
        """Called by the server when the reply is over, however it ends."""
        ended = getattr(self._pieces, "close", None)
        if ended is not None:
            ended()
        close, self._close = self._close, _nothing
        close()


def _nothing() -> None:
    """It was closed already."""


def gone(request: falcon.Request) -> Callable[[], bool]:
    """Tells whether the client of a request went away."""
    asked: Callable[[], bool] | None = request.env.get("waitress.client_disconnected")
    return asked if asked is not None else lambda: False


def made(prefix: str) -> str:
    """A new identifier, such as chatcmpl-…"""
    return prefix + secrets.token_hex(12)
