"""Writes docs/cli.md from the parsers; `make docs` runs it and a test compares."""

import sys
from dataclasses import fields
from pathlib import Path

from llamay import cli, settings

TARGET = Path(__file__).parent / "cli.md"

HEAD = """\
# The command line

Made by `make docs` from the parsers; `llamay COMMAND -help` prints the same.
Flags are written `-name value`, `-name=value` or with two dashes, before or after other words;
`--` ends them. Answers and listings go to stdout, all else to stderr.

Exit codes: 0 done, 1 failed, 2 wrong usage, 3 the model file was refused, 4 the model is not installed,
5 the store or a download failed, 6 the device failed, 7 the context is full, 8 the chat template failed,
9 a saved context was refused, 10 no server answers, 130 Ctrl-C, 141 the reader of a pipe went away.
"""

SETTINGS = """\
## Settings

A default is overlaid by `config.toml`, that by the variable, that by a flag. An unknown key is an error.
`llamay env` prints each value and where it came from, and the place of `config.toml`.

| key | variable | what |
|---|---|---|
"""


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    for name in cli.COMMANDS:
        command = cli.load(name)
        aliases = [alias for alias, target in cli.ALIASES.items() if target == name]
        also = f" (also `{'`, `'.join(aliases)}`)" if aliases else ""
        help = cli.parser_of(command).format_help().rstrip()
        parts.append(f"## llamay {name}{also}\n\n```\n{help}\n```\n")
    rows = [
        f"| `{setting.name}` | `{settings.variable(setting.name)}` | {setting.metadata['help']} |"
        for setting in fields(settings.Settings)
    ]
    parts.append(SETTINGS + "\n".join(rows) + "\n")
    return "\n".join(parts)


def main() -> int:
    TARGET.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
