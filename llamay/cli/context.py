"""`llamay context`: the saved contexts: listed, shown, compared, removed, carried between machines."""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from llamay.cli.flags import Parser, argument, flag, json_flag
from llamay.errors import UsageError

if TYPE_CHECKING:
    from llamay.kv.snapshots import Folder, Parting, Saved

NAME = "context"
HELP = "list, show, compare, remove, export and import saved contexts"

EPILOG = """\
llamay context list [-tag TAG]            what is saved, newest first
llamay context show NAME [-text] [-check] what one is; its text; whether every page is sound
llamay context diff NAME NAME [-m MODEL]  where two part, and both texts from there
llamay context rm NAME ... [-unused]      remove them, and the pages nobody uses
llamay context export NAME FILE           write one to a file, for another machine
llamay context import FILE [-name NAME]   save the one in a file"""

SHOWN = 2000  # characters of each text that diff prints
WORDS = {"list": "", "show": "NAME", "diff": "NAME NAME", "rm": "NAME ...", "export": "NAME FILE", "import": "FILE"}


def configure(parser: Parser) -> None:
    parser.epilog = EPILOG
    argument(parser, "action", choices=tuple(WORDS), metavar="ACTION", help=", ".join(WORDS))
    argument(parser, "words", nargs="*", default=(), metavar="NAME", help="names of saved contexts, or a file")
    flag(parser, "-tag", metavar="TAG", help="list: only those with this tag")
    flag(parser, "-text", action="store_true", help="show: print the text and nothing else")
    flag(parser, "-check", action="store_true", help="show: read every page and compare its checksum")
    flag(parser, "-m", metavar="MODEL", completes="model", help="diff: the model whose tokenizer gives the texts")
    flag(parser, "-unused", action="store_true", help="rm: remove pages nobody uses and what killed saves left")
    flag(parser, "-name", metavar="NAME", help="import: save it under this name")
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    from llamay import settings
    from llamay.kv.snapshots import Folder

    wanted = WORDS[args.action]
    if not wanted.endswith("...") and len(args.words) != len(wanted.split()):
        given = " ".join(map(repr, args.words)) or "nothing"
        raise UsageError(f"{args.action} takes {wanted or 'no names'} and was given {given} (see `llamay context -help`)")
    folder = Folder(settings.load().contexts)
    actions = {"list": _list, "show": _show, "diff": _diff, "rm": _rm, "export": _export, "import": _import}
    actions[args.action](folder, args)
    return 0


def _list(folder: "Folder", args: argparse.Namespace) -> None:
    from llamay.cli.list import age
    from llamay.cli.terminal import plain
    from llamay.store.progress import size

    survey = folder.survey()
    for path, reason in survey.broken:
        print(f"llamay context: {path.name} is broken: {plain(reason)}", file=sys.stderr)
    users = Counter(digest for saved in survey.contexts for digest in saved.manifest.digests())
    chosen = [saved for saved in survey.contexts if args.tag is None or args.tag in saved.manifest.tags]
    rows = [_row(folder, saved, users) for saved in chosen]
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    if not chosen:
        print(f"llamay context: {_nothing(survey.contexts, args.tag)}", file=sys.stderr)
    table = [("NAME", "TOKENS", "SIZE", "OWN", "SAVED", "MODEL", "TAGS")]
    for saved, row in zip(chosen, rows, strict=True):
        when = age(time.time() - saved.manifest.created)
        names = plain(row["model"]), ", ".join(row["tags"])
        table.append((row["name"], str(row["tokens"]), size(row["bytes"]), size(row["own_bytes"]), when, *names))
    widths = [max(len(line[column]) for line in table) for column in range(len(table[0]))]
    for line in table:
        print("    ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip())


def _nothing(there: "Sequence[Saved]", tag: str | None) -> str:
    """Why a list is empty, and what would fill it."""
    if there:
        return f"none of the {len(there)} saved has the tag {tag!a}"
    return "nothing is saved yet; `s` in `llamay tui` saves a context, as context.snapshot() does from Python (docs/contexts.md)"


def _row(folder: "Folder", saved: "Saved", users: "Counter[str]") -> dict[str, Any]:
    """What list and show tell of one; `own_bytes` would be freed by removing it."""
    manifest = saved.manifest
    digests = manifest.digests()
    own = [digest for digest in digests if users[digest] == 1]
    return {
        "name": manifest.name,
        "tags": list(manifest.tags),
        "created": datetime.fromtimestamp(manifest.created, UTC).isoformat(),
        "parent": manifest.parent,
        "tokens": len(manifest.tokens),
        "held": manifest.held,
        "pages": len(digests),
        "bytes": saved.description_bytes + folder.stored_bytes(digests),
        "own_bytes": saved.description_bytes + folder.stored_bytes(own),
        "model": manifest.origin.model,
        "weights": manifest.origin.weights,
        "numerics": manifest.origin.numerics,
        "kv": manifest.origin.kv,
        "state": sorted(manifest.state),
    }


def _show(folder: "Folder", args: argparse.Namespace) -> None:
    from llamay.cli.terminal import plain
    from llamay.kv.snapshots import verify
    from llamay.store.progress import size

    saved = folder.find(args.words[0])
    if args.check:
        verify(folder, saved.manifest)
    if args.text:
        text = saved.manifest.text
        print(plain(text, lines=True) if sys.stdout.isatty() else text)
        return
    users = Counter(digest for other in folder.survey().contexts for digest in other.manifest.digests())
    row = _row(folder, saved, users)
    if args.json:
        print(json.dumps({**row, "text": saved.manifest.text, "token_ids": list(saved.manifest.tokens)}, indent=2))
        return
    pages = f"{row['pages']} of {' and '.join(size(shape.page_bytes) for shape in saved.manifest.origin.groups)}"
    lines = [
        ("name", row["name"]),
        ("tags", ", ".join(row["tags"])),
        ("saved", f"{datetime.fromtimestamp(saved.manifest.created, UTC):%Y-%m-%d %H:%M:%S} UTC"),
        ("forked from", row["parent"]),
        ("tokens", f"{row['tokens']}, {row['held']} of them in pages"),
        ("pages", pages + (", all sound" if args.check else "")),
        ("on disk", f"{size(row['bytes'])}, {size(row['own_bytes'])} of it used by nothing else"),
        ("model", f"{row['model']} ({row['weights']})"),
        ("computed by", f"{row['numerics']}, kv {row['kv']}"),
        ("state", ", ".join(row["state"])),
        ("begins", saved.manifest.text[:100]),
    ]
    print("\n".join(f"{label:<13}{plain(value)}" for label, value in lines if value))


def _diff(folder: "Folder", args: argparse.Namespace) -> None:
    from llamay.kv.snapshots import parting

    left, right = (folder.find(name).manifest for name in args.words)
    found = parting(left, right)
    texts = found.texts if args.m is None else _decoded(args.m, found)
    if args.json:
        print(
            json.dumps(
                {
                    "common_tokens": found.common,
                    "tokens": found.tokens,
                    "shared_pages": found.shared,
                    "pages": found.pages,
                    "rest": found.rest,
                    "texts": texts,
                },
                indent=2,
            )
        )
        return
    names = left.name, right.name
    print(f"{names[0]} and {names[1]} " + _parted(found))
    if left.origin.weights != right.origin.weights:
        print("they are of other weights: their tokens may mean other texts")
    print(f"{found.shared} pages of {found.pages[0]} and {found.pages[1]} are the same")
    if not found.same:
        for name, text, rest in zip(names, texts, found.rest, strict=True):
            print(f"--- {name}")
            print(_shown(text) if text else f"tokens {' '.join(map(str, rest[:100]))}{' ...' if rest[100:] else ''}")


def _parted(found: "Parting") -> str:
    if found.same:
        return f"have the same {found.common} tokens"
    after = f"{len(found.rest[0])} and {len(found.rest[1])} follow"
    return f"begin with the same {found.common} tokens, then part: {after}"


def _decoded(model: str, found: "Parting") -> tuple[str, str]:
    """Both texts from where they part, by the tokenizer of a model; UsageError where it lacks a token."""
    from llamay import gguf, settings, tok
    from llamay.cli import models

    with gguf.open(models.path(model, settings.load())) as file:
        tokenizer = tok.load(file.metadata)
        ours, theirs = (tokenizer.text(rest, special=True, continues=True) for rest in found.rest)
        return ours, theirs


def _shown(text: str) -> str:
    from llamay.cli.terminal import plain

    more = f"\n... {len(text) - SHOWN} characters more" if len(text) > SHOWN else ""
    return plain(text[:SHOWN], lines=True) + more


def _rm(folder: "Folder", args: argparse.Namespace) -> None:
    from llamay.store.progress import size

    if not args.words and not args.unused:
        raise UsageError(
            "nothing to remove was named (`llamay context list` shows what there is; -unused removes leftovers)"
        )
    for name in dict.fromkeys(args.words):
        print(f"removed {name}, {size(folder.remove(name))} freed", file=sys.stderr)
    if args.unused:
        print(f"removed what no context uses, {size(folder.sweep())} freed", file=sys.stderr)


def _export(folder: "Folder", args: argparse.Namespace) -> None:
    from pathlib import Path

    from llamay.kv.snapshots import export
    from llamay.store.progress import size

    name, path = args.words
    print(f"wrote {name} to {path}, {size(export(folder, name, Path(path)))}", file=sys.stderr)


def _import(folder: "Folder", args: argparse.Namespace) -> None:
    from pathlib import Path

    from llamay.kv.snapshots import import_file

    saved = import_file(folder, Path(args.words[0]), args.name or "")
    print(
        f"{saved.name} is saved: {len(saved.manifest.tokens)} tokens of {saved.manifest.origin.model}", file=sys.stderr
    )
