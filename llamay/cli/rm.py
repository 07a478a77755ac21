"""`llamay rm`: removes models, and the blobs nothing else needs."""

import argparse
import sys

from llamay.cli.flags import Parser, argument, flag

NAME = "rm"
ALIASES = ("remove",)
HELP = "remove installed models"


def configure(parser: Parser) -> None:
    argument(parser, "models", metavar="MODEL", nargs="*", completes="model", help="the names of installed models")
    flag(parser, "-unused", action="store_true", help="remove interrupted downloads and blobs no model uses")


def run(args: argparse.Namespace) -> int:
    from llamay import settings
    from llamay.errors import UsageError
    from llamay.store import Store, names
    from llamay.store.progress import size
    from llamay.store.resolve import kept_as

    if not args.models and not args.unused:
        raise UsageError("nothing to remove was named (`llamay list` shows what there is; -unused removes leftovers)")
    store = Store(settings.load().models)
    chosen = [kept_as(store, text) for text in dict.fromkeys(args.models)]  # all known, before any goes
    for name in dict.fromkeys(chosen):
        print(f"removed {name}, {size(store.remove(names.check(name)))} freed", file=sys.stderr)
    if args.unused:
        print(f"removed what no model uses, {size(store.sweep())} freed", file=sys.stderr)
    return 0
