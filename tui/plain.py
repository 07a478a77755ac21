"""Plain: one line a second instead of a screen, for screen readers, logs and pipes."""

import threading
import time
from collections.abc import Callable

from llamay.tui import words
from llamay.tui.history import History
from llamay.tui.moment import Lost, News, Snapshot
from llamay.tui.source import Source

EVERY = 1.0  # seconds between two lines


def run(source: Source, write: Callable[[str], None], stop: threading.Event, hear: Callable[[News], None] = lambda news: None) -> None:
    """Writes lines until `stop` is set, or a recording is over; `hear` gets everything, for a recording."""
    history, due, lost = History(), 0.0, False

    def heard(news: News) -> None:
        nonlocal due, lost
        hear(news)
        if isinstance(news, Lost) and not lost:
            lost, due = True, 0.0
            write(f"{clock(news.time)} disconnected: {words.line(news.reason)}")
        if not isinstance(news, Snapshot):
            return
        lost = False
        for entry in history.hear(news):
            if entry.state == "failed":
                write(f"{clock(news.time)} request {entry.id} of {words.line(entry.model)} failed: {entry.outcome}")
        if news.time >= due:
            due = news.time + EVERY
            write(text(news, history))

    source.watch(heard, stop)


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
