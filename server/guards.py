"""Guards: who may call at all.  Every request passes them before its route is looked for, so errors and 404s do too."""

import hmac
import re
import socket
from typing import Any

import falcon

from llamay.errors import LlamayError
from llamay.server import visits
from llamay.server.configuration import NO_ORIGIN, loopback
from llamay.server.site import Site

OPEN = ("/healthz", "/readyz", "/health", "/v1/health")  # paths that need no key and take no place
SAFE = ("GET", "HEAD", "OPTIONS")  # methods that change nothing
ASKED_FIRST = ("application/json", "application/octet-stream")  # types that a page may send elsewhere only after a preflight
HOST = re.compile(r"(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::\d{1,5})?", re.IGNORECASE)
HEADERS = re.compile(  # what a page that is allowed may send
    r"(?:authorization|content-type|accept|user-agent|cache-control|x-api-key|(?:x-)?request-id|x-llamay-context"
    r"|x-stainless-[a-z-]+|anthropic-[a-z-]+|openai-[a-z-]+)"
)
EXPOSED = "x-llamay-context, request-id, x-request-id, retry-after"


class Forbidden(LlamayError):
    """A caller that the owner did not allow; the message says which flag would."""

    http_status = 403


class Unauthorized(LlamayError):
    """A wrong key, or none."""

    http_status = 401
    code = "invalid_api_key"


class Guards:
    """Host, Origin, key and crowd, by what the owner configured."""

    def __init__(self, site: Site) -> None:
        self._site, self._configuration = site, site.configuration
        self._names = _own_names() if self._configuration.public else ()

    def process_request(self, request: falcon.Request, response: falcon.Response) -> None:
        """Raises Forbidden, Unauthorized or QueueFull; answers preflights."""
        self.host(request)
        self.origin(request, response)
        if not response.complete:
            self.key(request)
            self.crowd(request)

    def process_resource(
        self, request: falcon.Request, response: falcon.Response, resource: object, params: dict[str, Any]
    ) -> None:
        """Notes which route it is."""
        visits.of(request.env).route = request.uri_template or "-"

    def host(self, request: falcon.Request) -> None:
        """A web page that had its name point at this machine sends that name: DNS rebinding."""
        name = _named(request.get_header("host") or "")
        made = self._configuration
        if loopback(name) or name in made.hosts or "*" in made.hosts or (name and name == made.host.lower()):
            return
        if name and (name in self._names or (made.public and name == request.env.get(visits.LOCAL))):
            return
        raise Forbidden(
            f"the Host header names {name[:100]!r}, which this server does not answer to"
            + (f"; -hosts {name[:100]} allows it" if name else "")
        )

    def origin(self, request: falcon.Request, response: falcon.Response) -> None:
        """Pages of other sites may neither read answers nor change anything, unless -origins names them."""
        asked = self._configuration.origins
        sent = request.get_header("origin") or ""
        origin = sent.lower()
        if asked:
            response.append_header("vary", "Origin")
        allowed = bool(origin) and ("*" in asked or origin in asked)
        if allowed:
            response.set_header("access-control-allow-origin", "*" if "*" in asked else sent)
            response.set_header("access-control-expose-headers", EXPOSED)
        if request.method == "OPTIONS" and origin and request.get_header("access-control-request-method"):
            if not allowed:
                raise _foreign(origin)
            _preflight(request, response)
        elif request.method not in SAFE:
            self._change(request, origin, allowed)

    def key(self, request: falcon.Request) -> None:
        """The key, compared in a time that tells nothing of how much of it was right."""
        if request.path in OPEN:
            return
        given = request.get_header("authorization") or "", request.get_header("x-api-key") or ""
        if not opens(self._configuration.api_key, *given):
            raise Unauthorized("the API key is wrong or missing; send it as `Authorization: Bearer KEY` or `x-api-key: KEY`")

    def crowd(self, request: falcon.Request) -> None:
        """One address may not take every place."""
        visit = visits.of(request.env)
        if request.path not in OPEN and not visit.counted:
            self._site.enter_address(visit.address)
            visit.counted = True

    def _change(self, request: falcon.Request, origin: str, allowed: bool) -> None:
        """A form or a fetch of another site's page, which its browser would send without asking."""
        if not origin:
            if request.get_header("sec-fetch-site") in ("cross-site", "same-site"):
                raise Forbidden("a page of another site may not call; -origins ORIGIN allows it")
            return
        own = origin.partition("://")[2] == (request.get_header("host") or "").lower()
        if not (allowed or own):
            raise _foreign(origin)
        type = (request.content_type or "").partition(";")[0].strip().lower()
        if type not in ASKED_FIRST and (type or request.content_length):
            raise Forbidden(f"a page has to send application/json; this was {type[:100] or 'without a content type'}")


def _foreign(origin: str) -> Forbidden:
    """What a page is told that may not call."""
    if origin == NO_ORIGIN:
        return Forbidden(
            "a page without an address (a file, a sandboxed frame) may not call: any site can make one; "
            "serve it from an address, as `python -m http.server 8000` does, and -origins http://localhost:8000 allows it"
        )
    return Forbidden(f"pages of {origin[:100]} may not call; -origins {origin[:100]} allows it")


def opens(key: str, authorization: str, bare: str) -> bool:
    """Whether the values of the headers `authorization` and `x-api-key` hold the key; any do where that is empty."""
    given = authorization[7:] if authorization[:7].lower() == "bearer " else bare
    return not key or hmac.compare_digest(given.strip().encode("latin-1", "replace"), key.encode())


def _preflight(request: falcon.Request, response: falcon.Response) -> None:
    wanted = (request.get_header("access-control-request-headers") or "").lower().split(",")
    headers = [name.strip() for name in wanted if HEADERS.fullmatch(name.strip())]
    response.status = 204
    response.set_header("access-control-allow-methods", "GET, HEAD, POST, DELETE")
    if headers:
        response.set_header("access-control-allow-headers", ", ".join(headers))
    response.set_header("access-control-max-age", "600")
    response.complete = True


def _named(header: str) -> str:
    """The name or address in a Host header, without port; empty where it is none."""
    found = HOST.fullmatch(header.strip())
    return found[1].strip("[]").rstrip(".").lower() if found else ""


def _own_names() -> tuple[str, ...]:
    """What others may call this machine."""
    name = socket.gethostname().lower()
    return (name, f"{name}.local") if name else ()
