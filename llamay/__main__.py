"""`llamay`, `llamay-server` and `python -m llamay`: quiet about a Ctrl-C that comes while the rest is still imported."""

import sys

INTERRUPTED = 130  # 128 + SIGINT, as shells report it; `llamay.cli.interrupt` says the same once it is there


def main(*first: str) -> int:
    """Runs the command of `first` and sys.argv, and returns its exit code."""
    try:
        from llamay.cli import main as command

        return command([*first, *sys.argv[1:]])
    except KeyboardInterrupt:
        return INTERRUPTED


def server() -> int:
    """`llamay-server` is `llamay serve`."""
    return main("serve")


if __name__ == "__main__":
    sys.exit(main())
