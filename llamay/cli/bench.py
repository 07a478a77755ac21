"""`llamay bench`: how fast a model runs here, where the time goes, and what share of the bandwidth that is."""

import argparse
import json
import sys
from typing import TYPE_CHECKING

from llamay.cli.flags import Parser, argument, flag, json_flag
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
-synthetic SHAPE:TYPE makes a model of a real shape with random weights in memory, for speed only:
llama-1b:q4_k_m, llama-8b:q4_k_m, qwen-0.5b:q8_0 ... (a wrong name lists them all)."""


def configure(parser: Parser) -> None:
    from llamay.cli.run import add_load_flags

    parser.epilog = EPILOG
    argument(parser, "model", nargs="?", metavar="MODEL", completes="model", help="a name or a file")
    flag(parser, "-m", metavar="MODEL", completes="model", help="the model, as a flag")
    flag(parser, "-synthetic", metavar="SPEC", help="random weights of a real shape instead of a model")
    flag(parser, "-prompt", type=int, default=512, metavar="N", help="tokens of the prompt (default: 512)")
    flag(parser, "-gen", type=int, default=128, metavar="N", help="tokens to generate (default: 128)")
    flag(parser, "-reps", type=int, default=3, metavar="N", help="repetitions, after a warm-up (default: 3)")
    flag(parser, "-sweep", action="store_true", help="measure prefill with each tile width of the device, too")
    add_load_flags(parser)
    json_flag(parser)


def run(args: argparse.Namespace) -> int:
    from llamay import settings
    from llamay.bench import report
    from llamay.cli import status

    report.check(args.prompt, args.gen, args.reps)
    in_force = settings.load({key: getattr(args, key) for key in ("context", "kv", "backend")})
    with target_of(args, in_force) as target:
        for note in target.notes:
            print(f"llamay: {note}", file=sys.stderr)
        found = report.run(target, args.prompt, args.gen, args.reps, status.say, widths=args.sweep)
        status.clear()
        if args.sweep and not found.widths:
            print(f"llamay: {target.device} has no tile widths to sweep over", file=sys.stderr)
    print(json.dumps(found.as_json(), indent=2) if args.json else "\n".join(lines(found)))
    return 0


def target_of(args: argparse.Namespace, in_force: "Settings") -> "Target":
    """The model the flags name, loaded."""
    from llamay.bench.target import open_file, open_synthetic
    from llamay.cli import models

    named = [name for name in (args.model, args.m, args.synthetic) if name is not None]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} are {len(named)} models to measure: give one of them")
    context = args.prompt + args.gen
    if args.synthetic is not None:
        return open_synthetic(args.synthetic, in_force, context)
    return open_file(models.path(named[0] if named else "", in_force), in_force, context)


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
        f"{facts['model']} · weights {size(weights)}{where} · context {facts['context']} · "
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
