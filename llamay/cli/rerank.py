"""`llamay rerank`: documents in the order in which they answer a query."""

import argparse
import json
from collections.abc import Iterable, Iterator

from llamay.cli.flags import Parser, argument, flag, json_flag
from llamay.cli.lines import lines, opened
from llamay.cli.terminal import plain
from llamay.errors import UsageError

NAME = "rerank"
HELP = "rank documents by how well they answer a query"

MOST = 1 << 26  # characters of all documents of a file, which are all needed to the end

EPILOG = """\
llamay rerank MODEL "a query" "a document" "another"    the best first, with the probability that it answers
llamay rerank MODEL "a query" -f FILE                   each line of a file is a document; - is what is piped in

MODEL is an installed name or a GGUF file of a cross-encoder, or of a decoder that was made to judge."""


def configure(parser: Parser) -> None:
    parser.epilog = EPILOG
    argument(parser, "model", nargs="?", metavar="MODEL", completes="model", help="a name or a file")
    argument(parser, "texts", nargs="*", metavar="TEXT", help="the query, then documents")
    flag(parser, "-m", metavar="MODEL", completes="model", help="the model, as a flag; the first word is the query then")
    flag(parser, "-f", dest="file", metavar="FILE", completes="file", help="rank the lines of a file; -: of stdin")
    flag(parser, "-n", type=int, metavar="N", help="show the best N (default: all)")
    flag(parser, "-device", dest="backend", metavar="D", help="auto, webgpu, webgpu:NAME or numpy (default: auto)")
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    from llamay.cli import embed
    from llamay.serve import ranking

    name, texts = embed.words(args)
    if not texts or (len(texts) < 2 and args.file is None):
        raise UsageError('nothing to rank: give a query and documents, as in llamay rerank MODEL "a query" "a document"')
    query, *documents = texts
    if not query.strip():
        raise UsageError("the query is empty; give the words that documents are to be ranked by, before the documents")
    if args.n is not None and args.n < 1:
        raise UsageError(f"-n is {args.n}; it may be 1 or more")
    with opened(args.file) as file, embed.encoder(name, "ranks", args.backend) as encoder:
        if file is not None:
            documents += fitting(lines(file, args.file, encoder.longest), args.file)
        if not documents:
            raise UsageError(f"nothing to rank: {args.file} has no line with a text")
        found = ranking.rank(encoder, query, documents)
    best = sorted(enumerate(found.probabilities), key=lambda one: (-one[1], one[0]))[: args.n]
    if args.json:
        results = [
            {"index": at, "probability": score, "logit": found.logits[at], "document": documents[at]}
            for at, score in best
        ]
        print(json.dumps({"model": encoder.loaded.name, "tokens": found.tokens, "results": results}, indent=2))
    else:
        for at, score in best:
            print(f"{score:.6f}  {plain(documents[at])}")
    return 0


def fitting(told: Iterable[str], name: str) -> Iterator[str]:
    """The documents, as long as they are few enough to be sorted in memory."""
    characters = 0
    for document in told:
        characters += len(document)
        if characters > MOST:
            raise UsageError(f"{name} has more than {MOST:,} characters of documents to rank at once; rank it in parts")
        yield document
