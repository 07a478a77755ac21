"""Writes docs/screens/*.svg: every screen of `llamay tui`, over a real server with a real model that others use at the same time.

    python docs/make_screens.py smollm2
    python docs/make_screens.py smollm2 bench log      # only these
"""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from textual.pilot import Pilot

from llamay.client import Client
from llamay.errors import LlamayError
from llamay.tui.app import NAMES, Terminal
from llamay.tui.chat import Chat
from llamay.tui.remote import Remote
from llamay.tui.rows import Rows

TARGET = Path(__file__).parent / "screens"
SIZE = (120, 36)
LONGEST = 120.0  # seconds of an answer
SYSTEM = "You are a helpful assistant who answers in two or three plain sentences, names its sources, and never makes up a figure. " * 3
QUESTIONS = ("Why is the sky blue?", "What is a tide?", "Name three rivers of Portugal.", "What is bread made of?")


@contextlib.contextmanager
def served(model: str, folder: Path) -> Iterator[tuple[Client, threading.Event]]:
    """A server of its own, and others that ask it things."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    words = ["serve", model, "-addr", f"127.0.0.1:{port}", "-log", "none", "-c", "2048"]
    environ = {**os.environ, "LLAMAY_CONTEXTS": str(folder / "contexts")}
    server = subprocess.Popen([sys.executable, "-m", "llamay", *words], env=environ)
    client, over = Client(f"http://127.0.0.1:{port}"), threading.Event()
    try:
        while True:
            with contextlib.suppress(LlamayError):
                client.get("/healthz")
                break
            time.sleep(0.2)
        for number, question in enumerate(QUESTIONS):
            threading.Thread(target=ask, args=(client, question, number, over), daemon=True).start()
        yield client, over
    finally:
        over.set()
        server.terminate()
        server.wait()


def ask(client: Client, question: str, number: int, over: threading.Event) -> None:
    """One user, who asks again and again, behind instructions that all share."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": question}]
    while not over.wait(0.5 * number):
        with contextlib.suppress(LlamayError):
            client.post("/v1/chat/completions", {"messages": messages, "max_tokens": 96, "seed": number, "ignore_eos": True})


async def until(pilot: Pilot[int], so: Callable[[], bool], seconds: float = 400.0) -> None:
    """Waits for something on the screen."""
    end = time.monotonic() + seconds
    while not so():
        if time.monotonic() > end:
            raise TimeoutError("a step of the session did not come about")
        await pilot.pause(0.1)


async def answered(app: Terminal, pilot: Pilot[int], count: int) -> None:
    """Waits for the answer to the question of that number; one that goes on and on is stopped."""
    conversation, end = app.query_one(Chat).conversation, time.monotonic() + LONGEST
    while len(conversation.turns) < count or conversation.waiting:
        if time.monotonic() > end and conversation.waiting:
            await pilot.press("escape", "x")
            end += LONGEST
        await pilot.pause(0.1)


async def converse(app: Terminal, pilot: Pilot[int]) -> None:
    """A question, a fork of its answer, and a question in the fork, twice."""
    conversation = app.query_one(Chat).conversation
    await until(pilot, lambda: app.snapshot is not None and bool(app.snapshot.models))
    await pilot.press(*"What is the sea?", "enter")
    await answered(app, pilot, 1)
    await pilot.press("escape", "f")
    await until(pilot, lambda: bool(conversation.head) and conversation.head != conversation.turns[1].context)
    await pilot.press(*"Say it in five words.", "enter")
    await answered(app, pilot, 2)
    await pilot.press("escape", "r")
    await answered(app, pilot, 3)


async def prepared(app: Terminal, pilot: Pilot[int], name: str, over: threading.Event) -> None:
    """What a screen needs so that there is something to see; `over` sends the others home before something is measured."""
    if name == "pages":
        await pilot.press("o", "o")
    elif name == "requests":
        await until(pilot, lambda: any(not entry.live for entry in app.history.entries))
        await pilot.press("end", "enter")
    elif name == "models":
        over.set()
        await pilot.press("i")
        await pilot.pause(8)
    elif name == "bench":
        await until(pilot, lambda: app.snapshot is None or not app.snapshot.running)
        await pilot.press("b")
        await until(pilot, lambda: bool(app.query_one("#results", Rows).table_rows))
    elif name == "log":
        await pilot.press("v")
        await until(pilot, lambda: len(app.query_one("#checks", Rows).table_rows) > 2)


async def shown(client: Client, over: threading.Event, folder: Path, wanted: list[str]) -> None:
    """A short session, and a picture of each screen that is wanted."""
    app = Terminal(Remote(client), folder)
    async with app.run_test(size=SIZE) as pilot:
        if set(wanted) & set(NAMES[:6]):
            await converse(app, pilot)
        else:
            over.set()
        for number, name in enumerate(NAMES, 1):
            if name not in wanted:
                continue
            await pilot.press("escape", str(number))
            await pilot.pause(1.5)
            await prepared(app, pilot, name, over)
            app.clear_notifications()
            await pilot.pause(1.0)
            (TARGET / f"{name}.svg").write_text(app.export_screenshot(title=f"llamay tui: {name}"), encoding="utf-8")
            print(f"{name}.svg", flush=True)


def main() -> int:
    """The model is the first word, the screens are the others: all where there is none."""
    TARGET.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, served(sys.argv[1], Path(folder)) as (client, over):
        asyncio.run(shown(client, over, Path(folder), sys.argv[2:] or list(NAMES)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
