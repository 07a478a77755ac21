"""HTTP as pulls need it: pinned addresses, redirects judged hop by hop, failures sorted into passing and final."""

import contextlib
import random
import ssl
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

from llamay import __version__
from llamay.errors import PullError
from llamay.store import addresses
from llamay.store.addresses import Resolver, Unresolved

if TYPE_CHECKING:
    import httpx

HOPS = 5
ATTEMPTS = 6
PROGRESS = 1 << 20  # bytes after which a transfer counts as moving again
LONGEST_WAIT = 120.0  # seconds a server's Retry-After is followed
PAGE_SECONDS = 120.0
CONNECT_SECONDS = 20.0
REDIRECTS = frozenset({301, 302, 303, 307, 308})
PASSING = frozenset({408, 425, 429, 500, 502, 503, 504})


class Transient(Exception):
    """A failure that may pass; `after` seconds if the server says when."""

    def __init__(self, reason: str, after: float | None = None) -> None:
        super().__init__(reason)
        self.after = after


@dataclass(frozen=True, slots=True)
class Request:
    """What to fetch.  `trusted`: named by the person or the configuration, so it may be a private host.

    `authorization` goes to the request's own endpoint alone, never along a redirect.
    """

    url: str
    headers: Mapping[str, str] = field(default_factory=dict)
    authorization: str = ""
    trusted: bool = True


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer whose body is still to be read; header names are lower case."""

    url: str
    status: int
    headers: Mapping[str, str]
    chunks: Iterator[bytes]


@dataclass(frozen=True, slots=True)
class Page:
    """A whole small answer."""

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(slots=True)
class Patience:
    """Bounded retries: waits double from `base` seconds, and are forgotten after a megabyte of progress."""

    attempts: int = ATTEMPTS
    base: float = 0.5
    sleep: Callable[[float], None] = time.sleep
    _failures: int = 0
    _moved: int = 0

    def progressed(self, count: int) -> None:
        """Hears of every byte received."""
        self._moved += count
        if self._moved >= PROGRESS:
            self._failures = self._moved = 0

    def wait(self, failure: Transient, what: str, notice: Callable[[str], None]) -> None:
        """Waits before the next try; raises PullError when there have been enough."""
        self._failures += 1
        if self._failures >= self.attempts:
            raise PullError(f"{what}: {failure}; gave up after {self._failures} tries; trying again later goes on from there") from failure
        pause = self.base * 2 ** (self._failures - 1) * random.uniform(0.8, 1.2)
        if failure.after is not None:
            if failure.after > LONGEST_WAIT:
                raise PullError(f"{what}: {failure}; it asks to wait {failure.after:.0f} s, so try again then")
            pause = max(pause, failure.after)
        notice(f"{failure}; next try in {pause:.1f} s")
        self.sleep(pause)


@dataclass(slots=True)
class Network:
    """One pull's way out.  `certificates` and `proxy` come from configuration; "" means the system's own."""

    resolver: Resolver = addresses.resolve
    insecure: bool = False
    certificates: str = ""
    client_certificate: str = ""
    proxy: str = ""
    timeout: float = 60.0  # seconds without a byte
    patience: Callable[[], Patience] = Patience
    notice: Callable[[str], None] = lambda text: None
    unverified: set[addresses.Endpoint] = field(default_factory=set)  # may do without https or a valid certificate
    _transports: "dict[tuple[str | None, bool], httpx.HTTPTransport]" = field(default_factory=dict)
    _pins: dict[addresses.Endpoint, list[str]] = field(default_factory=dict)

    def close(self) -> None:
        """Closes all connections."""
        for transport in self._transports.values():
            transport.close()
        self._transports.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    @contextlib.contextmanager
    def open(self, request: Request) -> Iterator[Reply]:
        """Sends a GET and follows judged redirects; the block reads the body.

        Raises Transient for what may pass (connection, 429, 5xx) and PullError for what will not.
        """
        origin = addresses.endpoint(request.url)
        url = request.url
        for _ in range(HOPS + 1):
            own = addresses.endpoint(url) == origin
            headers = {**request.headers, "Accept-Encoding": "identity", "User-Agent": f"llamay/{__version__}"}
            if own and request.authorization:
                headers["Authorization"] = request.authorization
            with self._send(url, headers, trusted=own and request.trusted) as reply:
                if reply.status not in REDIRECTS:
                    if reply.headers.get("content-encoding", "identity").lower() not in ("identity", ""):
                        raise PullError(f"{addresses.host_of(url)} encodes its answer, which it was asked not to do")
                    yield reply
                    return
                url = addresses.redirected(url, reply.headers.get("location", ""))
        raise PullError(f"{addresses.host_of(request.url)} redirects more than {HOPS} times")

    def page(self, request: Request, limit: int, accept: frozenset[int] = frozenset({200})) -> Page:
        """A whole answer of at most `limit` bytes, retried while failures may pass.

        Raises PullError for a status that is not in `accept`.
        """
        patience = self.patience()
        while True:
            try:
                with self.open(request) as reply:
                    if reply.status not in accept:
                        raise refusal(reply)
                    return Page(reply.url, reply.status, reply.headers, _bounded(reply, limit))
            except Transient as failure:
                patience.wait(failure, addresses.host_of(request.url), self.notice)

    @contextlib.contextmanager
    def _send(self, url: str, headers: Mapping[str, str], trusted: bool) -> Iterator[Reply]:
        """One GET, to the first of the judged addresses that answers.

        It goes to the transport itself: a client would keep cookies and read redirects on its own.
        """
        import httpx

        place = addresses.endpoint(url)
        proxy = self._proxy_for(url)
        targets = self._route(url, trusted, proxied=proxy is not None)
        secure = place.scheme == "https" and place not in self.unverified
        transport = self._transport(proxy, verified=secure)  # reading the certificates takes 50 ms
        for number, target in enumerate(targets, 1):
            request = self._request(url, place, target, headers)
            try:
                answer = transport.handle_request(request)
                break
            except httpx.TransportError as error:
                if number == len(targets) or not isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
                    raise _sorted(error, place.netloc) from error
        try:
            lower = {name.lower(): value for name, value in answer.headers.items()}
            yield Reply(url, answer.status_code, lower, _chunks(answer, place.netloc))
        finally:
            answer.close()

    def _request(
        self, url: str, place: addresses.Endpoint, target: str | None, headers: Mapping[str, str]
    ) -> "httpx.Request":
        """A request to a pinned address under the host's own name; a None target goes by name, through a proxy."""
        import httpx

        parts = urlsplit(url)
        path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        try:
            pinned = httpx.URL(scheme=place.scheme, host=target or place.host, port=place.port, raw_path=path.encode())
        except httpx.InvalidURL as error:
            raise PullError(f"{url[:200]!a} is no URL: {error}") from error
        seconds = self.timeout
        timeout = httpx.Timeout(seconds, connect=min(seconds, CONNECT_SECONDS)).as_dict()
        extensions: dict[str, object] = {"timeout": timeout}
        if place.scheme == "https" and target and target != place.host:
            extensions["sni_hostname"] = place.host
        return httpx.Request("GET", pinned, headers={"Host": place.netloc, **headers}, extensions=extensions)

    def _route(self, url: str, trusted: bool, proxied: bool) -> list[str | None]:
        """The addresses to try; None leaves the name to a proxy, which alone may be able to resolve it."""
        place = addresses.endpoint(url)
        if trusted and place in self._pins:
            return list(self._pins[place])
        insecure = self.insecure or place in self.unverified
        try:
            found = addresses.route(url, trusted=trusted, insecure=insecure, resolver=self.resolver)
        except Unresolved as error:
            if proxied and place.scheme == "https":
                return [None]
            if error.passing:
                raise Transient(str(error)) from error
            raise PullError(f"{error}; is it spelled so, and this machine online? HTTPS_PROXY names a proxy") from error
        if proxied:
            return [None]
        if trusted:
            self._pins[place] = found
        return list(found)

    def _proxy_for(self, url: str) -> str | None:
        if self.proxy:
            return self.proxy
        place = addresses.endpoint(url)
        proxies = urllib.request.getproxies()
        if urllib.request.proxy_bypass(place.host):
            return None
        return proxies.get(place.scheme) or proxies.get("all")

    def _transport(self, proxy: str | None, verified: bool) -> "httpx.HTTPTransport":
        import httpx

        key = (proxy, verified)
        if key not in self._transports:
            tls = self._tls() if verified else False
            try:
                self._transports[key] = httpx.HTTPTransport(verify=tls, proxy=proxy, trust_env=False)
            except (httpx.InvalidURL, ValueError, ImportError) as error:  # the last: SOCKS without its package
                raise PullError(f"the proxy that is configured cannot be used: {error}") from error
        return self._transports[key]

    def _tls(self) -> ssl.SSLContext:
        import httpx

        try:
            if self.certificates:
                context = ssl.create_default_context(cafile=self.certificates)
            else:
                context = httpx.create_ssl_context(trust_env=True)
            if self.client_certificate:
                context.load_cert_chain(self.client_certificate)
        except OSError as error:
            raise PullError(
                f"the certificates {self.certificates or 'of the system'} cannot be read: {error}"
            ) from error
        return context


def refusal(reply: Reply) -> Exception:
    """What a status other than success means: Transient when it may pass, else PullError with advice."""
    host = addresses.host_of(reply.url)
    said = f"{host} answered {reply.status}"
    if reply.status in PASSING:
        return Transient(said, retry_after(reply.headers.get("retry-after", "")))
    advice = {
        401: "it wants credentials (for the hub: set HF_TOKEN; for an index: netrc or user:password in its URL)",
        403: "access is refused (a gated model: accept its licence on the web page and set HF_TOKEN)",
        404: "there is no such model or file; check the spelling",
        410: "it was removed",
    }.get(reply.status, "expected 200")
    return PullError(f"{said} for {ascii(urlsplit(reply.url).path)[1:-1][:200]}: {advice}")


def retry_after(text: str, now: float | None = None) -> float | None:
    """Seconds a Retry-After header asks for, from its number or its date; None when it says nothing usable."""
    import email.utils

    if text.isascii() and text.isdecimal():
        return float(text[:9])
    try:
        moment = email.utils.parsedate_to_datetime(text).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
    return max(0.0, moment - (time.time() if now is None else now))


def _chunks(answer: "httpx.Response", host: str) -> Iterator[bytes]:
    import httpx

    try:
        yield from answer.iter_raw()  # as it arrives: nothing received waits in a buffer
    except httpx.TransportError as error:
        raise _sorted(error, host) from error


def _bounded(reply: Reply, limit: int) -> bytes:
    body = bytearray()
    deadline = time.monotonic() + PAGE_SECONDS
    for chunk in reply.chunks:
        body += chunk
        if len(body) > limit:
            raise PullError(f"{addresses.host_of(reply.url)} sends a page of more than {limit} bytes, which is refused")
        if time.monotonic() > deadline:
            raise Transient(f"{addresses.host_of(reply.url)} took more than {PAGE_SECONDS:.0f} s for a page")
    return bytes(body)


def _sorted(error: Exception, host: str) -> Exception:
    """Transient for a transport's failure, PullError where another try cannot help."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return PullError(f"{host} shows a certificate that cannot be trusted: {cause.verify_message}")
        cause = cause.__cause__ or cause.__context__
    return Transient(f"{host}: {str(error) or type(error).__name__}")
