"""Showing text of unknown origin and large numbers to a person."""

import os
import re
import sys
from typing import TextIO

# controls, bidirectional overrides and isolates, halves of surrogate pairs
_OBEYED = re.compile("[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_OBEYED_IN_LINES = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str, *, lines: bool = False) -> str:
    """The text with what a terminal would obey spelled out.  With `lines`, line ends and tabs pass."""
    return (_OBEYED_IN_LINES if lines else _OBEYED).sub(_spelled, text)


def live(stream: TextIO) -> bool:
    """Whether a line of the stream can be drawn over and coloured."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def fitted(line: str) -> str:
    """The line cut to what the terminal shows in one row, so that it can be drawn over."""
    import shutil

    return line[: max(shutil.get_terminal_size().columns - 1, 10)]


def folded(line: str, stream: TextIO, hang: int = 2) -> str:
    """The line broken between words where the terminal is narrower; what follows is indented by `hang`."""
    if not stream.isatty():
        return line
    import shutil
    import textwrap

    wide = max(shutil.get_terminal_size().columns, 40)
    rows = textwrap.wrap(line, wide, subsequent_indent=" " * hang, break_long_words=False, break_on_hyphens=False)
    return "\n".join(rows)


def note(text: str, who: str = "llamay") -> None:
    """Says a line on stderr.  It may quote a file or a server, so what a terminal would obey is spelled out."""
    print(f"{who}: {plain(text, lines=True)}", file=sys.stderr)


def count(number: float) -> str:
    """134.5M, 1.24B."""
    for limit, unit in ((1e9, "B"), (1e6, "M"), (1e3, "k")):
        if number >= limit:
            return f"{number / limit:.{2 if unit == 'B' else 1}f}{unit}"
    return f"{number:.0f}"


def bar(share: float, width: int = 24) -> str:
    """A bar of `share` (0 to 1) of the width, never empty where the share is not."""
    eighths = max(round(share * width * 8), 1 if share > 0 else 0)
    return "█" * (eighths // 8) + ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")[eighths % 8]


def _spelled(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape", "backslashreplace").decode("ascii")
