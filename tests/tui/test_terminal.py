"""`llamay tui` in a real terminal (tmux) against a real server: it answers, forks, survives the server, and leaves."""

import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from llamay.tui import recording
from llamay.tui.moment import Lost, Snapshot

TINY = Path(__file__).parents[1] / "data" / "models" / "llama-gqa.f16.gguf"

IN_CI = bool(os.environ.get("LLAMAY_REQUIRE_WEBGPU"))  # where nothing may be missing
pytestmark = [
    pytest.mark.skipif(shutil.which("tmux") is None and not IN_CI, reason="tmux is not installed"),
    pytest.mark.timeout(900),  # three processes that load what they need, where others compute
]


class Screen:
    """A terminal of its own: keys in, lines out."""

    def __init__(self, folder: Path, environ: dict[str, str]) -> None:
        self._command = ["tmux", "-S", str(folder / "socket"), "-f", os.devnull]
        self._environ = environ

    def start(self, command: str, columns: int = 100, lines: int = 30) -> None:
        words = ["new-session", "-d", "-s", "one", "-x", str(columns), "-y", str(lines), command]
        subprocess.run([*self._command, *words], check=True, env=self._environ)

    def keys(self, *keys: str) -> None:
        subprocess.run([*self._command, "send-keys", "-t", "one", *keys], check=True)

    def escape(self) -> None:
        """Out of a field, until the keys act on what is shown.  Its byte begins other keys too: what comes soon after it counts as one of them."""
        self.gone("q Quit")
        self.keys("Escape")
        self.until("q Quit")

    def resize(self, columns: int, lines: int) -> None:
        subprocess.run([*self._command, "resize-window", "-t", "one", "-x", str(columns), "-y", str(lines)], check=True)

    def text(self) -> str:
        found = subprocess.run([*self._command, "capture-pane", "-p", "-t", "one"], capture_output=True, text=True)
        return found.stdout

    def until(self, pattern: str, seconds: float = 120.0) -> str:
        end = time.monotonic() + seconds
        while not re.search(pattern, text := self.text()):
            assert time.monotonic() < end, f"no {pattern!r} in\n{text}"
            time.sleep(0.1)
        return text

    def gone(self, text: str, seconds: float = 120.0) -> None:
        """Waits until the screen shows `text` no more: a message may come before what it tells of is drawn."""
        end = time.monotonic() + seconds
        while text in (shown := self.text()):
            assert time.monotonic() < end, f"{text!r} is still in\n{shown}"
            time.sleep(0.1)

    def over(self, seconds: float = 120.0) -> bool:
        """Whether the program has left, and the terminal with it."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if subprocess.run([*self._command, "has-session", "-t", "one"], capture_output=True).returncode:
                return True
            time.sleep(0.1)
        return False

    def close(self) -> None:
        subprocess.run([*self._command, "kill-server"], capture_output=True)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    folders = {f"LLAMAY_{name}": str(tmp_path / name.lower()) for name in ("MODELS", "CONTEXTS", "CACHE")}
    made = {**os.environ, **folders, "TERM": "xterm-256color", "PYTHONUNBUFFERED": "1"}
    for name in ("COLUMNS", "LINES"):  # the terminal's size, whatever that of the tests is said to be
        made.pop(name, None)
    return made


@pytest.fixture
def screen(tmp_path: Path, environ: dict[str, str]) -> Iterator[Screen]:
    made = Screen(tmp_path, environ)
    yield made
    made.close()


def serve(port: int, environ: dict[str, str]) -> subprocess.Popen[bytes]:
    words = ["serve", str(TINY), "-addr", f"127.0.0.1:{port}", "-log", "none", "-device", "numpy"]
    return subprocess.Popen([sys.executable, "-m", "llamay", *words], env=environ, stderr=subprocess.DEVNULL)


def free_port() -> int:
    """One that no system gives to a connection while the server is away."""
    while True:
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("127.0.0.1", random.randrange(11_000, 30_000)))
            return int(found.getsockname()[1])


def test_a_session_against_a_server_that_dies_and_returns(screen: Screen, environ: dict[str, str], tmp_path: Path) -> None:
    port = free_port()
    server = serve(port, environ)
    try:
        screen.start(f"{sys.executable} -m llamay tui -url http://127.0.0.1:{port} -record {tmp_path}/session.zst")
        screen.until("llama-gqa")
        screen.until("enter sends")
        screen.keys("hello", "Enter")
        screen.until(r"\d+ tokens · ttft")
        screen.escape()
        screen.keys("f")
        screen.until(r"● ctx_\w{6}")
        screen.escape()
        screen.keys("4")
        screen.until(r"└ ctx_\w{2}")
        screen.keys("3")
        screen.until(r"page 0:.*owners")
        for columns, lines in ((40, 10), (120, 40), (60, 15), (100, 30)):
            screen.resize(columns, lines)
        screen.until("saved")
        server.send_signal(signal.SIGKILL)
        server.wait()
        screen.until("DISCONNECTED")
        server = serve(port, environ)
        screen.gone("DISCONNECTED")
        screen.keys("8")  # where notices stay that went by
        for said in ("forked as ctx_", "disconnected: ", "answers again"):
            screen.until(said)
        screen.keys("q")
        assert screen.over()
    finally:
        server.kill()
        server.wait()
    words = ["tui", "-replay", f"{tmp_path}/session.zst", "-plain"]
    said = subprocess.run([sys.executable, "-m", "llamay", *words], capture_output=True, text=True, timeout=120, env=environ)
    assert said.returncode == 0 and "disconnected" in said.stdout, said  # a line a second: the rest may have gone by between two
    news = [line.news for line in recording.read(tmp_path / "session.zst")[1]]
    moments = [moment for moment in news if isinstance(moment, Snapshot)]
    assert any(len(model.contexts) == 2 for moment in moments for model in moment.models)
    assert any(isinstance(moment, Lost) for moment in news)


def test_an_engine_in_this_process_answers(screen: Screen) -> None:
    screen.start(f"{sys.executable} -m llamay tui -m {TINY}")
    screen.until("enter sends")
    screen.keys("hello", "Enter")
    screen.until(r"\d+ tokens · ttft")
    screen.escape()
    screen.keys("5")
    screen.until("done .* tiny|done .*llama-gqa|done")
    screen.keys("q")
    assert screen.over()
