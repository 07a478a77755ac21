"""The lines of a file or of what is piped in, one at a time and none longer than a bound."""

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import BinaryIO, TypeVar

from llamay.errors import UsageError

BOM = b"\xef\xbb\xbf"  # with which some editors begin a file

One = TypeVar("One")


@contextmanager
def opened(name: str | None) -> Iterator[BinaryIO | None]:
    """The file of that name, stdin for `-`, None for none; opened before anything slow begins. OSError without it."""
    if name is None or name == "-":
        yield None if name is None else sys.stdin.buffer
        return
    with open(name, "rb") as file:
        yield file


def lines(file: BinaryIO, name: str, most: int) -> Iterator[str]:
    """The lines that hold more than white space; bytes that are not UTF-8 become U+FFFD.

    UsageError for a line of more than `most` bytes, of which no more is read.
    """
    number = 0
    while raw := file.readline(most + 1):
        number += 1
        if len(raw) > most and not raw.endswith(b"\n"):
            where = "stdin" if name == "-" else name
            raise UsageError(f"line {number} of {where} has more than {most:,} bytes, and no line may; cut it in several")
        text = raw.removeprefix(BOM if number == 1 else b"").decode("utf-8", "replace").rstrip("\r\n")
        if text.strip():
            yield text


def batches(things: Iterable[One], size: int) -> Iterator[list[One]]:
    """All things, so many at a time."""
    rest = iter(things)
    while some := list(islice(rest, size)):
        yield some
