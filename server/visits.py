"""A Visit: one HTTP request from its header to the last byte of its reply, with the id it goes by and what it came to."""

import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from http import HTTPMethod
from typing import Any

import msgspec

from llamay.serve.events import Timings
from llamay.server import failures, replies, sse
from llamay.server.site import Site

IDS = re.compile(r"[A-Za-z0-9._:-]{1,128}")  # of callers: what a log line and a header may hold
METHODS = frozenset(HTTPMethod)  # all others count as one: each would be a row of the metrics for good
OTHER = "OTHER"
LOCAL = "llamay.local_address"  # in the WSGI environment: this machine's end of the connection
_NAME = "llamay.visit"

Environ = dict[str, Any]
Start = Callable[..., Any]

_current: ContextVar["Visit | None"] = ContextVar("llamay_visit", default=None)


@dataclass(slots=True, eq=False)
class Visit:
    """One request.  The thread that answers it owns it."""

    id: str
    address: str = ""  # of the client
    method: str = ""
    route: str = "-"  # the path's template; - where there is none
    status: int = 0
    begun: float = field(default_factory=time.monotonic)
    seconds: float = 0.0  # it took, once it is over
    model: str = ""
    outcome: str = ""  # of the generation, where there was one
    prompt: int = 0  # tokens
    cached: int = 0
    generated: int = 0
    counted: bool = False  # it takes one of its address's places
    type: str = ""  # the reply's content type

    def generated_by(self, model: str, outcome: str, timings: Timings) -> None:
        """A generation for it is over; some visits have several."""
        self.model, self.outcome = model, outcome
        self.prompt += timings.prompt_tokens
        self.cached += timings.cached_tokens
        self.generated += timings.generated_tokens


def current() -> Visit | None:
    """The visit that this thread answers."""
    return _current.get()


def of(environ: Environ) -> Visit:
    """The visit of a request; one without an id worth knowing where there is none around it."""
    found = environ.get(_NAME)
    return found if isinstance(found, Visit) else Visit("req_0")


class Visits:
    """A WSGI application with a Visit around each request of another."""

    def __init__(self, application: Callable[[Environ, Start], Iterable[bytes]], site: Site) -> None:
        self._application, self._site = application, site

    def __call__(self, environ: Environ, start: Start) -> "Reply":
        """PEP 3333."""
        asked = environ.get("HTTP_X_REQUEST_ID") or environ.get("HTTP_REQUEST_ID") or ""
        id = asked if IDS.fullmatch(asked) else replies.made("req_")
        method = environ["REQUEST_METHOD"]
        visit = Visit(id, str(environ.get("REMOTE_ADDR", "")), method if method in METHODS else OTHER)
        environ[_NAME] = visit
        _current.set(visit)

        def begin(status: str, headers: list[tuple[str, str]], *error: Any) -> Any:
            visit.status = int(status[:3])
            visit.type = next((value for name, value in headers if name.lower() == "content-type"), "")
            kept = [header for header in headers if header[0].lower() not in ("request-id", "x-request-id")]
            return start(status, [*kept, ("request-id", id), ("x-request-id", id)], *error)

        try:
            pieces = self._application(environ, begin)
            return Reply(pieces, lambda error: self._fault(environ, visit, error), lambda: self._over(visit))
        except BaseException:
            self._over(visit)
            raise

    def _fault(self, environ: Environ, visit: Visit, error: Exception) -> bytes:
        """A stream broke off by a fault of the program: its last words."""
        visit.outcome = "fault"
        self._site.journal.fault(visit.id, error)
        family = failures.family_at(environ.get("PATH_INFO", ""), "HTTP_ANTHROPIC_VERSION" in environ)
        body = failures.of(error, family, visit.id).body
        if visit.type != sse.TYPE:
            return msgspec.json.encode(body) + b"\n"
        return sse.event(body, "error") if family == "anthropic" else sse.event(body) + sse.DONE

    def _over(self, visit: Visit) -> None:
        _current.set(None)
        visit.seconds = time.monotonic() - visit.begun
        if visit.counted:
            self._site.leave_address(visit.address)
        self._site.meter.replied(visit.method, visit.route, visit.status)
        self._site.journal.visit(visit)


class Reply:
    """The body of a reply.  `fault` makes the last words of one that breaks off; `over` is called once it is sent, or never will be."""

    def __init__(self, pieces: Iterable[bytes], fault: Callable[[Exception], bytes], over: Callable[[], None]) -> None:
        self._pieces, self._fault, self._over = pieces, fault, over

    def __iter__(self) -> Iterator[bytes]:
        try:
            yield from self._pieces
        except Exception as error:
            yield self._fault(error)

    def close(self) -> None:
        """Called by the server, however the reply ended."""
        try:
            ended = getattr(self._pieces, "close", None)
            if ended is not None:
                ended()
        finally:
            self._over()
