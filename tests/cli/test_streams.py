"""Streams that are closed or lead to a terminal: no traceback, and nothing a terminal would obey."""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from llamay import cli, gguf
from llamay.cli import pull, status
from llamay.cli.terminal import note
from llamay.errors import PullError

EVIL = "\x1b]0;title\x07\x9b31m"


@pytest.mark.parametrize(
    ("words", "closed"),
    [(["version"], (0,)), (["help"], (1,)), (["env"], (2,)), (["info", "nosuch"], (2,)), (["version"], (0, 1)), (["env"], (1, 2)),
     (["help"], (0, 1, 2)), (["info", "nosuch"], (0, 1, 2))],
)  # fmt: skip
def test_a_closed_stream_is_the_null_device(words: list[str], closed: tuple[int, ...], home: Path) -> None:
    def close() -> None:
        for number in closed:
            os.close(number)

    command = [sys.executable, "-m", "llamay", *words]
    made = subprocess.run(command, capture_output=True, text=True, timeout=120, preexec_fn=close)
    assert made.returncode == (4 if words[0] == "info" else 0)
    assert "Traceback" not in made.stderr
    open_ones = {1: made.stdout, 2: made.stderr}
    where = 2 if words[0] == "info" else 1
    assert bool(open_ones[where]) == (where not in closed)


def test_closed_streams_keep_their_numbers_from_files(home: Path, tmp_path: Path) -> None:
    target = tmp_path / "number"
    lines = [
        "import os, sys",
        "os.close(1); os.close(2); sys.stdout = sys.stderr = None",
        "from llamay.cli import main",
        "main(['version'])",
        f"made = open({str(target)!r}, 'w'); made.write(str(made.fileno()))",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True, timeout=120)
    assert int(target.read_text()) > 2


def test_what_an_error_quotes_is_not_obeyed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(args: object) -> int:
        raise PullError(f"the server said {EVIL}\nand more")

    monkeypatch.setattr(cli.load("version"), "run", fail)
    assert cli.main(["version"]) == PullError.exit_code
    said = capsys.readouterr().err
    assert said == "llamay version: the server said \\x1b]0;title\\x07\\x9b31m\nand more\n"


def test_a_note_spells_out_what_a_terminal_would_obey(capsys: pytest.CaptureFixture[str]) -> None:
    note(EVIL, "llamay list")
    assert capsys.readouterr().err == "llamay list: \\x1b]0;title\\x07\\x9b31m\n"


@pytest.mark.parametrize("words", [["run", "-p", "hi", "-n", "1"], ["run", "hi", "-n", "1"], ["bench", "-prompt", "4", "-gen", "2", "-reps", "1"], ["ppl", "-c", "16", "-f", __file__, "-chunks", "1"], ["info"], ["info", "-meta"]])  # fmt: skip
def test_what_a_file_says_is_not_obeyed(
    words: list[str], llamay: Callable[..., int], tiny: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hostile = tmp_path / "hostile.gguf"
    with gguf.open(tiny) as file:
        named = {"general.name": EVIL, "tokenizer.chat_template": "{{ raise_exception('" + EVIL + "') }}"}
        tensors = [(tensor.name, tensor.type, tensor.shape, bytes(tensor.data)) for tensor in file.tensors.values()]
        gguf.write(hostile, {**dict(file.metadata.items()), **named}, tensors)
    llamay(words[0], str(hostile), *words[1:])
    shown = capsys.readouterr()
    outside = shown.err if words[0] == "run" else shown.out + shown.err  # a pipe gets an answer as it is
    assert "\x1b" not in outside and "\x07" not in outside and "\x9b" not in outside
    if words[:2] != ["run", "-p"]:
        assert "title" in outside, "it is spelled out, not dropped"


@pytest.mark.parametrize(("term", "columns"), [("dumb", "80"), ("xterm", "20")])
def test_lines_that_change_fit_the_terminal(
    term: str, columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", term)
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    status.say("measuring something with a very long name")
    status.clear()
    shown = capsys.readouterr().err
    assert shown == ("" if term == "dumb" else "\r\x1b[Kmeasuring something\r\r\x1b[K")


def test_what_lasts_is_told_and_what_does_not_is_not(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    said, cleared = threading.Event(), "\r\x1b[K"
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setattr(status, "PATIENCE", 600.0)
    with status.waiting("loading tiny"):
        pass
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(status, "PATIENCE", 0.0)
    say = status.say
    monkeypatch.setattr(status, "say", lambda what: (say(what), said.set()))
    with status.waiting("loading tiny") as done:
        assert said.wait(60)
        done()
        print("what comes then", file=sys.stderr)
    assert capsys.readouterr().err == f"{cleared}loading tiny ...\r{cleared}what comes then\n"


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["a b.gguf"], "llamay pull 'a b.gguf'"),
        (["x", "-name", "y", "-insecure"], "llamay pull x -name y -insecure"),
        (["x", "-link", "-q"], "llamay pull x -quiet -link"),
    ],
)
def test_an_interrupted_pull_names_the_whole_command(words: list[str], line: str) -> None:
    assert pull.again(cli.parser_of(cli.load("pull")).parse(words)) == line
