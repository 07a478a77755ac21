"""Writes docs/supported.md from the tables of the code; `make docs` runs it and a test compares."""

import sys
from pathlib import Path

from llamay.cli import supported

TARGET = Path(__file__).parent / "supported.md"

HEAD = """\
# What is supported

Made by `make docs` from the tables that decide it; `llamay info -supported` prints the same, and `--json` gives it as
data. What is not here is refused by name.

A type of the first table stays quantised on the device; NumPy computes with its exact values in float32. An
architecture is told by how its block differs from llama's; `x` and `-` mark the layers of a pattern that repeats.
"""


def page() -> str:
    """The whole page."""
    return f"{HEAD}\n{supported.markdown(supported.tables())}"


def main() -> int:
    TARGET.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
