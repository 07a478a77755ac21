"""`llamay verify`: what llamay promises of its numbers, checked on this machine with this model."""

import argparse
import json
import math
import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from llamay.cli.flags import Parser, argument, flag, json_flag, kv_flag
from llamay.cli.terminal import live, note
from llamay.errors import UsageError

if TYPE_CHECKING:
    from llamay.serve.loading.load import Loaded
    from llamay.settings import Settings
    from llamay.verify.checks import Row

NAME = "verify"
HELP = "check on this machine that results are exact: chunks, seeds, forks, WGSL against NumPy"

EPILOG = """\
Exits with 1 when a row is red. The text has 288 tokens, beyond the first attention split, unless
-prompt says otherwise; chunks of one token take as many steps. One row loads the model in another
process, beside this one."""


def configure(parser: Parser) -> None:
    parser.epilog = EPILOG
    argument(parser, "model", nargs="?", metavar="MODEL", completes="model", help="a name or a file")
    flag(parser, "-m", metavar="MODEL", completes="model", help="the model, as a flag")
    flag(parser, "-prompt", type=int, metavar="N", help="tokens of the text (default: 288, or what fits)")
    kv_flag(parser)
    flag(parser, "-device", dest="backend", metavar="D", help="auto, webgpu, webgpu:NAME or numpy (default: auto)")
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    from llamay import arch, gguf, settings
    from llamay.cli import models, status
    from llamay.serve.loading import load
    from llamay.verify.run import TEXT, verify
    from llamay.verify.subject import ANSWER

    if args.m is not None and args.model is not None:
        raise UsageError(f"-m {args.m} and {args.model} both name a model: give one of them")
    in_force = settings.load({key: getattr(args, key) for key in ("kv", "backend")})
    path = models.path(args.m or args.model or "", in_force)
    length = TEXT if args.prompt is None else args.prompt
    with gguf.open(path) as file:
        context = min(length + ANSWER, arch.describe(file).context)
    found = []
    with status.waiting(f"loading {args.m or args.model or 'the model'}"):
        loaded = load.load(path, replace(in_force, context=max(context, 1)), direct=True)
    with loaded:
        note(f"{loaded.describe()} · {loaded.executor.numerics}")
        for row in verify(loaded, status.say, length):
            status.clear()
            found.append(row)
            if not args.json:
                print(line(row, colour=coloured()), flush=True)
        facts = {"model": loaded.name, "device": loaded.device, "numerics": loaded.executor.numerics}
        _keep(found, loaded, in_force, min(length, loaded.context - ANSWER))
    green = all(row.green for row in found)
    if args.json:
        print(json.dumps({**facts, "green": green, "rows": [_as_json(row) for row in found]}, indent=2))
    return 0 if green else 1


def _keep(rows: list["Row"], loaded: "Loaded", in_force: "Settings", length: int) -> None:
    """Keeps for `info` what was measured of the KV formats."""
    from llamay.errors import LlamayError
    from llamay.verify import safety

    found = safety.Safety.of(rows, loaded.device, length)
    if found is None:
        return
    try:
        safety.remember(found, in_force, loaded.file.paths)
    except (OSError, LlamayError) as error:
        note(f"`info` will not know which KV formats are safe: {error}")


def line(row: "Row", *, colour: bool = False) -> str:
    """`✓ green  name  figure (bound)  note`."""
    from llamay.cli.terminal import plain

    word = "✓ green" if row.green else "✗ red  "
    if colour:
        word = f"\x1b[3{2 if row.green else 1}m{word}\x1b[0m"
    if math.isnan(row.figure):
        return f"{word}  {row.name:<38}  {plain(row.note)}"
    sign = "at least" if row.least else "at most"
    note = f"  {plain(row.note)}" if row.note else ""
    return f"{word}  {row.name:<38}  {_figure(row)} (bound: {sign} {_bound(row)}){note}"


def coloured() -> bool:
    """Whether stdout shows colours."""
    return live(sys.stdout) and not os.environ.get("NO_COLOR")


def _figure(row: "Row") -> str:
    if row.unit.startswith("%"):
        return f"{row.figure:.3g}{row.unit}"
    return f"{_number(row.figure)} {row.unit}"


def _bound(row: "Row") -> str:
    return f"{row.bound:.3g}%" if row.unit.startswith("%") else _number(row.bound)


def _number(value: float) -> str:
    return f"{value:.1e}" if value % 1 or not math.isfinite(value) else f"{value:,.0f}"


def _as_json(row: "Row") -> dict[str, object]:
    return {
        "name": row.name,
        "green": row.green,
        "figure": row.figure if math.isfinite(row.figure) else None,
        "bound": row.bound,
        "bound_is": "least" if row.least else "most",
        "unit": row.unit,
        "note": row.note,
    }
