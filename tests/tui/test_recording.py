"""Recordings: what was told comes out again, and what is no recording is refused by name."""

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import zstandard
from msgspec.structs import replace

from llamay.errors import UsageError
from llamay.tui import plain
from llamay.tui.history import History
from llamay.tui.moment import Answered, Asked, Lost, Piece, Snapshot
from llamay.tui.recording import BadRecording, Recorder, Replay, read


@pytest.fixture
def made(tmp_path: Path, moments: Any) -> tuple[Path, list[Any]]:
    told = [
        moments(), Asked(1, "hello", "ctx_a"), Piece(1, "wörld\n"), Lost("it went", 5.0), moments(1.0),
        Answered(1, "ctx_b", 3, 0, 2, 0.1, 0.2, "end"),
    ]  # fmt: skip
    path = tmp_path / "session.zst"
    recorder = Recorder(path, "http://here")
    for news in told:
        recorder.hear(news)
    recorder.close()
    recorder.close()
    recorder.hear(told[0])  # after the end: nothing
    return path, told


def test_what_was_told_is_told_again(made: tuple[Path, list[Any]]) -> None:
    path, told = made
    head, lines = read(path)
    assert (head.where, [line.news for line in lines]) == ("http://here", told)
    heard: list[Any] = []
    Replay(path, 0).watch(heard.append, threading.Event())
    assert heard == told


def test_a_replay_keeps_the_pace(tmp_path: Path, moments: Any) -> None:
    recorder = Recorder(tmp_path / "slow", "here")
    recorder.hear(moments())
    time.sleep(0.3)
    recorder.hear(moments(1.0))
    recorder.close()
    _, last = [line.at for line in read(tmp_path / "slow")[1]]
    assert last > 0.29
    began = time.monotonic()
    Replay(tmp_path / "slow").watch(lambda news: None, threading.Event())
    assert last - 0.05 < time.monotonic() - began < last + 60


def test_a_recording_that_was_cut_short_ends_there(made: tuple[Path, list[Any]], tmp_path: Path) -> None:
    path, told = made
    text = zstandard.ZstdDecompressor().stream_reader(path.read_bytes(), read_across_frames=True).read()
    short = tmp_path / "short"
    short.write_bytes(zstandard.compress(text[:-10]))
    assert [line.news for line in read(short)[1]] == told[:-1]


def test_a_recording_that_nobody_closed_has_what_was_flushed(tmp_path: Path, moments: Any) -> None:
    recorder = Recorder(tmp_path / "killed", "here")
    recorder.hear(moments())
    recorder._flushed -= 2
    recorder.hear(moments(1.0))
    assert [line.news for line in read(tmp_path / "killed")[1]] == [moments(), moments(1.0)]
    recorder.close()


def test_a_file_that_is_there_is_not_written_over(made: tuple[Path, list[Any]]) -> None:
    before = made[0].read_bytes()
    with pytest.raises(UsageError, match="another name"):
        Recorder(made[0], "here")
    assert made[0].read_bytes() == before


@pytest.mark.parametrize("data", [b"", b"hello\n", zstandard.compress(b"hello\n"), zstandard.compress(b'{"format":"x","version":1,"where":""}\n')])
def test_what_is_no_recording_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(data)
    with pytest.raises(BadRecording, match="other"):
        Replay(path)


def test_a_damaged_line_is_named(made: tuple[Path, list[Any]], tmp_path: Path) -> None:
    text = zstandard.ZstdDecompressor().stream_reader(made[0].read_bytes(), read_across_frames=True).read()
    bad = tmp_path / "bad"
    bad.write_bytes(zstandard.compress(text.replace(b'"lost"', b'"nonsense"')))
    with pytest.raises(BadRecording, match="line 5"):
        list(read(bad)[1])


def test_a_file_that_is_missing_is_wrong_usage(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        Replay(tmp_path / "none")


def test_plain_says_a_line_a_second(made: tuple[Path, list[Any]]) -> None:
    lines: list[str] = []
    heard: list[Any] = []
    plain.run(Replay(made[0], 0), lines.append, threading.Event(), heard.append)
    assert heard == made[1]
    assert [line[9:] for line in lines] == [
        "request 4 of tiny failed: OutOfMemory",
        "tiny 0.0 tok/s, 2 running, 1 waiting, pages 19 of 64 (8 saved by sharing), 5 contexts",
        "disconnected: it went",
        "tiny 120.0 tok/s, 2 running, 1 waiting, pages 19 of 64 (8 saved by sharing), 5 contexts",
    ]


def test_plain_counts_one_context_as_one(made: tuple[Path, list[Any]]) -> None:
    snapshot = next(news for news in made[1] if isinstance(news, Snapshot))
    alone = replace(snapshot, models=tuple([replace(model, contexts=model.contexts[:1]) for model in snapshot.models]))
    history = History()
    history.hear(alone)
    assert plain.text(alone, history).endswith(", 1 context")
