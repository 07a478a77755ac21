"""`llamay list`: the installed models."""

import argparse
import json
import time
from datetime import UTC, datetime

from llamay.cli.flags import Parser, json_flag
from llamay.cli.terminal import note

NAME = "list"
ALIASES = ("ls",)
HELP = "list the installed models"


def configure(parser: Parser) -> None:
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    from llamay import settings
    from llamay.store import Store
    from llamay.store.progress import size

    survey = Store(settings.load().models).survey()
    for name, reason in survey.broken:
        note(f"{name} is broken: {reason}", "llamay list")
    if args.json:
        rows = [
            {
                "name": str(model.name),
                "id": model.id,
                "size": model.size,
                "modified": datetime.fromtimestamp(model.modified, UTC).isoformat(),
                "source": model.source,
            }
            for model in survey.models
        ]
        print(json.dumps(rows, indent=2))
        return 0
    table = [("NAME", "ID", "SIZE", "MODIFIED")]
    for model in survey.models:
        table.append((str(model.name), model.id[:12], size(model.size), age(time.time() - model.modified)))
    widths = [max(len(row[column]) for row in table) for column in range(4)]
    for row in table:
        print("    ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
    return 0


def age(seconds: float) -> str:
    """How long ago something was, in the largest unit of which there are two."""
    for length, unit in ((7 * 86400, "weeks"), (86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * length:
            return f"{int(seconds // length)} {unit} ago"
    return "a minute ago" if seconds >= 60 else "just now"
