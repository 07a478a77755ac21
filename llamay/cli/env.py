"""`llamay env`: every setting, its value and where the value came from."""

import argparse
import json
from dataclasses import fields

from llamay import settings
from llamay.cli.flags import Parser, json_flag

NAME = "env"
HELP = "print each setting, its value and where it came from"

SECRET = ("api_key",)  # a terminal is seen, and pasted, by others


def configure(parser: Parser) -> None:
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    resolved = settings.resolve()
    rows = []
    for setting in fields(settings.Settings):
        value = getattr(resolved.settings, setting.name)
        if setting.name in SECRET and value:
            value = "(set)"
        rows.append(
            {
                "name": setting.name,
                "variable": settings.variable(setting.name),
                "value": value if isinstance(value, int | bool | str) else str(value),
                "origin": resolved.origins[setting.name],
                "help": setting.metadata["help"],
            }
        )
    path = settings.config_file()
    if args.json:
        print(json.dumps({"config": str(path), "config_exists": path.exists(), "settings": rows}, indent=2))
        return 0
    table = [[_cell(row[name]) for name in ("variable", "value", "origin")] for row in rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row, cells in zip(rows, table, strict=True):
        print(*(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)), f"# {row['help']}", sep="  ")
    print(f"\nconfig file  {path}{'' if path.exists() else '  (not there)'}")
    return 0


def _cell(value: object) -> str:
    return json.dumps(value) if isinstance(value, bool) else str(value)
