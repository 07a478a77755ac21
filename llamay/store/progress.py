"""Progress of a pull: what a reporter hears, and the one that draws on a terminal or writes plain lines."""

import shutil
import sys
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol, TextIO

REDRAW = 0.1  # seconds between two drawings of the bar
PLAIN = 5.0  # seconds between two lines when not on a terminal
WINDOW = 8.0  # seconds the rate is taken over
BAR = 24  # cells
SHORTEST_BAR = 8


class Reporter(Protocol):
    """Hears what a pull does.  One transfer is under way at a time."""

    def say(self, text: str) -> None:
        """Something happened worth a line: a wait, a retry, a step."""

    def begin(self, label: str, total: int | None, done: int) -> None:
        """A transfer of `total` bytes starts with `done` of them here already."""

    def advance(self, count: int) -> None:
        """`count` more bytes are here; negative when bytes had to be dropped."""

    def end(self) -> None:
        """The transfer under way is over, well or badly."""


class Silent:
    """Hears everything and says nothing."""

    def say(self, text: str) -> None:
        """Nothing."""

    def begin(self, label: str, total: int | None, done: int) -> None:
        """Nothing."""

    def advance(self, count: int) -> None:
        """Nothing."""

    def end(self) -> None:
        """Nothing."""


class Muted(Silent):
    """Passes on what is said, without the transfers: for layers too small for a bar."""

    def __init__(self, reporter: Reporter) -> None:
        self._reporter = reporter

    def say(self, text: str) -> None:
        """Passes the line on."""
        self._reporter.say(text)


class Bar:
    """Draws one line with share, size, rate and time left; plain lines each 5 s when the stream is no terminal."""

    def __init__(self, stream: TextIO | None = None, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream = sys.stderr if stream is None else stream
        self._terminal = self._stream.isatty()
        self._clock = clock
        self._label = ""
        self._total: int | None = None
        self._done = 0
        self._marks: deque[tuple[float, int]] = deque()
        self._drawn = 0.0
        self._width = 0

    def say(self, text: str) -> None:
        """Writes a line, above the bar when there is one."""
        self._erase()
        self._stream.write(f"{printable(text)}\n")
        self._stream.flush()

    def begin(self, label: str, total: int | None, done: int) -> None:
        """Starts a line for a transfer."""
        self._label, self._total, self._done = printable(label), total, done
        now = self._clock()
        self._marks = deque([(now, done)])
        self._drawn = now
        if self._terminal and (done or total):
            self._draw(now)

    def advance(self, count: int) -> None:
        """Counts bytes and redraws when it is time."""
        self._done += count
        now = self._clock()
        if count < 0:
            self._marks = deque([(now, self._done)])
        if now - self._marks[-1][0] >= REDRAW:
            self._marks.append((now, self._done))
            while len(self._marks) > 2 and now - self._marks[0][0] > WINDOW:
                self._marks.popleft()
        if now - self._drawn >= (REDRAW if self._terminal else PLAIN):
            self._drawn = now
            self._draw(now)

    def end(self) -> None:
        """Leaves the last state of the line standing."""
        if self._label and (self._done or self._total):  # a transfer that never began leaves no line
            self._draw(self._clock())
            if self._terminal:
                self._stream.write("\n")
                self._stream.flush()
        self._label, self._width = "", 0

    def line(self, now: float, width: int = 200) -> str:
        """The line as it reads now, in at most `width` columns: the bar gives way first, then the label."""
        rate = self._rate(now)
        speed = f"{size(rate)}/s" if rate else ""
        if not self._total:
            figures = _joined(size(self._done), speed)
            return f"{_shortened(self._label, width - len(figures) - 2)}  {figures}"
        share = min(1.0, self._done / self._total)
        left = self._total - self._done
        time_left = f"{duration(left / rate)} left" if rate and left > 0 else ""
        counted = f"{share:4.0%}  {size(self._done)} of {size(self._total)}"
        figures = _joined(counted, speed, time_left)
        cells = min(BAR, width - len(self._label) - len(figures) - 5) if self._terminal else 0
        if cells >= SHORTEST_BAR:
            filled = int(share * cells)
            return f"{self._label}  [{'#' * filled}{'-' * (cells - filled)}] {figures}"
        return f"{_shortened(self._label, width - len(figures) - 2)}  {figures}"

    def _rate(self, now: float) -> float:
        """Bytes a second over the last seconds; 0 while that is not known."""
        start, count = self._marks[0]
        return max(0.0, (self._done - count) / (now - start)) if now - start >= REDRAW else 0.0

    def _draw(self, now: float) -> None:
        if self._terminal:
            line = self.line(now, shutil.get_terminal_size().columns - 1)
            self._stream.write(f"\r{line}{' ' * max(0, self._width - len(line))}")
            self._width = len(line)
        else:
            self._stream.write(f"{self.line(now)}\n")
        self._stream.flush()

    def _erase(self) -> None:
        if self._terminal and self._width:
            self._stream.write(f"\r{' ' * self._width}\r")
            self._width = 0


def _joined(*parts: str) -> str:
    return "  ".join(part for part in parts if part)


def _shortened(label: str, width: int) -> str:
    return label if len(label) <= width else f"{label[: max(4, width - 3)]}..."


def size(count: float) -> str:
    """Bytes as people read them, in powers of 1000: `98.4 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 999.5:
            return f"{count:.0f} {unit}" if unit == "B" or count >= 99.95 else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"


def duration(seconds: float) -> str:
    """A time left: `42s`, `3m05s`, `2h10m`."""
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m" if whole < 360_000 else "days"


def printable(text: str) -> str:
    """Text from elsewhere without what could steer a terminal."""
    return "".join(sign if sign.isprintable() else "?" for sign in text)
