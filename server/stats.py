"""GET /v1/stats: what the engine is doing, once or as a stream of server-sent events.  No prompt and no answer is in it."""

import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import falcon
import msgspec

from llamay.errors import UsageError
from llamay.serve import moment
from llamay.server import replies, sse
from llamay.server.site import Site

INTERVAL = 0.25  # seconds between two events, where none is asked for
SHORTEST, LONGEST = 0.1, 60.0
LOOK = 0.05  # seconds between two looks at the client


class Statistics:
    """Answers who watches: the terminal application, scripts."""

    queries: ClassVar = {
        "GET": {
            "stream": {"type": "boolean"},
            "interval": {"type": "number", "minimum": SHORTEST, "maximum": LONGEST},
            "pages": {"type": "boolean"},
        }
    }

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        """`?stream=true` with `&interval=SECONDS`, and `?pages=false` for an answer without page maps."""
        pages = _flag(request, "pages", True)
        interval = _interval(request)
        if not _flag(request, "stream", False):
            replies.json(response, value(self._site, pages=pages))
            return
        self._site.watch()
        pieces = events(self._site, interval, replies.gone(request), pages=pages)
        replies.stream(response, pieces, close=self._site.unwatch)


def events(site: Site, interval: float, gone: Callable[[], bool], *, pages: bool) -> Iterator[bytes]:
    """An event every `interval` seconds, until the client goes away or the server ends."""
    due = time.monotonic()
    while True:
        yield sse.event(value(site, pages=pages))
        due = max(due + interval, time.monotonic())
        while time.monotonic() < due:
            if gone() or site.closing.wait(min(LOOK, max(0.0, due - time.monotonic()))):
                yield sse.DONE
                return


def value(site: Site, *, pages: bool = True) -> dict[str, Any]:
    """All of it; docs/server.md names the fields."""
    found = moment.told(site.models, site.shelf, site.started, closing=site.closing.is_set(), pages=pages)
    return {"object": "stats", "generations": site.inside, "visits": site.visiting, **msgspec.structs.asdict(found)}


def _flag(request: falcon.Request, name: str, default: bool) -> bool:
    text = request.get_param(name)
    if text is None:
        return default
    if text.lower() not in ("true", "false", "1", "0"):
        raise UsageError(f"{name} is {text[:50]!r}; it may be true or false")
    return text.lower() in ("true", "1")


def _interval(request: falcon.Request) -> float:
    text = request.get_param("interval")
    try:
        seconds = INTERVAL if text is None else float(text)
    except ValueError:
        seconds = -1.0
    if not SHORTEST <= seconds <= LONGEST:
        raise UsageError(f"interval is {(text or '')[:50]!r}; it may be {SHORTEST} to {LONGEST} seconds")
    return seconds
