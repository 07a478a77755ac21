"""A Client of a running llamay server, as the command line and the terminal interface need it."""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import urlsplit

from llamay.errors import LlamayError, NoServer, Refused, SettingsError
from llamay.settings import Settings

if TYPE_CHECKING:
    import httpx

PORT = 11435
CONNECT = 5.0  # seconds until a server that does not answer counts as none
PATIENCE = 60.0  # seconds for one answer: a step of a large model may have to end before
OPENED = ("connection.connect_tcp.complete", "connection.start_tls.complete")  # as httpx tells of a connection
EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}  # where one listens, and where that is reached


@dataclass(frozen=True, slots=True)
class Event:
    """One server-sent event; `name` is empty where the server gave it none."""

    name: str
    data: Any


class Line:
    """The connection of one stream, which another thread may end while nothing comes; the reader gets NoServer then."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._cut = False
        self._lock = threading.Lock()

    def opened(self, connection: "socket.socket | None") -> None:
        """There is a connection."""
        with self._lock:
            self._socket = connection
            cut = self._cut
        if cut:
            self.cut()

    def cut(self) -> None:
        """Ends it."""
        with self._lock:
            self._cut, connection = True, self._socket
        if connection is not None:
            with contextlib.suppress(OSError):  # it is over already
                connection.shutdown(socket.SHUT_RDWR)


@dataclass(frozen=True, slots=True)
class Client:
    """Speaks JSON and server-sent events.  Everything raises NoServer where nobody answers, Refused where one says no."""

    base: str  # URL without a final slash
    key: str = ""

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """The client of the server that the settings name."""
        return cls(url(settings.host), settings.api_key)

    def get(self, path: str) -> Any:
        """The JSON at a path."""
        return self._asked("GET", path)

    def post(self, path: str, body: Any) -> Any:
        """The JSON of an answer to a JSON; None for an empty one."""
        return self._asked("POST", path, body)

    def delete(self, path: str, body: Any = None) -> Any:
        """Has something taken away."""
        return self._asked("DELETE", path, body)

    def events(self, path: str, body: Any = None, line: "Line | None" = None) -> Iterator[Event]:
        """The events of a stream as they come, asked for with a body or without, until the server ends it or [DONE]."""
        for name, data in _events(self._lines(path, body, line)):
            yield Event(name, self._json(path, data))

    def values(self, path: str, body: Any = None) -> Iterator[Any]:
        """The JSON of each line of a stream as it comes."""
        yield from (self._json(path, line) for line in self._lines(path, body, None) if line)

    @contextlib.contextmanager
    def understood(self) -> Iterator[None]:
        """Refused where an answer that is read within has another shape than llamay's."""
        try:
            yield
        except LlamayError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise Refused(f"{self.base} answers otherwise than llamay's server does, so it is none") from error

    def _lines(self, path: str, body: Any, line: "Line | None") -> Iterator[str]:
        method = "GET" if body is None else "POST"

        def trace(event: str, found: dict[str, Any]) -> None:  # before there is a reply: it may never come
            if line is not None and event in OPENED:
                line.opened(found["return_value"].get_extra_info("socket"))

        with self._open(None) as client, self._heard():
            with client.stream(method, path, json=body, extensions={"trace": trace}) as reply:
                if not reply.is_success:
                    reply.read()
                    raise self._refusal(reply)
                yield from reply.iter_lines()

    def _asked(self, method: str, path: str, body: Any = None) -> Any:
        with self._open(PATIENCE) as client, self._heard():
            reply = client.request(method, path, json=body)
            if not reply.is_success:
                raise self._refusal(reply)
            return self._json(path, reply.content) if reply.content else None

    def _json(self, path: str, text: str | bytes) -> Any:
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise Refused(f"{self.base}{path} answers with no JSON, so that is no llamay server") from None

    def _open(self, patience: float | None) -> "httpx.Client":
        import httpx

        headers = {"authorization": f"Bearer {self.key}"} if self.key else {}
        timeout = httpx.Timeout(patience, connect=CONNECT)
        secure = self.base.startswith("https:")  # reading the certificates takes 50 ms
        return httpx.Client(base_url=self.base, headers=headers, timeout=timeout, verify=secure, trust_env=False)

    @contextlib.contextmanager
    def _heard(self) -> Iterator[None]:
        """Says in llamay's words that nobody answers."""
        import httpx

        try:
            yield
        except (httpx.ConnectError, httpx.ConnectTimeout) as error:
            raise NoServer(
                f"no server answers at {self.base}; `llamay serve` starts one, LLAMAY_HOST=HOST:PORT names another"
            ) from error
        except httpx.TransportError as error:
            raise NoServer(f"the server at {self.base} broke off: {error or type(error).__name__}") from error

    def _refusal(self, reply: "httpx.Response") -> Refused:
        try:
            error = reply.json()["error"]
            words = str(error["message"] if isinstance(error, dict) else error)
        except (ValueError, KeyError, TypeError):
            words = f"it answered {reply.status_code} {reply.reason_phrase}"
        hint = "; LLAMAY_API_KEY holds the key that is sent" if reply.status_code == 401 else ""
        return Refused(f"{self.base}: {words}{hint}")


def url(host: str) -> str:
    """The URL of `HOST:PORT`, `HOST`, `[IPv6]:PORT` or a URL; raises SettingsError."""
    try:
        parts = urlsplit(host if "://" in host else f"http://{host}")
        name, port = parts.hostname, parts.port
    except ValueError as error:
        raise SettingsError(f"host is {host!r}: {error}; expected HOST:PORT") from None
    if parts.scheme not in ("http", "https") or not name:
        raise SettingsError(f"host is {host!r}; expected HOST:PORT or a URL")
    name = EVERYWHERE.get(name, f"[{name}]" if ":" in name else name)
    usual = None if "://" in host else PORT
    port = usual if port is None else port
    return f"{parts.scheme}://{name}{'' if port is None else f':{port}'}{parts.path.rstrip('/')}"


def _events(lines: Iterator[str]) -> Iterator[tuple[str, str]]:
    """Names and data of server-sent events; comments, which only keep the connection, are left out."""
    name, data = "", ""
    for line in lines:
        field, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if field == "event":
            name = value
        elif field == "data":
            data += value
        elif not line:
            if data == "[DONE]":
                return
            if data:
                yield name, data
            name, data = "", ""
