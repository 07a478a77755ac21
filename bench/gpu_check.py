"""One command for a machine with a GPU: is every number right here, and how fast is it?  Under four minutes.

    python bench/gpu_check.py [--short] [--device NAME] [--json FILE]

Runs the adapter's self-test, the kernels against their twins, the tiny models against the
references in tests/data, the promises of `llamay verify`, and `llamay bench` on three models
of real shapes with random weights; prints one table and exits with 1 when something is wrong.
On a software adapter the models are smaller; --short is what the tests run.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from llamay import __version__, arch, gguf, model, settings
from llamay.bench import report, target
from llamay.bench.kernels import TYPES, kernel_rows
from llamay.bench.synthetic import make
from llamay.errors import LlamayError, WrongNumbers
from llamay.sample import Sampling
from llamay.serve.loading import devices, load
from llamay.tensor.batch import PAGE, Batch
from llamay.tensor.webgpu.selftest import Row
from llamay.verify.run import verify

ROOT = Path(__file__).parents[1]
DATA = ROOT / "tests" / "data"
BUDGET = 230.0  # seconds for everything
SPARE = 15.0  # of them, kept back
KERNELS_SHARE, FIXTURES_SHARE = 0.3, 0.2  # of the budget, at most
SWEPT = 2  # models whose prefill is measured by tile width
SMALLEST_TOLD = 50_000_000  # bytes; the time of a smaller model says nothing about that of a larger one
GREEDY = Sampling(temperature=0.0)
TOLERANCE = 3e-4  # largest difference of a logit of the tiny models
FIXTURE_PAGES = 8

Size = tuple[str, int, int, int]  # synthetic model, prompt, generated, repetitions
SIZES: dict[str, tuple[Size, ...]] = {
    "gpu": (("qwen-0.5b:q8_0", 512, 128, 3), ("llama-1b:q4_k_m", 512, 128, 3), ("llama-8b:q4_k_m", 512, 64, 2)),
    "software": (("tiny:q4_k_m", 128, 32, 2), ("smollm2-135m:q4_1", 64, 16, 2), ("smollm2-360m:q4_k_m", 32, 8, 1)),
    "short": (("tiny:q4_k_m", 16, 4, 1),),
}
# a full suite takes minutes on a software adapter; these go through every part of it
SHORT_CASES = ("llama-gqa.f16", "qwen2-k.q4_k")


@dataclass(slots=True)
class Step:
    """One thing that was checked.  `ok` None: it could not be, and the note says why."""

    name: str
    ok: bool | None
    note: str
    seconds: float = 0.0


@dataclass(slots=True)
class Check:
    """The whole run."""

    settings: settings.Settings
    short: bool
    say: Callable[[str], None]
    start: float = field(default_factory=time.monotonic)
    steps: list[Step] = field(default_factory=list)
    rows: list[dict[str, Any]] = field(default_factory=list)  # of `llamay verify`
    reports: list[dict[str, Any]] = field(default_factory=list)  # of `llamay bench`
    taken: list[tuple[int, float]] = field(default_factory=list)  # bytes and seconds of the models so far
    adapter: dict[str, Any] = field(default_factory=dict)

    @property
    def left(self) -> float:
        """Seconds of the budget that are left."""
        return BUDGET - (time.monotonic() - self.start)

    def run(self, name: str, step: Callable[[], tuple[bool | None, str]]) -> None:
        """Runs one step; an error is its result."""
        self.say(f"{name} ...")
        start = time.monotonic()
        try:
            ok, note = step()
        except LlamayError as error:
            ok, note = False, f"{type(error).__name__}: {error}"
        self.steps.append(Step(name, ok, note, time.monotonic() - start))
        self.say(shown(self.steps[-1]))

    @property
    def good(self) -> bool:
        """Whether nothing went wrong."""
        return all(step.ok is not False for step in self.steps)


def main(words: list[str] | None = None) -> int:
    """Runs everything and prints the table; the exit code says whether all of it was right."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--short", action="store_true", help="a few seconds of everything")
    parser.add_argument("--device", help="webgpu:NAME for another adapter than the best")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all figures there")
    args = parser.parse_args(words)
    found = Check(settings.load({"backend": args.device or "webgpu"}), args.short, lambda text: print(text, flush=True))
    everything(found)
    print("\n" + "\n".join(table(found)))
    if args.json is not None:
        args.json.write_text(json.dumps(as_json(found), indent=2) + "\n", encoding="utf-8")
    return 0 if found.good else 1


def everything(check: Check) -> None:
    """All steps in order; without an adapter only the first."""
    check.run("adapter", lambda: adapter(check))
    if not check.good:
        return
    check.run("self-test", lambda: self_test(check))
    check.run("tuning", lambda: tuning(check))
    check.run("kernels", lambda: kernels(check))
    check.run("fixtures", lambda: fixtures(check))
    check.run("promises", lambda: promises(check))
    software = bool(check.adapter["type"] == "CPU")
    for number, size in enumerate(SIZES["short" if check.short else "software" if software else "gpu"]):
        check.run(f"bench {size[0]}", lambda size=size, number=number: bench(check, *size, widths=number < SWEPT))


def adapter(check: Check) -> tuple[bool, str]:
    """Which adapter it is, and what it has."""
    choice = devices.choose(check.settings)
    if choice.adapter is None:
        return False, f"no adapter: {choice.reason}"
    names = [each.name for each in fields(choice.adapter) if each.name != "handle"]
    check.adapter.update({name: getattr(choice.adapter, name) for name in names})
    return True, f"{choice.name}, {choice.adapter.driver}, {choice.adapter.type}; {' '.join(choice.adapter.features)}"


def self_test(check: Check) -> tuple[bool | None, str]:
    """What a load tests of its own kernels, of small models of the usual tensor types."""
    chosen = devices.choose(check.settings).adapter
    if chosen is None:
        return False, "no adapter"
    rows: list[Row] = []
    types = TYPES[:1] if check.short else TYPES
    try:
        rows += kernel_rows(chosen, check.settings.cache, types)
    except WrongNumbers as error:
        return False, str(error)
    unused = [f"{row.kernel} ({row.note})" for row in rows if not row.passed]
    worst = max(row.error for row in rows if row.tokens == 1)
    note = f"{len(rows)} kernels of {', '.join(types)}, largest error {worst:.2g} of its bound"
    return True, f"{note}; widths not used: {'; '.join(unused)}" if unused else note


def tuning(check: Check) -> tuple[bool | None, str]:
    """How the kernels are launched, measured now."""
    chosen = devices.choose(check.settings).adapter
    if chosen is None:
        return False, "no adapter"
    found = devices.kernels(chosen, check.settings, measure=not check.short)
    check.adapter.update({"launch": found.launch, "numerics": found.numerics, "tuning": found.tuning})
    return True, f"{found.launch}; {found.tuning}"


def kernels(check: Check) -> tuple[bool | None, str]:
    """Every kernel against its twin, by the project's own tests."""
    folder = ROOT / "tests" / "kernels"
    if check.short:
        return None, "left out: `make test` runs them"
    if not folder.is_dir() or find_spec("pytest") is None:
        return None, 'needs tests/kernels and pytest: a checkout, and pip install -e ".[dev]"'
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider", str(folder)]
    environment = {**os.environ, settings.variable("backend"): check.settings.backend}
    limit = KERNELS_SHARE * BUDGET
    try:
        ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=limit)
    except subprocess.TimeoutExpired:
        return None, f"not through after {limit:.0f} s, so stopped; `pytest tests/kernels` runs them all"
    lines = ran.stdout.strip().splitlines() or [ran.stderr.strip()[-200:]]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    return ran.returncode == 0, "; ".join([lines[-1], *failed[:3]])


def fixtures(check: Check) -> tuple[bool | None, str]:
    """The tiny models against transformers: logits of every position, and greedy continuations."""
    from llamay.tensor.webgpu.device import Device
    from llamay.tensor.webgpu.executor import WebGPUExecutor

    paths = sorted((DATA / "models").glob("*.gguf"))
    if check.short:
        paths = [path for path in paths if path.stem in SHORT_CASES]
    if not paths:
        return None, "needs tests/data: a checkout"
    chosen = devices.choose(check.settings).adapter
    if chosen is None:
        return False, "no adapter"
    device = Device(chosen)
    worst, wrong, done = 0.0, [], 0
    until = time.monotonic() + FIXTURES_SHARE * BUDGET
    try:
        for path in paths:
            if time.monotonic() > until:
                break
            with gguf.open(path) as file:
                program = model.bind(file, arch.describe(file)).program
                executor = WebGPUExecutor(device, program, FIXTURE_PAGES, rows=64)
                off, differ = compare(executor, references(path))
            worst, done = max(worst, off), done + 1
            if differ or not off <= TOLERANCE:
                wrong.append(f"{path.stem} ({off:.1e}{', other tokens' if differ else ''})")
    finally:
        device.close()
    count = f"{done} models" if done == len(paths) else f"{done} of {len(paths)} models, then their time was up"
    note = f"{count}, largest difference of a logit {worst:.1e} (bound {TOLERANCE:.0e})"
    return not wrong, f"{note}; wrong: {', '.join(wrong)}" if wrong else note


def references(path: Path) -> dict[str, Any]:
    """What transformers computed for a tiny model."""
    name = path.stem if ".q" in path.stem else path.stem.rsplit(".", 1)[0]
    with np.load(DATA / "logits" / f"{name}.npz") as found:
        return dict(found)


def compare(executor: Any, expected: dict[str, Any]) -> tuple[float, bool]:
    """The largest difference of a logit, and whether some greedy continuation differs."""
    table, off, differ = np.arange(FIXTURE_PAGES, dtype=np.int32), 0.0, False
    for name, ids in expected.items():
        kind, _, prompt = name.partition("_")
        if kind == "ids" and len(ids) <= FIXTURE_PAGES * PAGE:
            tokens = ids.astype(np.int32)
            logits = executor.forward(Batch.single(tokens, 0, table, np.arange(len(tokens), dtype=np.int32)))
            off = max(off, float(np.abs(logits - expected[f"logits_{prompt}"]).max()))
        elif kind == "greedy":
            tokens = expected[f"ids_{prompt}"].astype(np.int32)
            executor.begin((GREEDY,), (tokens,))
            executor.submit(Batch.single(tokens, 0, table), 1)
            executor.submit(None, len(ids) - 1)
            found = np.concatenate([executor.collect(), executor.collect()])[:, 0]
            differ |= found.tolist() != ids.tolist()
    return off, differ


def promises(check: Check) -> tuple[bool | None, str]:
    """The rows of `llamay verify` for one tiny model."""
    path = DATA / "models" / f"{SHORT_CASES[0]}.gguf"
    if not path.exists():
        return None, "needs tests/data: a checkout"
    with load.load(path, check.settings) as loaded:
        for row in verify(loaded, lambda what: None, 48 if check.short else 200):
            check.rows.append({**asdict(row), "green": row.green})
    red = [row["name"] for row in check.rows if not row["green"]]
    return not red, f"red: {', '.join(red)}" if red else f"{len(check.rows)} rows green"


def bench(check: Check, spec: str, prompt: int, generated: int, reps: int, *, widths: bool) -> tuple[bool | None, str]:
    """One synthetic model: prefill (with `widths` by each tile width, too), decode, share of the bandwidth."""
    size = make(spec).bytes
    expected = max((seconds * size / before for before, seconds in check.taken), default=0.0)
    if expected > check.left - SPARE:
        return None, f"left out: it might take {expected:.0f} s, and {max(check.left, 0):.0f} of {BUDGET:.0f} are left"
    start = time.monotonic()
    with target.open_synthetic(spec, check.settings, prompt + generated) as made:
        found = report.run(made, prompt, generated, reps, lambda what: None, widths=widths).as_json()
    if size > SMALLEST_TOLD:
        check.taken.append((size, time.monotonic() - start))
    check.reports.append(found)
    odd = [str(width["tokens"]) for width in found["sweep"] if not width["same"]]
    note = f"prefill {found['prefill']['best']:.0f}, decode {found['decode']['best']:.1f} tok/s"
    return not odd, f"{note}; OTHER LOGITS with {', '.join(odd)} tokens a workgroup" if odd else note


def shown(step: Step) -> str:
    """A step as a line."""
    word = {True: "ok", False: "WRONG", None: "-"}[step.ok]
    return f"{word:<6}{step.name:<24}{step.seconds:>7.1f} s  {step.note}"


def table(check: Check) -> list[str]:
    """What was checked, then what was measured."""
    lines = [f"llamay {__version__} on {check.adapter.get('name', 'no adapter')}", *map(shown, check.steps)]
    if check.reports:
        lines += [
            "",
            f"{'model':<32}{'weights':>9}{'prefill':>10}{'decode':>9}{'ttft':>9}{'encoding':>10}{'copy':>10}{'share':>7}",
        ]
        lines += map(measured, check.reports)
        lines += [
            "prefill and decode: best tokens a second; encoding: share of a token's time; copy: GB/s read and written;",
            "share: what decoding reads a second, of the copy. Random weights of real shapes, for speed only.",
        ]
    return [*lines, f"{verdict(check)} in {time.monotonic() - check.start:.0f} s"]


def verdict(check: Check) -> str:
    """The last word, which claims no more than was checked."""
    wrong = sum(step.ok is False for step in check.steps)
    if wrong:
        return f"{wrong} WRONG"
    missing = sum(step.ok is None for step in check.steps)
    return f"NOTHING WRONG, {missing} not checked" if missing else "ALL RIGHT"


def measured(found: dict[str, Any]) -> str:
    """A model's figures as a row."""
    weights = (found["memory"]["device_weights"] or found["memory"]["file_weights"]) / 1e9
    token = min(found["decode"]["seconds"]) / (found["generated"] - 1)
    encoding = "-" if found["token"] is None else f"{found['token']['encoding'] / token:.1%}"
    return (
        f"{found['model']:<32}{weights:>6.2f} GB{found['prefill']['best']:>10.1f}{found['decode']['best']:>9.1f}"
        f"{found['ttft']['best'] * 1000:>6.0f} ms{encoding:>10}{found['bandwidth']['copy'] / 1e9:>10.1f}"
        f"{found['bandwidth']['share']:>7.1%}"
    )


def as_json(check: Check) -> dict[str, Any]:
    """Everything, with the machine it was found on."""
    return {
        "version": __version__,
        "machine": {
            "system": platform.platform(),
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "processor": platform.processor(),
        },
        "adapter": check.adapter,
        "good": check.good,
        "seconds": time.monotonic() - check.start,
        "steps": [asdict(step) for step in check.steps],
        "promises": check.rows,
        "bench": check.reports,
    }


if __name__ == "__main__":
    sys.exit(main())
