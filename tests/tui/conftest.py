"""A source that follows a script, an application over it, and what its screen says as text."""

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual import app as textual_app
from textual import pilot as textual_pilot
from textual._context import active_app
from textual.events import Callback
from textual.message import Message
from textual.message_pump import MessagePump
from textual.pilot import Pilot

from llamay.tui.app import Terminal
from llamay.tui.header import Header
from llamay.tui.moment import (
    Answered,
    Asked,
    Group,
    Held,
    Installed,
    Kept,
    Lost,
    Model,
    News,
    Over,
    Parting,
    Piece,
    Progress,
    Request,
    Snapshot,
    Times,
)
from llamay.tui.source import Hear

NOW = 1_800_000_000.0
KEPT = ("ctx_aaaaaa11", "ctx_bbbbbb22", "ctx_cccccc33")


def moment(at: float = 0.0, *, generated: int = 10, running: bool = True) -> Snapshot:
    """A model with a conversation that forked, and requests in each state."""
    decoding = Request(7, "decode", 40, slot=0, context=4, cached=16, held=50, generated=generated, waited=0.002, seconds=1.5, client="someone", via="ollama")
    requests = (
        decoding,
        Request(8, "prefill", 400, context=5, cached=0, held=128, seconds=0.4),
        Request(9, "waiting", 30, waited=0.3, seconds=0.3),
    )
    pages = Group(64, 12, 4, 3, 45, ((4, 1, 3, 1, 0), (2, 1, 1, 0, 4), (2, 2, 1, 0, 4), (4, 4, 1, 0, 0), (4, 5, 1, 0, 0), (3, -1, 1, 1, -1), (45, -1, 0, 0, -1)))
    contexts = (
        Held(1, 96, own=(2,), shared=(4,), created=NOW - 60),
        Held(2, 90, parent=1, fork_point=64, own=(2,), shared=(4,), created=NOW - 30),
        Held(3, 64, parent=1, fork_point=64, own=(0,), shared=(4,), created=NOW - 20),
        Held(4, 50, own=(4,), shared=(0,), created=NOW),
        Held(5, 128, own=(4,), shared=(0,), created=NOW),
    )
    kept = (
        Kept(KEPT[0], "tiny", 96, created=NOW - 60, context=1),
        Kept(KEPT[1], "tiny", 90, parent=KEPT[0], fork_point=64, created=NOW - 30, context=2),
        Kept(KEPT[2], "tiny", 64, name="draft", parent=KEPT[0], fork_point=64, pinned=True, created=NOW - 20, context=3),
    )
    steps = 100 + int(40 * at)
    times = Times(steps, steps * 1e-4, steps * 4e-4, steps * 2e-2, steps * 2e-4, steps * 1e-4, 2000, 5000 + int(120 * at), 0)
    model = Model("tiny", "NumPy on 2 cores", 16, requests if running else (), 1 if running else 0, (pages,), contexts, times)
    ended = (
        Over(3, "tiny", "end", 20, 0, 30, 0.001, 0.2, 0.9, ended=NOW - 9, via="openai"),
        Over(4, "tiny", "OutOfMemory", 900, 0, 0, 0.5, 0.0, 0.0, ended=NOW - 7),
        Over(5, "tiny", "cancel", 20, 16, 12, 0.001, 0.02, 0.4, ended=NOW - 5),
    )
    return Snapshot(NOW + at, 100 + at, waiting=1, queue=128, finished=3, kv="f32", ended=ended, models=(model,), kept=kept)


class Scripted:
    """Tells what a test gives it, and remembers what it was asked to do."""

    live = True

    def __init__(self, *news: News, models: tuple[Installed, ...] = (Installed("tiny", 98_400_000, "Q4_1", "llama", "134.52M"),)) -> None:
        self.where = "http://127.0.0.1:11435"
        self.news = list(news)
        self.models = models
        self.asked: list[Any] = []
        self.pieces = ["The *sea* ", "is wide."]
        self.thoughts: list[str] = []
        self.hold = threading.Event()  # an answer ends once it is set
        self.hold.set()
        self.hear: Hear = lambda news: None

    def watch(self, hear: Hear, stop: threading.Event) -> None:
        self.hear = hear
        for news in self.news:
            hear(news)
            time.sleep(0.02)
        stop.wait()

    def answer(self, asked: Asked, stop: threading.Event) -> Iterator[Piece | Answered]:
        self.asked.append(asked)
        for thought in self.thoughts:
            yield Piece(asked.number, thought, thought=True)
        for piece in self.pieces:
            yield Piece(asked.number, piece)
        while not (self.hold.wait(0.02) or stop.is_set()):
            pass
        reason = "cancel" if stop.is_set() else "end"
        yield Answered(asked.number, f"ctx_answer{asked.number}", 20, 16, 9, 0.21, 0.2, reason)

    def fork(self, context: str, count: int = 1) -> tuple[str, ...]:
        self.asked.append(("fork", context, count))
        return tuple(f"ctx_fork{number}" for number in range(count))

    def rewind(self, context: str, to: int) -> None:
        self.asked.append(("rewind", context, to))

    def save(self, context: str, name: str) -> str:
        self.asked.append(("save", context, name))
        return name or "made up"

    def drop(self, context: str) -> None:
        self.asked.append(("drop", context))

    def diff(self, left: str, right: str) -> Parting:
        self.asked.append(("diff", left, right))
        return Parting(64, (90, 96), ("the cat sat", "the dog ran"), 4, (6, 6))

    def cancel(self, request: int) -> None:
        self.asked.append(("cancel", request))

    def installed(self) -> tuple[Installed, ...]:
        return self.models

    def load(self, model: str) -> None:
        self.asked.append(("load", model))

    def unload(self, model: str) -> None:
        self.asked.append(("unload", model))

    def delete(self, model: str) -> None:
        self.asked.append(("delete", model))

    def pull(self, name: str) -> Iterator[Progress]:
        self.asked.append(("pull", name))
        yield Progress("receiving", 100, 42)
        self.hold.wait(60)
        yield Progress("success")

    def spelled(self, model: str) -> str:
        return model

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def at_noon(monkeypatch: pytest.MonkeyPatch) -> None:
    """One time zone, and colours as usual."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("NO_COLOR", raising=False)
    time.tzset()


@pytest.fixture(autouse=True)
def no_idling(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a key Textual waits until the processor idles, which proves nothing; here until no widget has anything left to do."""
    dispatch = MessagePump._dispatch_message
    dealt_with = 0

    async def counted(pump: MessagePump, message: Message) -> None:
        nonlocal dealt_with
        asks = isinstance(message, Callback) and getattr(message.callback, "func", None) is not None
        dealt_with += not (asks and message.callback.func.__name__ == "decrement_counter")  # what `_wait_for_screen` sends
        await dispatch(pump, message)

    async def settled(*seconds: float) -> None:
        """What was sent to one may lead to more, for others: so until nothing comes of nothing."""
        pilot: Pilot[Any] = Pilot(active_app.get())
        for _ in range(3):  # a key takes so many turns to the application
            await asyncio.sleep(0)
        quiet = 0
        for _ in range(100):
            before = dealt_with
            await pilot._wait_for_screen()
            quiet = quiet + 1 if dealt_with == before else 0
            if quiet == 2:
                break

    monkeypatch.setattr(MessagePump, "_dispatch_message", counted)
    monkeypatch.setattr(textual_app, "wait_for_idle", settled)
    monkeypatch.setattr(textual_pilot, "wait_for_idle", settled)


Started = Callable[..., Any]


@pytest.fixture
def scripted() -> type[Scripted]:
    """The source."""
    return Scripted


@pytest.fixture
def moments() -> Callable[..., Snapshot]:
    """Makes snapshots."""
    return moment


@pytest.fixture
def started(tmp_path: Path) -> Started:
    """Runs an application over a source, once it has shown what the source told."""

    @asynccontextmanager
    async def start(source: Scripted, first: str = "chat", size: tuple[int, int] = (100, 30)) -> AsyncIterator[tuple[Terminal, Pilot[int]]]:
        app = Terminal(source, tmp_path, first)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: app.snapshot is not None or not source.news or any(isinstance(one, Lost) for one in source.news))
            await until(pilot, lambda: app.screen.has_class("small") or all((*app.pane.size, *app.query_one(Header).size)))
            await pilot.pause()
            yield app, pilot

    return start


async def until(pilot: Pilot[int], so: Callable[[], bool], seconds: float = 60.0) -> None:
    """Waits for something on the screen's thread."""
    end = time.monotonic() + seconds
    while not so():
        assert time.monotonic() < end, "it did not come about"
        await pilot.pause(0.02)


@pytest.fixture
def wait() -> Callable[..., Any]:
    """`until`."""
    return until


def screen_text(app: Terminal) -> list[str]:
    """The lines of the screen."""
    strips = app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip).rstrip() for strip in strips]


@pytest.fixture
def text() -> Callable[[Terminal], list[str]]:
    """`screen_text`."""
    return screen_text
