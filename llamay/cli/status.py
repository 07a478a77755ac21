"""One line on stderr that tells what goes on, where a person is looking; the next one takes its place."""

import sys


def say(what: str) -> None:
    """Shows the line on a terminal; elsewhere nothing."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{what} ...", end="\r", file=sys.stderr, flush=True)


def clear() -> None:
    """Takes the line away."""
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
