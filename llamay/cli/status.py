"""One line on stderr that tells what goes on, where a person is looking; the next one takes its place."""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from llamay.cli.terminal import fitted, live, plain

PATIENCE = 1.0  # seconds that nobody needs to be told of


def say(what: str) -> None:
    """Shows the line on a terminal; elsewhere nothing."""
    if live(sys.stderr):
        line = fitted(f"{what} ...")
        print(f"\r\x1b[K{line}", end="\r", file=sys.stderr, flush=True)


def clear() -> None:
    """Takes the line away."""
    if live(sys.stderr):
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


@contextmanager
def waiting(what: str) -> Iterator[Callable[[], None]]:
    """Says so where it lasts; the line goes in the end, or once what is yielded is called, before other lines are written."""
    over, told = threading.Event(), threading.Event()

    def tell() -> None:
        if not over.wait(PATIENCE):
            told.set()
            say(plain(what))

    telling = threading.Thread(target=tell, name="llamay-status", daemon=True)
    telling.start()

    def done() -> None:
        if not over.is_set():
            over.set()
            telling.join()
            if told.is_set():
                clear()

    try:
        yield done
    finally:
        done()
