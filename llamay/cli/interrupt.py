"""Ctrl-C: the first raises KeyboardInterrupt, a second before re-arming ends the process at once."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import NoReturn

EXIT_CODE = 130  # 128 + SIGINT, as shells report it


@contextlib.contextmanager
def armed() -> Iterator[None]:
    """Installs the handler for the length of a command and puts the old one back.

    Where SIGINT is ignored (a background job of a shell script) it stays ignored.
    """
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.default_int_handler:
        yield
        return
    rearm()
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def rearm() -> None:
    """After a handled Ctrl-C: makes the next one a first one again."""
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, _first)


def _first(number: int, frame: FrameType | None) -> NoReturn:
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    raise KeyboardInterrupt
