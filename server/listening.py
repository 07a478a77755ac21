"""Listening sockets: waitress with bounds on time, so that a client that drips, stalls or idles holds nobody else up."""

import copy
import errno
import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import falcon
import msgspec
from waitress import wasyncore
from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser
from waitress.server import TcpWSGIServer
from waitress.task import ErrorTask, ThreadedTaskDispatcher, WSGITask

from llamay.errors import LlamayError
from llamay.server import failures, replies
from llamay.server.configuration import Configuration
from llamay.server.guards import opens
from llamay.server.visits import LOCAL

SLOWEST = 16 << 10  # bytes of a body a second, on the average, after the configured patience
STALL = 60.0  # seconds in which a client takes nothing of what waits for it
IDLE = 60  # seconds that a connection without a request is kept
LOOK = 1.0  # seconds between two looks at all connections
LINGER = 2.0  # seconds that the last bytes have in the end
MOST_HEADER = 64 << 10  # bytes
MOST_AHEAD = 1 << 20  # bytes that are written ahead of a slow reader; they stay in memory
SPARE = 64  # connections more than threads
BLOBS = "/api/blobs/"  # paths under which files of models are sent
MOST_BLOB = 64 << 30  # bytes

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class Job(WSGITask):
    """A request for the application."""

    def get_environment(self) -> dict[str, Any]:
        """WSGI's, with this machine's end of the connection."""
        environ: dict[str, Any] = super().get_environment()
        environ[LOCAL] = self.channel.local
        return environ


class Refusal(ErrorTask):
    """What waitress itself refuses, in the words of the family that was spoken to."""

    def execute(self) -> None:
        """Writes the whole reply."""
        code, words = self.request.error.code, self.request.error.body
        told = {
            400: f"this is no HTTP request: {words}",
            413: f"the body has more than {self.channel.adj.max_request_body_size} bytes, which is all that is taken",
            431: f"the headers have more than {MOST_HEADER} bytes, which is all that is taken",
            501: "this Transfer-Encoding is not supported; chunked is",
        }.get(code, "internal error")
        headers = getattr(self.request, "headers", {})
        family = failures.family_at(_path(self.request), "ANTHROPIC_VERSION" in headers)
        failure = failures.of(falcon.HTTPError(code, description=told), family, replies.made("req_"))
        body = msgspec.json.encode(failure.body)
        self.status = f"{code} {self.request.error.reason}"
        self.response_headers += [("Content-Type", replies.JSON), *failure.headers.items()]
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class Parser(HTTPRequestParser):
    """A request as it comes.  Files of models may be large where no page sends them and the key is right: they go to disk
    before the application is asked.
    """

    def __init__(self, adj: Any) -> None:
        super().__init__(adj)
        self.adj: Any = adj

    def parse_header(self, header_plus: bytes) -> None:
        """Reads the header."""
        super().parse_header(header_plus)
        made, given = self.adj.made, self.headers
        if self.path.startswith(BLOBS) and "ORIGIN" not in given and opens(
            made.api_key, given.get("AUTHORIZATION", ""), given.get("X_API_KEY", "")
        ):  # fmt: skip
            self.adj = copy.copy(self.adj)
            self.adj.max_request_body_size = MOST_BLOB


class Channel(HTTPChannel):
    """One connection."""

    parser_class = Parser
    task_class = Job
    error_task_class = Refusal

    def __init__(self, server: Any, sock: Any, addr: Any, adj: Any, map: Any = None) -> None:
        self.local = sock.getsockname()[0]
        self.begun = time.monotonic()  # when the request that is being received began
        super().__init__(server, sock, addr, adj, map=map)

    def received(self, data: bytes) -> bool:
        """Takes bytes of a request."""
        before = self.request
        found: bool = super().received(data)
        if self.request is not before:
            self.begun = time.monotonic()
        return found

    def overdue(self, patience: float) -> bool:
        """Whether a request comes too slowly, or its reply is not taken."""
        if self.total_outbufs_len and time.time() - self.last_activity > STALL:
            return True
        if self.request is None or self.requests:
            return False
        return bool(time.monotonic() - self.begun > patience + self.request.body_bytes_received / SLOWEST)

    @property
    def spare(self) -> bool:
        """Whether nobody waits for anything of it."""
        return not self.requests and not self.total_outbufs_len


class Listener(TcpWSGIServer):
    """One socket that takes connections."""

    channel_class = Channel
    patience = 10.0

    def maintenance(self, now: float) -> None:
        """Ends connections that are overdue, and those that nobody used for long."""
        for channel in list(self.active_channels.values()):
            if channel.overdue(self.patience):
                channel.handle_close()
            elif channel.spare and channel.request is None and channel.last_activity < now - self.adj.channel_timeout:
                channel.will_close = True

    def readable(self) -> bool:
        """Whether it takes connections; where there are too many, those go that have waited longest for a request."""
        if self.accepting and len(self._map) >= self.adj.connection_limit:
            spare = [channel for channel in self.active_channels.values() if channel.spare]
            spare.sort(key=lambda channel: (channel.request is not None, channel.begun))
            for channel in spare[: max(1, SPARE // 4)]:
                channel.handle_close()
        found: bool = super().readable()
        return found


class Listening:
    """All sockets of one server, their thread pool, and their loop."""

    def __init__(self, application: Application, configuration: Configuration) -> None:
        """Binds; raises LlamayError where that cannot be."""
        made = configuration
        self._map: dict[int, Any] = {}
        self._over, self._begun = threading.Event(), False
        self._dispatcher = ThreadedTaskDispatcher()
        self._listeners: list[Listener] = []
        try:
            adjustments = Adjustments(
                host=f"[{made.host}]" if ":" in made.host else made.host,
                port=made.port,
                threads=made.threads,
                connection_limit=made.threads + SPARE,
                channel_request_lookahead=1,  # else a client that went away is noticed only with the next write
                max_request_body_size=made.body + 4096,
                max_request_header_size=MOST_HEADER,
                outbuf_high_watermark=MOST_AHEAD,
                outbuf_overflow=2 * MOST_AHEAD,
                channel_timeout=IDLE,
                cleanup_interval=int(LOOK),
                clear_untrusted_proxy_headers=True,
                log_socket_errors=False,
                ident=None,
                expose_tracebacks=False,
            )
            adjustments.made = made  # for the parser
            for family, type, protocol, where in adjustments.listen:
                port = self._listeners[0].effective_port if self._listeners else where[1]
                info = (family, type, protocol, (where[0], int(port), *where[2:]))
                listener = Listener(
                    application, self._map, True, None, dispatcher=self._dispatcher, adj=adjustments, sockinfo=info
                )
                listener.patience = made.patience
                self._listeners.append(listener)
        except (OSError, ValueError) as error:
            wasyncore.close_all(self._map, ignore_all=True)
            raise LlamayError(
                f"{made.host}:{made.port} cannot be listened on: {_why(error)}; -addr HOST:PORT takes another"
            ) from error
        self._dispatcher.set_thread_count(made.threads)

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listeners[0].effective_port)

    def run(self) -> None:
        """Takes and answers requests until `close` is called."""
        self._begun = True
        try:
            while not self._over.is_set():
                wasyncore.loop(timeout=LOOK, use_poll=True, map=self._map, count=1)
        finally:
            self._end()

    def refuse(self) -> None:
        """Takes no more connections; those that are there go on."""
        for listener in self._listeners:
            wasyncore.dispatcher.close(listener)

    def close(self) -> None:
        """Takes no more, sends what is written already, and ends `run`.  Any other thread may call it; safe twice."""
        self.refuse()
        until = time.monotonic() + LINGER
        while self._begun and not self._over.is_set() and time.monotonic() < until:
            left = [channel for channel in self._map.copy().values() if isinstance(channel, Channel)]
            if not left:
                break
            for channel in left:
                if not channel.requests:
                    channel.close_when_flushed = True
            self._wake()
            time.sleep(0.01)
        self._over.set()
        if self._begun:
            self._wake()
        else:
            self._end()

    def _wake(self) -> None:
        """Has the loop look again."""
        try:
            self._listeners[0].pull_trigger()
        except OSError:  # the loop has ended in the meantime
            return

    def _end(self) -> None:
        self._over.set()
        self._dispatcher.shutdown(timeout=LINGER)
        wasyncore.close_all(self._map, ignore_all=True)


def _path(request: Any) -> str:
    """The path as far as it is known: of headers that are too long waitress keeps no more than their beginning."""
    words = request.header_plus.split(b" ", 2)
    path = words[1].decode("latin-1") if len(words) == 3 else getattr(request, "path", "")
    return path.partition("?")[0] or "/v1"


def _why(error: OSError | ValueError) -> str:
    """In words, without numbers."""
    said = (error.strerror if isinstance(error, OSError) else None) or str(error).rstrip(".")
    other = ", perhaps by another `llamay serve` (`llamay ps` tells)" if getattr(error, "errno", 0) == errno.EADDRINUSE else ""
    return said + other
