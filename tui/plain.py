"""Plain: one line a second instead of a screen, for screen readers, logs and pipes."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

from llamay.client import PATIENCE
from llamay.errors import NoServer
from llamay.tui import words
from llamay.tui.history import History
from llamay.tui.moment import Lost, News, Snapshot
from llamay.tui.source import Source

EVERY = 1.0  # seconds between two lines
QUIET = 1.0  # seconds of silence that nobody needs to be told of

Write = Callable[[str], None]


def run(source: Source, write: Write, stop: threading.Event, hear: Callable[[News], None] = lambda news: None) -> None:
    """Writes lines until `stop` is set, or a recording is over; `hear` gets everything, for a recording.

    A server that gives no sign for PATIENCE seconds from the start is given up: NoServer.  One that goes away later is waited for.
    """
    history, due, lost = History(), 0.0, ""
    answered, given_up = threading.Event(), threading.Event()

    def heard(news: News) -> None:
        nonlocal due, lost
        hear(news)
        if isinstance(news, Lost):
            done()
            if not lost:
                due = 0.0
                write(f"{clock(news.time)} disconnected: {words.line(news.reason)}")
            lost = news.reason
        if not isinstance(news, Snapshot):
            return
        done()
        answered.set()
        lost = ""
        for entry in history.hear(news):
            if entry.state == "failed":
                write(f"{clock(news.time)} request {entry.id} of {words.line(entry.model)} failed: {entry.outcome}")
        if news.time >= due:
            due = news.time + EVERY
            write(text(news, history))

    def look() -> None:
        if not answered.wait(PATIENCE) and not stop.is_set():
            given_up.set()
            stop.set()

    if source.live:
        threading.Thread(target=look, name="llamay-patience", daemon=True).start()
    with asking(source.where, write) as done:
        source.watch(heard, stop)
    answered.set()
    if given_up.is_set():
        told = f"the server at {source.where} did not answer within {PATIENCE:g} s; -url or LLAMAY_HOST names another"
        raise NoServer(lost or told)


@contextlib.contextmanager
def asking(where: str, write: Write) -> Iterator[Callable[[], None]]:
    """Says who is asked where it lasts until what is yielded is called: `12:03:20 asking http://127.0.0.1:11435 ...`."""
    over = threading.Event()

    def tell() -> None:
        if not over.wait(QUIET):
            write(f"{clock(time.time())} asking {words.line(where)} ...")

    telling = threading.Thread(target=tell, name="llamay-asking", daemon=True)
    telling.start()

    def done() -> None:
        over.set()
        telling.join()

    try:
        yield done
    finally:
        done()


def text(snapshot: Snapshot, history: History) -> str:
    """`12:03:20 smollm2 41.2 tok/s, 3 running, 0 waiting, pages 128 of 4096 (96 saved by sharing), 7 contexts`."""
    if not snapshot.models:
        what = f"loading {', '.join(snapshot.loading)}" if snapshot.loading else "no model is loaded"
        return f"{clock(snapshot.time)} {words.line(what)}, {snapshot.waiting} waiting"
    parts = []
    for model in snapshot.models:
        speed = history.rates[model.name].decode
        used, all = sum(group.used for group in model.pages), sum(group.pages for group in model.pages)
        saved = sum(group.saved for group in model.pages)
        running = len({one.id for one in model.requests if one.state != "waiting"})
        shared = f" ({saved} saved by sharing)" if saved else ""
        contexts = f"{len(model.contexts)} context{'' if len(model.contexts) == 1 else 's'}"
        parts.append(
            f"{words.line(model.name)} {speed:.1f} tok/s, {running} running, {model.waiting} waiting, "
            f"pages {used} of {all}{shared}, {contexts}"
        )
    return f"{clock(snapshot.time)} {'; '.join(parts)}"


def clock(at: float) -> str:
    """The time of day."""
    return time.strftime("%H:%M:%S", time.localtime(at))
