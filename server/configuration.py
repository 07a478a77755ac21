"""What the machine's owner chose for the server, as one frozen value."""

import ipaddress
import re
from dataclasses import dataclass

from llamay.errors import UsageError
from llamay.serve.engine import Bounds
from llamay.server.log import FORMS

PORT = 11435
MOST_BODY = 32 << 20  # bytes of a request's JSON
DRAIN = 20.0  # seconds that running requests have after SIGTERM
PATIENCE = 10.0  # seconds in which a request's header has to come
NO_ORIGIN = "null"  # what browsers send for a file, and for a sandboxed frame of any site
ORIGIN = re.compile(r"\*|[a-z][a-z0-9+.-]*://[^/\s]+")

UNITS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
PART = re.compile(r"(\d{1,12}(?:\.\d{1,9})?)(ns|us|µs|ms|s|m|h)")
SECONDS = re.compile(r"\d{1,12}(?:\.\d{1,9})?")
LIFETIME = 3e9  # seconds; dates stay dates below it
DURATION = re.compile(rf"(?:{PART.pattern})+")


@dataclass(frozen=True, slots=True)
class Configuration:
    """Every choice, with its default."""

    host: str = "127.0.0.1"
    port: int = PORT
    batch: int = 16  # sequences a step
    concurrency: int = 32  # requests that are admitted
    queue: int = 128  # requests that wait
    chunk: int = 128  # prompt tokens a step
    keep_alive: float | None = 300.0  # seconds that an idle model stays loaded; None: for good
    loaded: int = 1  # models at once
    contexts: int = 64  # kept for clients; the least recently used unpinned one goes first
    pinned: int = 0  # of them, those that one client may pin; 0: half
    api_key: str = ""
    origins: tuple[str, ...] = ()  # web pages that may call, `*` for all
    hosts: tuple[str, ...] = ()  # names that the Host header may have, besides those of this machine's loopback
    embed: str = ""  # the model that embeds where none is named
    rerank: str = ""
    body: int = MOST_BODY
    drain: float = DRAIN
    per_client: int = 0  # requests under way of one address; 0: half of all for other machines, no bound for this one
    patience: float = PATIENCE
    log: str = "text"  # or json, or none

    def __post_init__(self) -> None:
        for name in ("batch", "concurrency", "queue", "chunk", "loaded", "contexts"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}; it may be 1 or more")
        for name in ("per_client", "pinned"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} is {getattr(self, name)}; it may be 1 or more, or 0 for the default")
        if self.log not in FORMS:
            raise UsageError(f"log is {self.log!r}; it may be {', '.join(FORMS)}")
        if NO_ORIGIN in self.origins:
            raise UsageError(
                "origins holds null, which a sandboxed frame of any site sends; "
                "serve the page from an address and name that, as in http://localhost:8000"
            )
        odd = next((origin for origin in self.origins if not ORIGIN.fullmatch(origin)), None)
        if odd is not None:
            raise UsageError(f"origins holds {odd[:100]!r}; expected as in https://chat.example:8080, without a path, or *")
        if not 0 <= self.port <= 65535:
            raise UsageError(f"the port is {self.port}; it may be 0 (any free one) to 65535")

    @property
    def bounds(self) -> Bounds:
        """What the engine takes on.  The site bounds how many are under way; in the queue all of them may be for a moment."""
        running = min(self.batch, self.concurrency)
        return Bounds(
            waiting=self.places, running=running, chunk=self.chunk, loaded=self.loaded, keep_alive=self.keep_alive
        )

    @property
    def threads(self) -> int:
        """Of waitress: one a request that is admitted or waits, and some for those who only look."""
        return self.places + 16

    @property
    def places(self) -> int:
        """Requests that may be under way."""
        return self.concurrency + self.queue

    @property
    def most_pinned(self) -> int:
        """Contexts that one client's address may have pinned."""
        return self.pinned or max(1, self.contexts // 2)

    @property
    def public(self) -> bool:
        """Whether other machines can reach it."""
        return not loopback(self.host)

    def places_of(self, address: str) -> int | None:
        """Requests that may be under way of one client's address; None: as many as there are places."""
        if self.per_client:
            return self.per_client
        return None if loopback(address) else max(1, self.places // 2)


def loopback(name: str) -> bool:
    """Whether a host name or address means this machine and no other."""
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        found = ipaddress.ip_address(name)
    except ValueError:
        return False
    inner = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (inner or found).is_loopback


def address(text: str) -> tuple[str, int]:
    """Host and port of `HOST:PORT`, `:PORT`, `HOST` or `[IPv6]:PORT`; raises UsageError."""
    host, port = text, str(PORT)
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise UsageError(f"-addr is {text!r}; expected [IPv6]:PORT")
        port = rest[1:] or port
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise UsageError(f"-addr is {text!r}; expected HOST:PORT with a port up to 65535")
    return host or "127.0.0.1", int(port)


def names(text: str | None) -> tuple[str, ...]:
    """The parts of a list by comma, in lower case."""
    return tuple([part.strip().lower() for part in (text or "").split(",") if part.strip()])


def duration(value: str | float) -> float | None:
    """Seconds of `5m`, `1h30m`, `90` or 90; None, for good, where it is negative or a lifetime.  Raises UsageError."""
    if isinstance(value, int | float):
        seconds, negative = value, value < 0
    else:
        digits, negative = value.strip().removeprefix("-"), value.strip().startswith("-")
        if DURATION.fullmatch(digits):
            seconds = sum(float(count) * UNITS[unit] for count, unit in PART.findall(digits))
        elif SECONDS.fullmatch(digits):
            seconds = float(digits)
        else:
            raise UsageError(f"{value[:60]!r} is no time; expected seconds, or as in 5m, 1h30m or -1")
    return None if (negative and seconds) or not seconds < LIFETIME else float(seconds)
