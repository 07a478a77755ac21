"""`llamay cp`: gives an installed model a second name."""

import argparse
import sys

from llamay.cli.flags import Parser, argument

NAME = "cp"
ALIASES = ("copy",)
HELP = "give an installed model a second name (no bytes are copied)"


def configure(parser: Parser) -> None:
    argument(parser, "model", metavar="MODEL", completes="model", help="an installed model")
    argument(parser, "name", metavar="NAME", help="the name it gets as well")


def run(args: argparse.Namespace) -> int:
    from llamay import settings
    from llamay.store import Store, find, names

    store = Store(settings.load().models)
    model = store.copy(find(store, args.model), names.parse(args.name))
    print(f"{model.name} is installed", file=sys.stderr)
    return 0
