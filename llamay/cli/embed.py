"""`llamay embed`: texts as vectors."""

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING

from llamay.cli.flags import Parser, argument, flag, json_flag
from llamay.cli.lines import batches, lines, opened
from llamay.cli.terminal import note
from llamay.errors import UsageError

if TYPE_CHECKING:
    from llamay.serve.encoding import Encoder
    from llamay.serve.loading.usual import Does

NAME = "embed"
HELP = "turn texts into vectors"

TOGETHER = 256  # texts that are read before the vectors of the first are printed

EPILOG = """\
llamay embed MODEL "a text" "another"    a vector a line, as JSON
llamay embed MODEL -f FILE               of each line of a file; - is what is piped in

MODEL is an installed name or a GGUF file of an encoder, or of a decoder that was made to embed. Vectors have
length one, so that their scalar product is the cosine of the angle between them. Empty lines of a file are
left out; a file may have any number of lines, whose vectors are printed as they are made, with -json all in the
end."""


def configure(parser: Parser) -> None:
    parser.epilog = EPILOG
    argument(parser, "model", nargs="?", metavar="MODEL", completes="model", help="a name or a file")
    argument(parser, "texts", nargs="*", metavar="TEXT", help="what to embed")
    flag(parser, "-m", metavar="MODEL", completes="model", help="the model, as a flag; all words are texts then")
    flag(parser, "-f", dest="file", metavar="FILE", completes="file", help="embed each line of a file; -: of stdin")
    flag(parser, "-dimensions", type=int, metavar="N", help="keep the first N values of each vector")
    flag(parser, "-cut", action="store_true", help="cut texts that have more tokens than the model takes")
    flag(parser, "-raw", action="store_true", help="leave vectors at the length the model gives them")
    flag(parser, "-device", dest="backend", metavar="D", help="auto, webgpu, webgpu:NAME or numpy (default: auto)")
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    name, given = words(args)
    if not given and args.file is None:
        raise UsageError('nothing to embed: give texts, as in llamay embed MODEL "a text", or -f FILE')
    with opened(args.file) as file, encoder(name, "embeds", args.backend) as ready:
        told = lines(file, args.file, ready.longest) if file is not None else ()
        rows: list[list[float]] = []
        count = tokens = 0
        for texts in batches(chain(given, told), TOGETHER):
            found = ready.embed(
                texts, dimensions=args.dimensions, normalised=not args.raw, truncate=args.cut, first=count
            )
            count, tokens = count + len(texts), tokens + found.tokens
            made = [[float(f"{value:.9g}") for value in row] for row in found.rows.tolist()]
            if args.json:
                rows += made
            else:
                print("\n".join(json.dumps(row) for row in made), flush=True)
        if not count:
            raise UsageError(f"nothing to embed: {args.file} has no line with a text")
        if args.json:
            loaded = ready.loaded
            print(json.dumps({"model": loaded.name, "device": loaded.device, "tokens": tokens, "vectors": rows}))
    return 0


@contextmanager
def encoder(name: str, does: "Does", backend: str | None) -> "Iterator[Encoder]":
    """The model of that name, or the usual one that `does` what is asked, ready for it; what a person should know is told."""
    from llamay import settings
    from llamay.cli import models, status
    from llamay.serve.encoding import Encoder
    from llamay.serve.engine import Engine
    from llamay.serve.loading import load

    in_force = settings.load({"backend": backend})
    path = models.path(name, in_force, does)
    with status.waiting(f"loading {name or 'the model'}"):
        loaded = load.load(path, in_force, embeds=True)
    with Engine.of(loaded) as engine:
        for news in loaded.notes:
            note(news)
        yield Encoder(loaded, engine)


def words(args: argparse.Namespace) -> tuple[str, list[str]]:
    """The model's name, empty for the default, and the words that are texts."""
    given = [] if args.model is None else [args.model, *args.texts]
    name = args.m if args.m is not None else (given.pop(0) if given else "")
    return name, given
