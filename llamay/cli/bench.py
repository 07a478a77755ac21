"""`llamay bench`: how fast a model runs here, where the time goes, and what share of the bandwidth that is."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from llamay.cli.flags import Parser, argument, flag, json_flag
from llamay.cli.terminal import note, plain
from llamay.errors import UsageError

if TYPE_CHECKING:
    from llamay.bench.measure import Samples
    from llamay.bench.probe import Parts
    from llamay.bench.report import Report
    from llamay.bench.target import Target
    from llamay.settings import Settings

NAME = "bench"
HELP = "measure prefill, decode and time to the first token, and where the time goes"

EPILOG = """\
llamay bench MODEL              one request: prefill, decode, time to the first token
llamay bench MODEL -forks 32    fork, snapshot and restore of a 2048-token context, against computing it again
llamay bench MODEL -batch 8     decoding with 1, 2, 4, 8 requests at once: tokens and CPU time

-synthetic SHAPE:TYPE makes a model of a real shape with random weights in memory, for speed only:
llama-1b:q4_k_m, llama-8b:q4_k_m, qwen-0.5b:q8_0 ... (a wrong name lists them all)."""


def configure(parser: Parser) -> None:
    from llamay.cli.run import add_load_flags

    parser.epilog = EPILOG
    argument(parser, "model", nargs="?", metavar="MODEL", completes="model", help="a name or a file")
    flag(parser, "-m", metavar="MODEL", completes="model", help="the model, as a flag")
    flag(parser, "-synthetic", metavar="SPEC", help="random weights of a real shape instead of a model")
    flag(
        parser, "-prompt", type=int, metavar="N",
        help="tokens of the prompt, or with -forks of the context (default: 512; with -forks 2048, with -batch 128)",
    )  # fmt: skip
    flag(parser, "-gen", type=int, metavar="N", help="tokens to generate (default: 128; with -batch 64)")
    flag(parser, "-reps", type=int, default=3, metavar="N", help="repetitions, after a warm-up (default: 3)")
    flag(parser, "-forks", type=int, metavar="N", help="measure forking a context so many times, saving and restoring it")
    flag(parser, "-batch", type=int, metavar="N", help="measure decoding of 1, 2, 4 ... N requests at once")
    flag(parser, "-sweep", action="store_true", help="measure prefill with each tile width of the device, too")
    add_load_flags(parser)
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    from llamay import settings

    if args.forks is not None and args.batch is not None:
        raise UsageError("-forks and -batch measure different things: give one of them")
    if args.forks is not None or args.batch is not None:
        for name, given in (("-sweep", args.sweep), ("-c", args.context is not None)):
            if given:
                raise UsageError(f"{name} is for measuring one request; leave it out, or -forks and -batch")
    in_force = settings.load({key: getattr(args, key) for key in ("context", "kv", "kv_mem", "backend")})
    if args.forks is not None:
        return _forks(args, in_force)
    return _single(args, in_force) if args.batch is None else _batch(args, in_force)


def _single(args: argparse.Namespace, in_force: "Settings") -> int:
    from llamay.bench import report
    from llamay.cli import status

    prompt, generated = _or(args.prompt, 512), _or(args.gen, 128)
    report.check(prompt, generated, args.reps)
    with target_of(args, in_force, prompt + generated) as target:
        tell(target)
        found = report.run(target, prompt, generated, args.reps, status.say, widths=args.sweep)
        status.clear()
        if args.sweep and not found.widths:
            print(f"llamay: {target.device} has no tile widths to sweep over", file=sys.stderr)
    print(json.dumps(found.as_json(), indent=2) if args.json else "\n".join(lines(found)))
    return 0


def _forks(args: argparse.Namespace, in_force: "Settings") -> int:
    from llamay.bench import forks, report, shared
    from llamay.cli import bench_rows, status

    if args.gen is not None:
        raise UsageError("-gen has no meaning with -forks: each fork generates one token")
    named = named_of(args, in_force)
    tokens = _or(args.prompt, 2048)
    forks.check(args.forks, tokens, args.reps)
    if args.prompt is None:
        tokens = min(tokens, shared.longest(named) - forks.BEYOND)
    in_force.cache.mkdir(parents=True, exist_ok=True)
    with shared.open_shared(named, in_force, forks.room_of(args.forks, tokens)) as target:
        tell(target)
        found = forks.run(target, args.forks, tokens, args.reps, in_force.cache, status.say)
        status.clear()
        facts = report.facts(target)
        page = [*bench_rows.heading(target), *bench_rows.forks(found)]
    print(json.dumps({**facts, **found.as_json()}, indent=2) if args.json else "\n".join(page))
    return 0


def _batch(args: argparse.Namespace, in_force: "Settings") -> int:
    from llamay.bench import batch, report, shared
    from llamay.cli import bench_rows, status

    prompt, generated = _or(args.prompt, 128), _or(args.gen, 64)
    batch.check(args.batch, prompt, generated, args.reps)
    with shared.open_shared(named_of(args, in_force), in_force, batch.room_of(args.batch, prompt, generated)) as target:
        tell(target)
        facts = {**report.facts(target), "prompt": prompt, "generated": generated, "reps": args.reps}
        if not args.json:
            print("\n".join(bench_rows.heading(target)))
        found: list[batch.Width] = []
        for width in batch.run(target, args.batch, prompt, generated, args.reps, status.say):
            status.clear()
            found.append(width)
            if not args.json:
                print(bench_rows.batch(width, found[0]), flush=True)
    if args.json:
        print(json.dumps({**facts, "widths": [width.as_json(found[0]) for width in found]}, indent=2))
    return 0 if all(width.same for width in found) else 1


def tell(target: "Target") -> None:
    """The notes on it, to stderr."""
    for news in target.notes:
        note(news)


def _or(value: int | None, usual: int) -> int:
    return usual if value is None else value


def target_of(args: argparse.Namespace, in_force: "Settings", context: int) -> "Target":
    """The model the flags name, loaded for one request."""
    from llamay.bench.target import open_file, open_synthetic
    from llamay.cli import status

    named = named_of(args, in_force)
    if isinstance(named, str):
        with status.waiting(f"making {named}"):
            return open_synthetic(named, in_force, context)
    with status.waiting(f"loading {args.m or args.model or 'the model'}"):
        return open_file(named, in_force, context)


def named_of(args: argparse.Namespace, in_force: "Settings") -> Path | str:
    """The file of the model the flags name, or the specification of a synthetic one."""
    from llamay.cli import models

    named = [name for name in (args.model, args.m, args.synthetic) if name is not None]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} are {len(named)} models to measure: give one of them")
    if args.synthetic is not None:
        return str(args.synthetic)
    return models.path(named[0] if named else "", in_force)


def lines(report: "Report") -> list[str]:
    """The page."""
    from llamay.store.progress import size

    facts, figures, memory = report.target, report.figures, report.memory
    dispatches = "no dispatches" if facts["dispatches"] is None else f"{facts['dispatches']} dispatches a token"
    weights = memory.file_weights if memory.device_weights is None else memory.device_weights
    where = "" if memory.device_weights is None else f" on the device ({size(memory.file_weights)} in the file)"
    decode = (
        f"{time_of(min(figures.decode.seconds) / figures.decode.tokens)} a token, {figures.steps} steps a submission"
    )
    first, best = sorted(figures.first.seconds)[len(figures.first.seconds) // 2], min(figures.first.seconds)
    return [
        f"{facts['device']} · kernels {facts['kernels']} · kv {facts['kv']} · {dispatches}",
        f"{plain(str(facts['model']))} · weights {size(weights)}{where} · context {facts['context']} · "
        f"prompt {report.prompt} · generate {report.generated}",
        "",
        row("prefill", figures.prefill, f"{report.prompt} tokens in {time_of(min(figures.prefill.seconds))}"),
        row("decode", figures.decode, decode),
        f"{'ttft':<8}{time_of(first):>10}        best {time_of(best):>9}   prompt to first token, loaded and warm",
        *(
            row(
                "prefill",
                width.samples,
                f"{width.tokens} tokens a workgroup" + ("" if width.same else ", OTHER LOGITS"),
            )
            for width in report.widths
        ),
        "",
        *device_lines(report),
        bandwidth_line(report),
        memory_line(report),
    ]


def row(name: str, samples: "Samples", note: str) -> str:
    """A name, the middle rate, the best one, a note."""
    return f"{name:<8}{samples.rate:>10.1f} tok/s  best {samples.best:>9.1f}   {note}"


def device_lines(report: "Report") -> list[str]:
    """Host against device, and the parts of the device's time."""
    token, prompt = report.token, report.whole_prompt
    if token is None or prompt is None:
        return ["cpu encoding none · gpu execution none: NumPy computes at once, on the host", "gpu time: none"]
    whole = min(report.figures.decode.seconds) / report.figures.decode.tokens
    shares = [f"{time_of(part)} ({part / whole:.1%} of a token)" for part in (token.encoding, token.kernels)]
    clock = "" if token.clocked else " (by the host's clock: this device has no timestamps)"
    return [
        f"cpu encoding {shares[0]} · gpu execution {shares[1]}{clock}",
        f"gpu time: {parts(token)} a token; {parts(prompt)} a prompt",
    ]


def parts(of: "Parts") -> str:
    """staging .. kernels .. copy-back .."""
    return f"staging {time_of(of.staging)} · kernels {time_of(of.kernels)} · copy-back {time_of(of.copy_back)}"


def bandwidth_line(report: "Report") -> str:
    """What a token reads, against a copy."""
    from llamay.store.progress import size

    found = report.bandwidth
    kept = f"{size(found.weights)} of weights and {size(found.keys_values)} of keys and values"
    return (
        f"bandwidth: a token reads {kept}: {size(found.reached)}/s, {found.share:.0%} of a copy's {size(found.copy)}/s"
    )


def memory_line(report: "Report") -> str:
    """Host and device."""
    from llamay.store.progress import size

    memory = report.memory
    peak = "peak RSS not known here" if memory.peak_rss is None else f"peak RSS {size(memory.peak_rss)}"
    if memory.grown is not None and report.reps > 1:
        peak += f", {size(max(memory.grown, 0))} more after the first repetition"
    if memory.device is None or memory.device_weights is None or memory.device_kv is None:
        return f"memory: {peak} · device none"
    held = f"weights {size(memory.device_weights)}, keys and values {size(memory.device_kv)}"
    return f"memory: {peak} · device {size(memory.device)}: {held}, the rest working space"


def time_of(seconds: float) -> str:
    """41us, 33.1ms, 3.142s."""
    if seconds < 1e-3:
        return f"{seconds * 1e6:.0f}us"
    return f"{seconds * 1e3:.1f}ms" if seconds < 1 else f"{seconds:.3f}s"
