"""`llamay stop`: has a running server give models back."""

import argparse
import sys
from typing import Any

from llamay.cli.flags import Parser, argument

NAME = "stop"
HELP = "unload a model of a running server, or all of them"


def configure(parser: Parser) -> None:
    parser.epilog = "Requests under way are answered first. The server goes on; its next request loads a model again."
    argument(parser, "model", nargs="?", default="", metavar="MODEL", completes="model", help="the model; all where none is named")


def run(args: argparse.Namespace) -> int:
    from llamay import settings
    from llamay.cli import status
    from llamay.client import Client
    from llamay.errors import UsageError

    client = Client.of(settings.load())
    with status.waiting(f"waiting for {client.base}"), client.understood():
        loaded = {str(model["name"]): _busy(model.get("llamay", {})) for model in client.get("/api/ps")["models"]}
    wanted = args.model.lower().removesuffix(":latest")
    chosen = [name for name in loaded if not wanted or name.lower().removesuffix(":latest") == wanted]
    if wanted and not chosen:
        raise UsageError(f"{args.model} is not loaded; loaded: {', '.join(loaded) or 'nothing'}")
    for name in chosen:
        client.post("/api/generate", {"model": name, "keep_alive": 0})
        print(f"{name} goes once its requests are answered" if loaded[name] else f"unloaded {name}", file=sys.stderr)
    if not chosen:
        print("no model is loaded", file=sys.stderr)
    return 0


def _busy(more: dict[str, Any]) -> bool:
    return bool(more.get("requests") or more.get("waiting"))
