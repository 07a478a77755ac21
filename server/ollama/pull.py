"""POST /api/pull: gets a model into the store.  Whoever asks for the same one at the same time hears of the same pull."""

import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import falcon

from llamay.errors import LlamayError, UsageError
from llamay.serve.models import Models
from llamay.server import bodies, failures, replies
from llamay.server.ollama import lines, named, wire
from llamay.server.site import Site
from llamay.store import names, sources
from llamay.store.network import Network
from llamay.store.pull import pull
from llamay.store.sources import HubModel, IndexFile, RegistryModel, Source

POLL = 0.1  # seconds between two looks at a pull, and two lines about one transfer
SHORT = re.compile(r"\b[0-9a-f]{12}\b")


class Abandoned(LlamayError):
    """Everybody who waited for a pull went away; what was received is kept, and a later pull goes on from there."""

    http_status = 499


class Pull:
    """Starts a pull, or joins one that is under way."""

    takes: ClassVar = {"POST": wire.Named}

    def __init__(self, site: Site) -> None:
        self._site = site
        self._under_way: dict[str, Pulling] = {}
        self._lock = threading.Lock()

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        body = bodies.read(request, wire.Named, self._site.configuration.body)
        source = source_of(named.required(body.called))
        pulling = self._join(source)
        gone = replies.gone(request)
        if body.streamed:
            leave = Once(pulling.leave)
            replies.stream(response, told(pulling, gone), lines.TYPE, leave)
            return
        try:
            for _ in pulling.listen(gone):
                pass
        finally:
            pulling.leave()
        replies.json(response, {"status": "success"})

    def _join(self, source: Source) -> "Pulling":
        with self._lock:
            self._under_way = {text: one for text, one in self._under_way.items() if not one.over}
            found = self._under_way.get(source.text)
            if found is None or not found.enter():
                found = self._under_way[source.text] = Pulling(self._site.models, source)
            return found


def source_of(name: str) -> Source:
    """What a name from outside may be pulled from: neither a file of this machine nor an address of the client's choice."""
    source = sources.named(name)
    allowed = isinstance(source, HubModel | IndexFile) or (
        isinstance(source, RegistryModel) and source.name.host == names.DEFAULT_HOST
    )
    if not allowed:
        raise UsageError(
            f"{ascii(name)[:200]} is not pulled for clients: they may name models of {names.DEFAULT_HOST}, "
            f"{names.HUB_HOST}/OWNER/REPO and pypi:DIST; on this machine `llamay pull` takes the rest"
        )
    return source


def told(pulling: "Pulling", gone: Callable[[], bool]) -> Iterator[bytes]:
    """A pull in lines; a failure is a line, and the end."""
    try:
        for status in pulling.listen(gone):
            yield lines.line(status)
    except LlamayError as error:
        yield lines.line(failures.of(error, "ollama").body)


class Once:
    """Calls a function the first time it is called."""

    def __init__(self, do: Callable[[], None]) -> None:
        self._do: Callable[[], None] | None = do

    def __call__(self) -> None:
        do, self._do = self._do, None
        if do is not None:
            do()


class Pulling:
    """One pull on a thread of its own, and everything it said.  It hears the pull as its Reporter."""

    def __init__(self, models: Models, source: Source) -> None:
        """Begins it, with one listener."""
        self._models, self._source = models, source
        self._changed = threading.Condition()
        self._said: list[dict[str, Any]] = [{"status": "pulling manifest"}]  # a transfer's last entry is replaced
        self._listeners = 1
        self._error: LlamayError | None = None
        self.over = False
        threading.Thread(target=self._work, name="llamay-pull", daemon=True).start()

    def enter(self) -> bool:
        """One listener more; False where it is over, or nobody was left to hear it."""
        with self._changed:
            if self.over or not self._listeners:
                return False
            self._listeners += 1
            return True

    def leave(self) -> None:
        """One less; without any the pull ends."""
        with self._changed:
            self._listeners -= 1

    def listen(self, gone: Callable[[], bool]) -> Iterator[dict[str, Any]]:
        """What was said, and what is said until the end.  Raises what made the pull fail, and Abandoned."""
        at, last = 0, None
        while True:
            with self._changed:
                if not self.over and len(self._said) == at:
                    self._changed.wait(POLL)
                news, over, error = self._said[max(0, at - 1) :], self.over, self._error
                at = len(self._said)
            for status in news:
                if status != last:
                    yield status
                last = status
            if over:
                if error is not None:
                    raise error
                return
            if gone():
                raise Abandoned("the client went away")
            if news:
                time.sleep(POLL)

    # what the pull tells

    def say(self, text: str) -> None:
        """A wait, a retry, a step."""
        self._add({"status": text})

    def begin(self, label: str, total: int | None, done: int) -> None:
        """A transfer begins."""
        if label.startswith("verifying "):
            self._add({"status": "verifying sha256 digest"})
            return
        short = SHORT.search(label)
        status = f"pulling {short[0]}" if short else f"pulling {label}"
        # Where the digest is not known before the end, that of the label tells this transfer from others.
        digest = short[0] if short else hashlib.sha256(label.encode()).hexdigest()
        self._add({"status": status, "digest": f"sha256:{digest}", "total": total or 0, "completed": done})

    def advance(self, count: int) -> None:
        """Bytes came, or had to be dropped."""
        with self._changed:
            if not self._listeners:
                raise Abandoned("everybody who waited for the pull went away")
            last = self._said[-1]
            if "completed" in last:
                self._said[-1] = {**last, "completed": max(0, last["completed"] + count)}

    def end(self) -> None:
        """The transfer is over."""

    def _add(self, status: dict[str, Any]) -> None:
        with self._changed:
            if self._said[-1].get("digest") == status.get("digest") is not None:
                self._said[-1] = status  # the same transfer, now that its size is known
            else:
                self._said.append(status)
            self._changed.notify_all()

    def _work(self) -> None:
        error: LlamayError | None = None
        try:
            hosts, store = sources.Hosts.of(os.environ), self._models.store
            pulled = pull(store, self._source, hosts=hosts, network=Network(), reporter=self)
            if pulled.fresh:
                self._models.engine.keep(str(pulled.model.name), 0.0)  # what had the name before is not what has it now
            self._add({"status": "writing manifest"})
            self._add({"status": "success"})
        except LlamayError as failure:
            error = failure
        except Exception as failure:  # a fault of the program: whoever waits must hear of it
            error = LlamayError(f"pulling {self._source.text} failed: {type(failure).__name__}: {failure}")
            error.__cause__ = failure
        with self._changed:
            self._error, self.over = error, True
            self._changed.notify_all()
