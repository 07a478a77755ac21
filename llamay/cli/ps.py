"""`llamay ps`: what a running server has loaded."""

import argparse
import json
from typing import Any

from llamay.cli.flags import Parser, json_flag

NAME = "ps"
HELP = "show the models that a running server has loaded"

HEAD = ("NAME", "SIZE", "DEVICE", "CONTEXT", "REQUESTS", "STAYS")


def configure(parser: Parser) -> None:
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    from llamay import settings
    from llamay.cli import status
    from llamay.client import Client

    client = Client.of(settings.load())
    with status.waiting(f"waiting for {client.base}"), client.understood():
        models = client.get("/api/ps")["models"]
        table = [HEAD, *(row(model) for model in models)]
    if args.json:
        print(json.dumps(models, indent=2))
        return 0
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for cells in table:
        print("    ".join(f"{cell:<{width}}" for cell, width in zip(cells, widths, strict=True)).rstrip())
    return 0


def row(model: dict[str, Any]) -> tuple[str, ...]:
    """The cells of one model; `-` for what only llamay's server tells."""
    from llamay.store.progress import duration, size

    more = model.get("llamay", {})
    requests = str(more.get("requests", "-"))
    if more.get("waiting"):
        requests += f" + {more['waiting']} waiting"
    seconds = more.get("expires_seconds")
    stays = "while there is room" if seconds is None else duration(seconds)
    return (
        str(model["name"]),
        size(model["size"]),
        str(more.get("device", "-")),
        str(model.get("context_length", "-")),
        requests,
        stays if more else "-",
    )
