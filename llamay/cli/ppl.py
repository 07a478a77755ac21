"""`llamay ppl`: the perplexity of a text under a model, comparable with llama-perplexity's."""

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from llamay.cli.flags import Parser, argument, flag, json_flag, kv_flag
from llamay.cli.terminal import fitted, live, note
from llamay.errors import UsageError

if TYPE_CHECKING:
    from llamay.ppl import Estimate

NAME = "ppl"
HELP = "measure the perplexity of a text, by the scheme of llama-perplexity"

CONTEXT = 512  # tokens of a chunk, as llama-perplexity has it


def configure(parser: Parser) -> None:
    argument(parser, "model", nargs="?", metavar="MODEL", completes="model", help="a name or a file")
    flag(parser, "-m", metavar="MODEL", completes="model", help="the model, as a flag")
    flag(parser, "-f", dest="file", metavar="FILE", completes="file", help="the text")
    flag(
        parser,
        "-c",
        "-ctx",
        dest="context",
        type=int,
        metavar="N",
        help="tokens of a chunk (default: 512, or what the model takes)",
    )
    flag(parser, "-chunks", type=int, metavar="N", help="at most N chunks (default: all of the text)")
    kv_flag(parser)
    flag(parser, "-device", dest="backend", metavar="D", help="auto, webgpu, webgpu:NAME or numpy (default: auto)")
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    from llamay import arch, gguf, ppl, settings
    from llamay.cli import models, status
    from llamay.serve.loading import load

    if args.file is None:
        raise UsageError("which text? -f FILE")
    if args.m is not None and args.model is not None:
        raise UsageError(f"-m {args.m} and {args.model} both name a model: give one of them")
    text = Path(args.file).read_bytes()
    in_force = settings.load({key: getattr(args, key) for key in ("kv", "backend")})
    path = models.path(args.m or args.model or "", in_force)
    with gguf.open(path) as file:
        context = min(CONTEXT, arch.describe(file).context) if args.context is None else args.context
    ppl.check(context, args.chunks)
    with status.waiting(f"loading {args.m or args.model or 'the model'}"):
        loaded = load.load(path, replace(in_force, context=context), direct=True)
    with loaded:
        note(loaded.describe())
        ids = ppl.tokens_of(loaded, text)
        chunks = ppl.chunk_count(len(ids), context, args.chunks)
        bos = loaded.tokenizer.bos if loaded.tokenizer.add_bos else None
        progress, running = Progress(), []
        for estimate in ppl.perplexity(loaded.executor, ids, context, chunks, bos):
            running.append(estimate)
            progress.show(estimate)
        found = _as_json(running, len(ids), context, loaded.name, loaded.device)
    last = running[-1]
    print(json.dumps(found, indent=2) if args.json else f"PPL = {last.perplexity:.4f} +/- {last.uncertainty:.5f}")
    return 0


class Progress:
    """The running estimate on stderr: one line that changes on a terminal, one a chunk elsewhere."""

    def __init__(self) -> None:
        self._start = time.monotonic()
        self._terminal = live(sys.stderr)

    def show(self, estimate: "Estimate") -> None:
        """After a chunk."""
        from llamay.store.progress import duration

        spent = time.monotonic() - self._start
        left = spent / estimate.chunks * (estimate.of - estimate.chunks)
        line = f"chunk {estimate.chunks} of {estimate.of}  PPL {estimate.perplexity:.4f}  {duration(left)} left"
        last = estimate.chunks == estimate.of
        end = "\n" if last or not self._terminal else ""
        print(f"\r\x1b[K{fitted(line)}" if self._terminal else line, end=end, file=sys.stderr, flush=True)


def _as_json(running: list["Estimate"], tokens: int, context: int, model: str, device: str) -> dict[str, object]:
    last = running[-1]
    return {
        "model": model,
        "device": device,
        "tokens": tokens,
        "context": context,
        "chunks": last.chunks,
        "scored": last.tokens,
        "perplexity": last.perplexity,
        "uncertainty": last.uncertainty,
        "mean_nll": last.mean,
        "running": [estimate.perplexity for estimate in running],
        "chunk_nll": [estimate.chunk_mean for estimate in running],
    }
