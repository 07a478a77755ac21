"""A command line of its own: an empty home, the NumPy executor, and a standard input made of text."""

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llamay import cli

DATA = Path(__file__).parents[1] / "data"

Run = Callable[..., int]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and none of the caller's settings but the backend's requirement."""
    for name in list(os.environ):
        if name.startswith("LLAMAY_") and name != "LLAMAY_REQUIRE_WEBGPU":
            monkeypatch.delenv(name)
    for name, folder in (("HOME", ""), ("XDG_CONFIG_HOME", "config"), ("XDG_CACHE_HOME", "cache")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.setenv("LLAMAY_BACKEND", "numpy")
    return tmp_path


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Ctrl-C works, even where the tests were started with it ignored, as a background shell does."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


class Terminal(io.TextIOWrapper):
    """A standard input that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def llamay(home: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command line with the given text piped in, or typed where `typed` is given."""

    def run(*words: str, piped: str = "", typed: str | None = None) -> int:
        made = io.TextIOWrapper if typed is None else Terminal
        text = piped if typed is None else typed
        monkeypatch.setattr(sys, "stdin", made(io.BytesIO(text.encode()), encoding="utf-8"))
        return cli.main(words)

    return run


@pytest.fixture
def tiny() -> Path:
    """A llama of two layers whose tokenizer has 320 tokens."""
    return DATA / "models" / "llama-gqa.f16.gguf"
