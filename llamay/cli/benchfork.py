"""`llamay benchfork`: many questions on one prefix, as forks of it, with the prefix known, and each from nothing."""

import argparse
import json

from llamay.cli.flags import Parser, argument, flag, json_flag, kv_flag

NAME = "benchfork"
HELP = "measure many questions on one prefix: forked, against a warm prefix cache, against cold"

EPILOG = """\
Prefix and questions are random tokens, answers greedy; all questions of a way are asked at once, and
every way must give the same answers.

forked   the prefix is computed once, forked for each question, and the forks decode together
warm     each question finds the prefix in the prefix cache
cold     each question computes the prefix itself"""


def configure(parser: Parser) -> None:
    parser.epilog = EPILOG
    argument(parser, "model", nargs="?", metavar="MODEL", completes="model", help="a name or a file")
    flag(parser, "-m", metavar="MODEL", completes="model", help="the model, as a flag")
    flag(parser, "-synthetic", metavar="SPEC", help="random weights of a real shape instead of a model")
    flag(parser, "-prefix", type=int, default=1024, metavar="N", help="tokens of the prefix (default: 1024)")
    flag(parser, "-questions", type=int, default=16, metavar="N", help="how many questions (default: 16)")
    flag(parser, "-question", type=int, default=16, metavar="N", help="tokens of each question (default: 16)")
    flag(parser, "-gen", type=int, default=16, metavar="N", help="tokens of each answer (default: 16)")
    kv_flag(parser)
    flag(parser, "-device", dest="backend", metavar="D", help="auto, webgpu, webgpu:NAME or numpy (default: auto)")
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    from llamay import settings
    from llamay.bench import questions, report, shared
    from llamay.cli import bench, bench_rows, status

    shape = questions.Shape(args.questions, args.prefix, args.question, args.gen)
    shape.check()
    in_force = settings.load({key: getattr(args, key) for key in ("kv", "backend")})
    with shared.open_shared(bench.named_of(args, in_force), in_force, shape.room()) as target:
        bench.tell(target)
        found = questions.run(target, shape, status.say)
        status.clear()
        facts = report.facts(target)
        page = [*bench_rows.heading(target), *bench_rows.questions(found)]
    print(json.dumps({**facts, **found.as_json()}, indent=2) if args.json else "\n".join(page))
    return 0
