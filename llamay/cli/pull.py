"""`llamay pull`: gets a model into the store."""

import argparse
import sys

from llamay.cli.flags import Parser, argument, flag

NAME = "pull"
HELP = "get a model: from a registry, Hugging Face, the web, the Python index or a file"
USES = {
    "answers": "`llamay run {}` talks to it",
    "embeds": "`llamay embed {}` makes vectors with it",
    "ranks": "`llamay rerank {}` ranks with it",
}


def configure(parser: Parser) -> None:
    from llamay.store.sources import FORMS

    wide = max(len(form) for form, _ in FORMS)
    parser.epilog = "SOURCE is one of\n" + "\n".join(f"  {form:<{wide}}  {what}" for form, what in FORMS)
    argument(parser, "source", metavar="SOURCE", completes="file", help="where the model comes from")
    flag(parser, "-name", metavar="NAME", help="install it under this name")
    flag(parser, "-quiet", "-q", action="store_true", help="show no progress")
    flag(parser, "-link", action="store_true", help="hard-link a local file instead of copying it")
    flag(parser, "-insecure", action="store_true", help="allow plain http to the host that is named")


def again(args: argparse.Namespace) -> str:
    """The same command once more."""
    import shlex

    named = ["-name", args.name] if args.name else []
    switches = [f"-{name}" for name in ("quiet", "link", "insecure") if getattr(args, name)]
    return shlex.join(["llamay", "pull", args.source, *named, *switches])


def run(args: argparse.Namespace) -> int:
    import os

    from llamay import settings
    from llamay.serve.loading import usual
    from llamay.store import Store, names
    from llamay.store.network import Network
    from llamay.store.progress import Bar, Silent, size
    from llamay.store.pull import pull
    from llamay.store.sources import Hosts

    reporter = Silent() if args.quiet else Bar()
    store = Store(settings.load().models)
    try:
        pulled = pull(
            store,
            args.source,
            name=names.parse(args.name) if args.name else None,
            link=args.link,
            hosts=Hosts.of(os.environ),
            network=Network(insecure=args.insecure),
            reporter=reporter,
        )
    except KeyboardInterrupt:
        line = again(args)
        print(f"\ninterrupted; what was received is kept, and `{line}` goes on from there", file=sys.stderr)
        raise
    name = pulled.model.name.typed()
    if not args.quiet:
        done = "is installed" if pulled.fresh else "was here already"
        use = USES[usual.does_of(store.file(pulled.model))].format(name)
        print(f"{name} {done} ({size(pulled.model.size)}); {use}", file=sys.stderr)
    return 0
