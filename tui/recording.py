"""Recordings: what a source told, as JSON lines in zstd, and a source that tells it again."""

import io
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import msgspec
import zstandard

from llamay.errors import LlamayError, UsageError
from llamay.tui.moment import Answered, Asked, Installed, News, Parting, Piece, Progress
from llamay.tui.source import Hear, NotHere

FORMAT = "llamay-recording"
MOST = 64 << 20  # bytes of one line: a file may be anything


class BadRecording(LlamayError):
    """A file is no recording, or a damaged one."""


class Line(msgspec.Struct, frozen=True):
    """One thing that was told, so many seconds after the start."""

    at: float
    news: News


class Head(msgspec.Struct, frozen=True):
    """The first line."""

    format: str
    version: int
    where: str


class Recorder:
    """Writes a recording.  Any thread may use it; each line is on the disk within a second or two."""

    def __init__(self, path: Path, where: str) -> None:
        self._file = _opened(path)
        self._writer = zstandard.ZstdCompressor(level=3).stream_writer(self._file)
        self._began = self._flushed = time.monotonic()
        self._lock = threading.Lock()
        self._open = True
        self._line(msgspec.json.encode(Head(FORMAT, 1, where)))

    def hear(self, news: News) -> None:
        """Writes it down."""
        now = time.monotonic()
        self._line(msgspec.json.encode(Line(round(now - self._began, 3), news)))
        if now - self._flushed > 1:
            with self._lock:
                self._flushed = now
                if self._open:
                    self._writer.flush(zstandard.FLUSH_BLOCK)
                    self._file.flush()

    def close(self) -> None:
        """Ends the file.  Safe to call twice."""
        with self._lock:
            if self._open:
                self._open = False
                self._writer.flush(zstandard.FLUSH_FRAME)
                self._file.close()

    def _line(self, line: bytes) -> None:
        with self._lock:
            if self._open:
                self._writer.write(line + b"\n")


def read(path: Path) -> tuple[Head, Iterator[Line]]:
    """A recording's head, and its lines as they are read; BadRecording where it is none, at a line that is damaged too.

    One that was cut short ends where it was cut.
    """
    try:
        lines = _lines(path)
        head = msgspec.json.decode(next(lines, b""), type=Head)
        if head.format != FORMAT or head.version != 1:
            raise BadRecording(f"{path} is a {head.format!r:.40} of version {head.version}; expected {FORMAT} 1")
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except (msgspec.MsgspecError, zstandard.ZstdError) as error:
        raise BadRecording(f"{path} is no recording of llamay: {error}") from None
    return head, _decoded(path, lines)


class Replay:
    """A recording as a source: it tells what was told, at the speed at which it was."""

    live = False

    def __init__(self, path: Path, speed: float = 1.0) -> None:
        """`speed` 0 tells everything at once."""
        self._path, self._speed = path, speed
        self.where = f"recording {path.name}"
        read(path)

    def watch(self, hear: Hear, stop: threading.Event) -> None:
        """From the beginning to the end, once."""
        began = time.monotonic()
        for line in read(self._path)[1]:
            if self._speed and stop.wait(max(0.0, line.at / self._speed - (time.monotonic() - began))):
                return
            if stop.is_set():
                return
            hear(line.news)

    def answer(self, asked: Asked, stop: threading.Event) -> Iterator[Piece | Answered]:
        """Nobody is there to answer."""
        yield Answered(asked.number, error="this is a recording: nobody is there to answer")

    def fork(self, context: str, count: int = 1) -> tuple[str, ...]:
        """Nothing can be done to a recording."""
        raise self._over()

    def rewind(self, context: str, to: int) -> None:
        """Nothing."""
        raise self._over()

    def save(self, context: str, name: str) -> str:
        """Nothing."""
        raise self._over()

    def drop(self, context: str) -> None:
        """Nothing."""
        raise self._over()

    def diff(self, left: str, right: str) -> Parting:
        """Nothing."""
        raise self._over()

    def cancel(self, request: int) -> None:
        """Nothing."""
        raise self._over()

    def installed(self) -> tuple[Installed, ...]:
        """Those that were loaded are in the snapshots."""
        return ()

    def load(self, model: str) -> None:
        """Nothing."""
        raise self._over()

    def unload(self, model: str) -> None:
        """Nothing."""
        raise self._over()

    def delete(self, model: str) -> None:
        """Nothing."""
        raise self._over()

    def pull(self, name: str) -> Iterator[Progress]:
        """Nothing."""
        raise self._over()

    def spelled(self, model: str) -> str:
        """As it was."""
        return model

    def close(self) -> None:
        """Nothing is held."""

    def _over(self) -> NotHere:
        return NotHere("this is a recording: it can be looked at, and nothing in it be changed")


def _opened(path: Path) -> BinaryIO:
    try:
        return path.open("xb")
    except FileExistsError:
        raise UsageError(f"{path} is there already; give the recording another name") from None
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        plain = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        buffered = io.BufferedReader(plain)
        while line := buffered.readline(MOST):
            if not line.endswith(b"\n"):
                return  # cut short
            yield line


def _decoded(path: Path, lines: Iterator[bytes]) -> Iterator[Line]:
    number, decoder = 1, msgspec.json.Decoder(Line)
    try:
        for line in lines:
            number += 1
            yield decoder.decode(line)
    except (msgspec.MsgspecError, zstandard.ZstdError) as error:
        raise BadRecording(f"{path}: line {number} is damaged: {error}") from None
