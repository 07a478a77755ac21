"""One line on stderr that tells what goes on, where a person is looking; the next one takes its place."""

import sys

from llamay.cli.terminal import fitted, live


def say(what: str) -> None:
    """Shows the line on a terminal; elsewhere nothing."""
    if live(sys.stderr):
        line = fitted(f"{what} ...")
        print(f"\r\x1b[K{line}", end="\r", file=sys.stderr, flush=True)


def clear() -> None:
    """Takes the line away."""
    if live(sys.stderr):
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)
