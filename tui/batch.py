"""Screen 2: the batch; a row a slot, and what a step's time goes into."""

from collections import Counter
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from llamay.tui import words
from llamay.tui.history import PARTS, Rates
from llamay.tui.lines import Said
from llamay.tui.moment import Model, Request, Snapshot
from llamay.tui.pane import Pane, tell
from llamay.tui.rows import Column, Row, Rows

COLUMNS = (
    Column("slot", 4, right=True),
    Column("request", 8, right=True),
    Column("phase", 8),
    Column("context", 10, rank=3),
    Column("prompt", 7, right=True, rank=1),
    Column("cached", 7, right=True, rank=2),
    Column("out", 6, right=True),
    Column("age", 7, right=True, rank=4),
    Column("▒ cached █ read ░ to read ▓ out", 0, least=24),
)
NAMES = {"schedule": "schedule", "encode": "encode", "device": "GPU", "sample": "sample", "send": "send"}
COLOURS = {"decode": "green", "prefill": "yellow", "waiting": "", "paused": "magenta"}
BAR = 40  # columns of a request's bar, where there is room


class Batch(Pane):
    """Slots of the loaded models."""

    TITLE = "batch"
    ENTER = "Shows the request and where its time went"
    DEFAULT_CSS = """
    Batch > #step { max-height: 4; }
    Batch > #idle { height: auto; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("x", "cancel", "Cancel"),
        Binding("p", "its_pages", "Its pages"),
    ]

    def compose(self) -> ComposeResult:
        """The step, then the slots."""
        yield Said("", id="step")
        yield Static("", id="idle", markup=False)
        yield Rows(COLUMNS, id="slots")

    @property
    def slots(self) -> Rows:
        """The table."""
        return self.query_one("#slots", Rows)

    def shown(self, snapshot: Snapshot) -> None:
        """Steps and slots."""
        steps = [step(model, self.host.history.step(model.name), self.host.history.rates.get(model.name, Rates())) for model in snapshot.models]
        self.query_one("#step", Said).tell("\n".join(steps) or "No model is loaded.")
        rows = [row for model in snapshot.models for row in rows_of(model, self.slots.rest_width or BAR, many=len(snapshot.models) > 1)]
        idle = self.query_one("#idle", Static)
        idle.display = not rows
        if not rows:
            tell(idle, self._idle(snapshot))
        self.slots.fill(rows)

    def take_focus(self) -> None:
        """The slots have the keys."""
        self.slots.focus()

    def on_rows_fitted(self, event: Rows.Fitted) -> None:
        """Bars are as long as there is room."""
        if self.host.snapshot is not None:
            self.shown(self.host.snapshot)

    def on_rows_chosen(self, event: Rows.Chosen) -> None:
        """Enter shows the request."""
        self.host.go("requests", event.key.rpartition("/")[2])

    def action_cancel(self) -> None:
        """Ends the request of the row, which is answered with what there is."""
        key = self.slots.cursor_key.rpartition("/")[2]
        if key.isdecimal():
            number = int(key)
            end = f"request {number} ends within a step"
            self.host.confirm(
                f"Cancel request {number}? It is answered with what there is.",
                lambda: self.host.work(lambda: self.host.source.cancel(number), lambda done: self.host.say(end)),
            )

    def action_its_pages(self) -> None:
        """Shows in the map where the request's pages are."""
        cells = next((row.cells for row in self.slots.table_rows if row.key == self.slots.cursor_key), ())
        if len(cells) > 3 and isinstance(cells[3], str) and cells[3].isdecimal():
            self.host.go("pages", cells[3])

    def copied(self) -> str:
        """The table as text."""
        return "\n".join("\t".join(cell if isinstance(cell, str) else "" for cell in row.cells[:-1]) for row in self.slots.table_rows)

    def _idle(self, snapshot: Snapshot) -> str:
        slots = sum(model.slots for model in snapshot.models)
        last = max((entry.at for entry in self.host.history.entries[:64] if not entry.live), default=0.0)
        ago = f", the last request ended {words.age(snapshot.time - last)} ago" if last else ""
        return f"Idle: 0 of {slots} slots are in use{ago}.  Press 1 and ask something; requests of others show here too."


def step(model: Model, last: Rates, now: Rates) -> str:
    """One model's line: the step and its parts."""
    parts = "  ".join(f"{NAMES[part]} {words.seconds(spent):>5}" for part, spent in zip(PARTS, last.parts, strict=True))
    share = "".join(mark * round(24 * spent / last.step) for mark, spent in zip("scGpe", last.parts, strict=True)) if last.step else ""
    return f"step {words.seconds(last.step):>6} = {parts}  {now.steps:5.1f}/s  {words.line(model.name)[:24]}  [{share:<24}]"


def rows_of(model: Model, wide: int, *, many: bool) -> list[Row]:
    """Those that decode by slot, then the rest."""
    found = []
    times = Counter(one.id for one in model.requests)  # a request with several choices has a row for each
    for number, one in enumerate(model.requests):
        key = f"{model.name}:{number}/{one.id}" if many or times[one.id] > 1 else f"/{one.id}"
        bar = bar_of(one, min(wide, BAR))
        cells = (
            "-" if one.slot is None else str(one.slot), str(one.id), one.state, "-" if one.context is None else str(one.context),
            f"{one.prompt:,}", f"{one.cached:,}", f"{one.generated:,}", words.seconds(one.seconds), bar,
        )  # fmt: skip
        found.append(Row(key, cells))
    return found


def bar_of(one: Request, width: int = BAR) -> tuple[tuple[str, str], ...]:
    """Prompt read, cached and to be read, and what was generated, by their share of all."""
    whole = max(1, one.prompt + one.generated)
    cached = min(one.cached, one.prompt)
    read = max(0, min(one.held, one.prompt) - cached) if one.state != "decode" else one.prompt - cached
    left = one.prompt - cached - read
    colour = COLOURS.get(one.state, "")
    wide = [round(width * part / whole) for part in (cached, read, left, one.generated)]
    if one.generated and not wide[3]:
        wide[3] = 1
    return (("▒" * wide[0], "cyan"), ("█" * wide[1], "yellow" if colour else ""), ("░" * wide[2], ""), ("▓" * wide[3], "green"))
