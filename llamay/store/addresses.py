"""Addresses: which URLs may be fetched and followed, decided on resolved IP addresses that are then pinned."""

import ipaddress
import socket
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import SplitResult, urljoin, urlsplit

from llamay.errors import PullError

Resolver = Callable[[str, int], list[str]]
Address = ipaddress.IPv4Address | ipaddress.IPv6Address

PORTS = {"https": 443, "http": 80}

_NAT64 = ipaddress.ip_network("64:ff9b::/96")


class Unresolved(Exception):
    """A host's name has no address; `passing` when asking again may help."""

    def __init__(self, host: str, reason: str, passing: bool) -> None:
        super().__init__(f"{host} cannot be resolved: {reason}")
        self.passing = passing


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What a connection goes to; two URLs of one endpoint are one server."""

    scheme: str
    host: str  # lower case, an IPv6 address without brackets
    port: int

    @property
    def netloc(self) -> str:
        """The Host header's value."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"


def split(url: str) -> SplitResult:
    """The parts of a URL; raises PullError for text that is none."""
    try:
        return urlsplit(url)
    except ValueError as error:
        raise PullError(f"{ascii(url)[:200]} is no URL: {error}") from None


def endpoint(url: str) -> Endpoint:
    """The endpoint of a URL; raises PullError for anything but http and https with a plain host."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError as error:
        raise PullError(f"{ascii(url)[:200]} is no URL: {error}") from None
    host = parts.hostname or ""
    if parts.scheme not in PORTS or not url.isprintable() or " " in url:
        raise PullError(f"{ascii(url)[:200]} is refused: only https (and http on this machine) is fetched")
    try:
        host = host if host.isascii() else host.encode("idna").decode("ascii")
    except UnicodeError:
        host = ""
    if not host or any(sign in host for sign in "%\\/?#@"):
        raise PullError(f"{ascii(url)[:200]} is refused: it names no host")
    return Endpoint(parts.scheme, host.rstrip("."), port or PORTS[parts.scheme])


def redirected(current: str, location: str) -> str:
    """The URL a redirect leads to; raises PullError when it changes the scheme or carries credentials."""
    try:
        target = urljoin(current, location)
    except ValueError as error:
        raise PullError(f"{host_of(current)} redirects to {ascii(location)[:200]}, which is no URL: {error}") from None
    before, after = split(current), split(target)
    if before.scheme != after.scheme:
        raise PullError(
            f"{host_of(current)} redirects to another scheme ({ascii(target)[:200]}); "
            f"expected {before.scheme}, so nothing was fetched from there"
        )
    if "@" in after.netloc:
        raise PullError(f"{host_of(current)} redirects to a URL with credentials in it, which is refused")
    return after._replace(fragment="").geturl()


def route(url: str, *, trusted: bool, insecure: bool, resolver: Resolver) -> list[str]:
    """The addresses a URL may be fetched from, all of them judged.

    `trusted`: the person or the configuration names this host, so it may be private.
    Others must be https and public in every address.  `insecure` allows plain http to a
    trusted host beyond this machine.  Raises PullError, or Unresolved from the resolver.
    """
    place = endpoint(url)
    found = resolver(place.host, place.port)
    if not found:
        raise Unresolved(place.host, "it has no address", passing=False)
    private = [address for address in found if not is_public(address)]
    if not trusted and (private or place.scheme != "https"):
        what = f"the private address {private[0]}" if private else "plain http"
        raise PullError(f"{place.netloc} is refused: it is reached by {what}, and nobody here named that host")
    if place.scheme == "http" and not insecure and not all(_is_loopback(address) for address in found):
        raise PullError(
            f"{place.netloc} is refused: plain http is fetched from this machine only (-insecure allows it)"
        )
    return found


def resolve(host: str, port: int) -> list[str]:
    """The addresses of a host as the system gives them, in its order."""
    try:
        answers = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (socket.gaierror, UnicodeError) as error:
        passing = isinstance(error, socket.gaierror) and error.errno == socket.EAI_AGAIN
        reason = error.strerror if isinstance(error, socket.gaierror) and error.strerror else str(error)
        raise Unresolved(host, reason, passing) from error
    return list(dict.fromkeys(str(answer[4][0]) for answer in answers))


def is_public(address: str) -> bool:
    """Whether an address is anybody's on the internet: not private, loopback, link-local, shared or reserved."""
    ip = _unwrapped(address)
    return ip is not None and ip.is_global and not ip.is_multicast


def host_of(url: str) -> str:
    """The host of a URL for a message."""
    try:
        return endpoint(url).netloc
    except PullError:
        return ascii(url)[:100]


def _is_loopback(address: str) -> bool:
    ip = _unwrapped(address)
    return ip is not None and ip.is_loopback


def _unwrapped(address: str) -> Address | None:
    """The address, or the IPv4 address that an IPv6 one carries."""
    try:
        ip: Address = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return None
    if isinstance(ip, ipaddress.IPv6Address):
        carried = ip.ipv4_mapped or ip.sixtofour or (ip.teredo[1] if ip.teredo else None)
        if ip in _NAT64:
            carried = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
        return carried or ip
    return ip
