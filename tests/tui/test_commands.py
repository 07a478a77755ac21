"""Commands as processes of their own, the two screens that run them, and the command line of the terminal itself."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llamay import cli
from llamay.tui import commands

TINY = Path(__file__).parents[1] / "data" / "models" / "llama-gqa.f16.gguf"


def test_lines_come_and_a_failure_has_its_words() -> None:
    first, *_ = commands.lines(["version"], threading.Event())
    assert first.startswith("llamay ")
    with pytest.raises(commands.CommandFailed, match="no command nonsense"):
        list(commands.lines(["nonsense"], threading.Event()))


def test_a_stop_ends_the_process() -> None:
    """One that would go on for ever."""
    stop = threading.Event()
    told = commands.lines(["tui", "-plain", "-url", "http://127.0.0.1:9"], stop)
    assert "disconnected" in next(told)
    stop.set()
    assert list(told) == []


def test_plain_loads_the_model_that_is_named() -> None:
    stop = threading.Event()
    told = commands.lines(["tui", "-plain", "-m", str(TINY), "-device", "numpy"], stop)
    assert any("llama-gqa" in line and "pages 0 of" in line for line in told)
    stop.set()
    list(told)


def test_plain_ends_where_the_model_cannot_be_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cut.gguf").write_bytes(TINY.read_bytes()[:5000])
    assert cli.main(["tui", "-plain", "-m", str(tmp_path / "cut.gguf")]) == 3
    assert "llamay tui: cut: " in capsys.readouterr().err


def test_plain_says_what_it_looks_at_where_no_server_answers() -> None:
    words = [sys.executable, "-m", "llamay", "tui", "-plain"]
    with subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env={**os.environ, "LLAMAY_HOST": "127.0.0.1:9"}) as child:
        assert child.stderr is not None
        assert b"No server answers at http://127.0.0.1:9, so these are the models of this machine" in child.stderr.readline()
        child.kill()


@pytest.fixture
def mute() -> Iterator[str]:
    """The URL of a server that takes connections and answers none."""
    with socket.create_server(("127.0.0.1", 0)) as there:
        yield f"http://127.0.0.1:{there.getsockname()[1]}"


@pytest.mark.parametrize("named", [True, False])
def test_plain_says_which_server_is_waited_for(mute: str, named: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMAY_HOST", mute)
    stop = threading.Event()
    told = commands.lines(["tui", "-plain", *(["-url", mute] if named else [])], stop)
    assert next(told).endswith(f" asking {mute} ...")
    stop.set()
    assert list(told) == []


@pytest.mark.parametrize("refuses", [False, True])
def test_plain_gives_a_server_up_that_never_answers(
    mute: str, refuses: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    where = "http://127.0.0.1:9" if refuses else mute
    monkeypatch.setattr("llamay.tui.plain.PATIENCE", 0.1)
    assert cli.main(["tui", "-plain", "-url", where]) == 10
    told = capsys.readouterr().err
    assert where in told and (refuses or "did not answer within 0.1 s" in told)


def test_a_measurement_shows_its_bars_and_is_kept(started: Any, scripted: Any, moments: Any, text: Any, wait: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = iter((30.0, 41.5, 40.0))

    def lines(words: list[str], stop: threading.Event) -> Iterator[str]:
        rate = next(rates)
        found = {"model": "tiny", "device": "a device", "prefill": {"best": 10 * rate}, "decode": {"best": rate}, "ttft": {"best": 2 / rate}}
        yield from json.dumps(found, indent=1).splitlines()

    monkeypatch.setattr(commands, "lines", lines)

    async def test() -> None:
        async with started(scripted(moments(running=False)), "bench") as (app, pilot):
            await pilot.press("b")
            await wait(pilot, lambda: any("repetition 3 of 3" in line for line in text(app)) and bool(app.pane.query_one("#results").table_rows))
            await wait(pilot, lambda: all(part in "\n".join(text(app)) for part in ("415.0", "best 41.5")))
            assert "| tiny | a device |" in app.pane.copied()
            await wait(pilot, lambda: app.pane.file.exists() and app.pane.file.read_text().endswith("\n"))
            assert json.loads(app.pane.file.read_text())["decode"] == 41.5

    asyncio.run(test())


def test_verify_shows_row_by_row(started: Any, scripted: Any, moments: Any, text: Any, wait: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def lines(words: list[str], stop: threading.Event) -> Iterator[str]:
        assert words == ["verify", "tiny"]
        yield "✓ green  prefill equals decode  0 logits differ"
        yield "✗ red    forks equal their parents  3 logits differ"

    monkeypatch.setattr(commands, "lines", lines)

    async def test() -> None:
        async with started(scripted(moments()), "log") as (app, pilot):
            await pilot.press("v")
            await wait(pilot, lambda: any("1 green, 1 red" in line for line in text(app)))
            await wait(pilot, lambda: all(part in "\n".join(text(app)) for part in ("✓ green", "✗ red")))
            await wait(pilot, lambda: app.journal.notes[-1].level == "error")

    asyncio.run(test())


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-url", "http://x", "-m", "y"], "give one of them"),
        (["-replay", "missing", "-plain"], "No such file"),
        ([], "needs a terminal"),
        (["-plain", "-replay", "missing", "-url", "x"], "give one of them"),
    ],
)
def test_wrong_words_are_told(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["tui", *words]) == 2
    assert says in capsys.readouterr().err


def test_a_recording_is_told_in_lines(tmp_path: Path, moments: Any, capsys: pytest.CaptureFixture[str]) -> None:
    from llamay.tui.recording import Recorder

    recorder = Recorder(tmp_path / "one", "here")
    recorder.hear(moments())
    recorder.close()
    assert cli.main(["tui", "-replay", str(tmp_path / "one"), "-plain"]) == 0
    assert "pages 19 of 64 (8 saved by sharing)" in capsys.readouterr().out
