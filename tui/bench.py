"""Screen 7: bench; `llamay bench` in a process of its own, each repetition as it comes, beside the last results here."""

import json
import threading
import time
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from llamay import __version__
from llamay.tui import commands, words
from llamay.tui.moment import Snapshot
from llamay.tui.pane import Host, Pane
from llamay.tui.rows import Column, Row, Rows

REPS, PROMPT, GENERATED = 3, 128, 32
KEPT = 10  # results that the sparklines show
COLUMNS = (
    Column("when", 12),
    Column("prefill tok/s", 13, right=True),
    Column("decode tok/s", 13, right=True),
    Column("ttft", 8, right=True),
    Column("model and device", 0),
)
HELLO = f"b measures the loaded model, or the default: {REPS} times a prompt of {PROMPT} tokens and {GENERATED} generated.  y copies the table."
BAR = 40


@dataclass(frozen=True, slots=True)
class Result:
    """One run."""

    at: float
    model: str
    device: str
    prefill: float  # tokens a second, the best repetition
    decode: float
    first: float  # seconds
    version: str = __version__


class Bench(Pane):
    """Bars of what runs, and a row for each earlier result."""

    TITLE = "bench"
    DEFAULT_CSS = """
    Bench > Static { height: auto; }
    Bench > #bars { min-height: 5; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("b", "run", "Measure"), Binding("x", "stop", "Stop")]

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._results: list[Result] = []
        self._under_way: threading.Event | None = None
        self._read = False

    def compose(self) -> ComposeResult:
        """What runs, its history, the table."""
        yield Static(HELLO, id="bars", markup=False)
        yield Static("", id="sparks", markup=False)
        yield Rows(COLUMNS, id="results")

    @property
    def file(self) -> Path:
        """Where results are kept."""
        return self.host.cache / "terminal-bench.jsonl"

    def take_focus(self) -> None:
        """Reads the results once."""
        self.query_one("#results", Rows).focus()
        if not self._read:
            self._read = True
            self.host.work(lambda: read(self.file), self._known)

    def shown(self, snapshot: Snapshot) -> None:
        """Nothing here is the server's."""

    def copied(self) -> str:
        """A table in Markdown, with machine and version."""
        head = "| when | model | device | llamay | prefill tok/s | decode tok/s | ttft |\n|---|---|---|---|---|---|---|"
        rows = [
            f"| {day(one.at)} | {one.model} | {one.device} | {one.version} | {one.prefill:.1f} | {one.decode:.1f} | {words.seconds(one.first)} |"
            for one in self._results
        ]
        return "\n".join([head, *rows])

    def action_run(self) -> None:
        """Measures the loaded model, or the default."""
        if self._under_way is not None:
            self.host.say("a measurement is running; x stops it", "warning")
            return
        snapshot = self.host.snapshot
        if snapshot is not None and snapshot.running:
            others = "a request is" if snapshot.running == 1 else f"{snapshot.running} requests are"
            self.host.say(f"{others} under way: the figures will be lower than the machine can", "warning")
        model = snapshot.models[0].name if snapshot is not None and snapshot.models else ""
        stop = self._under_way = threading.Event()
        self.query_one("#bars", Static).update("loading the model in a process of its own ... (x stops)")

        def over(result: Result | None) -> None:
            if result is not None:
                self._known([*self._results, result][-KEPT:])

        self.host.work(lambda: self._measure(model, stop), over)

    def _measure(self, model: str, stop: threading.Event) -> Result | None:
        """On a thread of its own; None where it was stopped."""
        try:
            named = [self.host.source.spelled(model)] if model else []
            found: list[Result] = []
            for number in range(REPS):
                if stop.is_set():
                    return None
                found.append(once(named, stop))
                self.host.later(partial(self._bars, list(found), number + 1))
            keep(self.file, best(found))
            return best(found)
        finally:
            self._under_way = None

    def action_stop(self) -> None:
        """Ends the measurement."""
        if self._under_way is not None:
            self._under_way.set()
            self.query_one("#bars", Static).update("stopped.  " + HELLO)

    def _bars(self, found: list[Result], done: int) -> None:
        lines = [f"repetition {done} of {REPS}   {found[-1].model} · {found[-1].device}"]
        top = best(found)
        for name, last, most, unit in (
            ("prefill", found[-1].prefill, top.prefill, "tok/s"),
            ("decode", found[-1].decode, top.decode, "tok/s"),
        ):
            lines.append(f"{name:<8}{last:>9.1f} {unit}  [{words.bar(last / most if most else 0, BAR)}]  best {most:.1f}")
        lines.append(f"{'ttft':<8}{words.seconds(found[-1].first):>9}        best {words.seconds(top.first)}")
        self.query_one("#bars", Static).update("\n".join(lines))

    def _known(self, results: list[Result]) -> None:
        self._results = results[-KEPT:]
        rows = [
            Row(str(number), (day(one.at), f"{one.prefill:.1f}", f"{one.decode:.1f}", words.seconds(one.first), f"{one.model} · {one.device}"))
            for number, one in enumerate(self._results)
        ]
        self.query_one("#results", Rows).fill(rows[::-1])
        if len(self._results) > 1:
            prefill = words.spark([one.prefill for one in self._results], KEPT)
            decode = words.spark([one.decode for one in self._results], KEPT)
            self.query_one("#sparks", Static).update(f"last {len(rows)} here:  prefill {prefill}   decode {decode}")


def once(named: list[str], stop: threading.Event) -> Result:
    """One repetition."""
    words = ["bench", *named, "-prompt", str(PROMPT), "-gen", str(GENERATED), "-reps", "1", "-json"]
    found = json.loads("\n".join(commands.lines(words, stop)) or "null")
    if found is None:
        raise commands.CommandFailed("the measurement was stopped")
    return Result(
        time.time(), str(found["model"]), str(found["device"]), found["prefill"]["best"], found["decode"]["best"], found["ttft"]["best"]
    )


def best(found: list[Result]) -> Result:
    """The best of each."""
    last = found[-1]
    prefill, decode = max(one.prefill for one in found), max(one.decode for one in found)
    return Result(last.at, last.model, last.device, prefill, decode, min(one.first for one in found))


def keep(file: Path, result: Result) -> None:
    """One line more."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps(asdict(result)) + "\n")


def read(file: Path) -> list[Result]:
    """The last results; a line that is none is passed over, as another version may have written it."""
    if not file.exists():
        return []
    found = []
    for line in file.read_text(encoding="utf-8", errors="replace").splitlines()[-KEPT:]:
        try:
            found.append(Result(**json.loads(line)))
        except (ValueError, TypeError):
            continue
    return found


def day(at: float) -> str:
    """`29 Nov 21:44`."""
    return time.strftime("%d %b %H:%M", time.localtime(at))
