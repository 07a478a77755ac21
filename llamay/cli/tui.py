"""`llamay tui`: the terminal interface."""

import argparse
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from llamay.cli.flags import Parser, flag
from llamay.cli.run import add_load_flags
from llamay.cli.terminal import note
from llamay.errors import LlamayError, NoServer, UsageError

if TYPE_CHECKING:
    from llamay.client import Client
    from llamay.settings import Settings
    from llamay.tui.source import Hear, Source

NAME = "tui"
HELP = "show live batching, pages and forks on the terminal, and chat"

EPILOG = """\
llamay tui                the server at LLAMAY_HOST where one answers; else the models of this machine
llamay tui -url URL       that server
llamay tui -m MODEL       the model in this process, the chat ready

1 chat, 2 batch, 3 pages, 4 forks, 5 requests, 6 models, 7 bench, 8 log; ? explains every key.
-record keeps what was seen, questions and answers too, in a file that -replay shows again."""


def configure(parser: Parser) -> None:
    parser.epilog = EPILOG
    flag(parser, "-url", metavar="URL", help="the server to look at (default: LLAMAY_HOST)")
    flag(parser, "-m", metavar="MODEL", completes="model", help="load this model here instead: a name or a file")
    flag(parser, "-plain", action="store_true", help="print one line a second instead, for screen readers and logs")
    flag(parser, "-record", metavar="FILE", completes="file", help="write all that is seen to a new file")
    flag(parser, "-replay", metavar="FILE", completes="file", help="show a recording")
    add_load_flags(parser)


def run(args: argparse.Namespace) -> int:
    from llamay import settings

    named = [name for name in ("url", "m", "replay") if getattr(args, name) is not None]
    if len(named) > 1:
        raise UsageError(f"-{' and -'.join(named)} name {len(named)} things to look at: give one of them")
    in_force = settings.load({key: getattr(args, key) for key in ("context", "kv", "kv_mem", "backend")})
    if not args.plain and not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("tui needs a terminal; -plain prints lines where there is none")
    with ExitStack() as stack:
        source, first, why = _source(args, in_force)
        stack.callback(source.close)
        hear = _recording(args.record, source, stack)
        if args.plain:
            return _plain(source, hear, why, load=args.m is not None)
        from llamay.tui.app import Terminal

        return Terminal(source, in_force.cache, first, hear, why, load=args.m is not None).run() or 0


def _source(args: argparse.Namespace, in_force: "Settings") -> "tuple[Source, str, str]":
    """What is looked at, the screen that comes first, and why, where nobody said what to look at."""
    from llamay.client import Client, url

    if args.replay is not None:
        from llamay.tui.recording import Replay

        return Replay(Path(args.replay)), "batch", ""
    from llamay.tui.remote import Remote

    if args.m is None:
        client = Client(url(args.url or in_force.host), in_force.api_key)
        if args.url is not None or _answers(client, lines=args.plain):
            return Remote(client), "chat", ""
    from llamay.tui.local import Local

    if args.m is not None:
        return Local(in_force, args.m), "chat", ""
    why = f"No server answers at {url(in_force.host)}, so these are the models of this machine; `llamay serve` in a shell starts one."
    return Local(in_force), "models", why


def _answers(client: "Client", *, lines: bool) -> bool:
    """Whether a server is there; one that refuses is there too, and says why.  Tells whom it asks where that lasts."""
    from llamay.cli import status
    from llamay.errors import Refused
    from llamay.tui import plain

    asking = plain.asking(client.base, _line) if lines else status.waiting(f"waiting for {client.base}")
    try:
        with asking:
            client.get("/healthz")
    except NoServer:
        return False
    except Refused:
        return True
    return True


def _recording(path: str | None, source: "Source", stack: ExitStack) -> "Hear":
    if path is None:
        return lambda news: None
    from llamay.tui.recording import Recorder

    recorder = Recorder(Path(path), source.where)
    stack.callback(recorder.close)
    return recorder.hear


def _plain(source: "Source", hear: "Hear", why: str, *, load: bool) -> int:
    """Lines until Ctrl-C, or until the model that was named cannot be loaded, or the server gives no sign."""
    import threading

    from llamay.tui import plain

    stop = threading.Event()
    failed: list[LlamayError] = []

    def loads() -> None:
        try:
            source.load("")
        except LlamayError as error:
            failed.append(error)
            stop.set()

    if why:
        note(why, "llamay tui")
    if load:
        threading.Thread(target=loads, name="llamay-load", daemon=True).start()
    plain.run(source, _line, stop, hear)
    if failed:
        raise failed[0]
    return 0


def _line(text: str) -> None:
    print(text, flush=True)
