"""`llamay serve`: the HTTP server."""

import argparse

from llamay.cli.flags import Parser, argument, flag
from llamay.cli.run import add_load_flags
from llamay.cli.terminal import note

NAME = "serve"
HELP = "answer OpenAI's, Anthropic's and Ollama's clients over HTTP"

COUNTS = (  # flag, field of Configuration, what it bounds
    ("-batch", "batch", "sequences a step"),
    ("-concurrency", "concurrency", "requests admitted at once"),
    ("-queue", "queue", "requests that may wait"),
    ("-prefill-chunk", "chunk", "prompt tokens a step"),
    ("-max-loaded", "loaded", "models loaded at once"),
    ("-max-contexts", "contexts", "contexts kept for clients"),
    ("-max-pinned", "pinned", "of them, those that one client may pin (default: half)"),
)


def configure(parser: Parser) -> None:
    argument(parser, "model", nargs="?", default="", metavar="MODEL", completes="model", help="a name or a file, loaded at the start")
    flag(parser, "-m", metavar="MODEL", completes="model", help="the model, as a flag")
    flag(parser, "-addr", default="127.0.0.1:11435", metavar="HOST:PORT", help="where to listen (default: 127.0.0.1:11435)")
    for name, dest, what in COUNTS:
        flag(parser, name, type=int, dest=dest, metavar="N", help=what)
    flag(parser, "-keepalive", metavar="TIME", help="how long an idle model stays loaded: seconds, 5m, 1h, or -1 for good")
    flag(parser, "-api-key", metavar="KEY", help="the key that clients must send (default: LLAMAY_API_KEY)")
    flag(parser, "-per-client", type=int, dest="per_client", metavar="N", help="requests under way of one address (default: half of all for other machines, no bound for this one)")
    flag(parser, "-log", choices=("text", "json", "none"), default="text", help="how requests are logged on stderr; prompts never are (default: text)")
    flag(parser, "-origins", metavar="LIST", help="origins of web pages that may call, by comma; * for all")
    flag(parser, "-hosts", metavar="LIST", help="names that the Host header may have besides this machine's own, by comma; * for all")
    flag(parser, "-embed", metavar="MODEL", completes="model", help="the model that embeds where none is named")
    flag(parser, "-rerank", metavar="MODEL", completes="model", help="the model that ranks where none is named")
    add_load_flags(parser)


def run(args: argparse.Namespace) -> int:
    from llamay import settings
    from llamay.server import main
    from llamay.server.configuration import Configuration, address, duration, names

    host, port = address(args.addr)
    given = {dest: getattr(args, dest) for _, dest, _ in COUNTS if getattr(args, dest) is not None}
    if args.keepalive is not None:
        given["keep_alive"] = duration(args.keepalive)
    in_force = settings.load({key: getattr(args, key) for key in ("context", "kv", "kv_mem", "backend")})
    key = in_force.api_key if args.api_key is None else args.api_key
    configuration = Configuration(
        host=host, port=port, api_key=key, origins=names(args.origins), hosts=names(args.hosts),
        embed=args.embed or "", rerank=args.rerank or "", per_client=args.per_client or 0, log=args.log, **given,
    )  # fmt: skip
    return main.serve(in_force, configuration, args.m or args.model, note=note)
