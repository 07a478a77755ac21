"""Screen 8: the log of what happened while one looked, and `llamay verify` row by row."""

import threading
import time
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from llamay.tui import commands, words
from llamay.tui.journal import WORDS
from llamay.tui.moment import Snapshot
from llamay.tui.pane import Host, Listed, passes
from llamay.tui.rows import Column, Row, Rows

NOTES = (Column("time", 8), Column("level", 5), Column("what", 0))
CHECKS = (Column("", 7), Column("what llamay promises of its numbers", 0))
HELLO = "v checks the promises llamay makes of its numbers (chunks, seeds, forks, WGSL against NumPy) with this model, in a process of its own."


class Verify(Listed):
    """Rows above, the log below."""

    TITLE = "log"
    HINT = "error, warn, or words; escape ends"
    DEFAULT_CSS = """
    Verify > #state { height: auto; color: $text-muted; }
    Verify > #checks { height: 14; display: none; border-bottom: solid $primary; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("v", "verify", "Verify"), Binding("x", "stop", "Stop")]

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._found: list[str] = []
        self._under_way: threading.Event | None = None
        self._seen = -1

    def compose(self) -> ComposeResult:
        """What verify says, then the log."""
        yield Static(HELLO, id="state", markup=False)
        yield Rows(CHECKS, id="checks")
        yield Rows(NOTES, id="notes")
        yield from super().compose()

    @property
    def notes(self) -> Rows:
        """The log."""
        return self.query_one("#notes", Rows)

    def shown(self, snapshot: Snapshot) -> None:
        """New lines, if there are any."""
        if self.host.journal.count != self._seen:
            self.refill()

    def refill(self) -> None:
        """The newest first."""
        self._seen = self.host.journal.count
        rows = []
        for note in reversed(self.host.journal.notes):
            level = WORDS[note.level]
            if passes(f"{level} {note.text}", self.wanted):
                style = {"error": "red", "warning": "yellow"}.get(note.level, "")
                rows.append(Row(str(note.number), (time.strftime("%H:%M:%S", time.localtime(note.at)), level, words.line(note.text)), style))
        self.notes.fill(rows)

    def take_focus(self) -> None:
        """The log has the keys."""
        self.notes.focus()
        self.refill()

    def copied(self) -> str:
        """What verify found, and the log."""
        return "\n".join([*self._found, *(" ".join(str(cell) for cell in row.cells) for row in self.notes.table_rows)])

    def action_verify(self) -> None:
        """Runs `llamay verify` with this model, in a process of its own."""
        if self._under_way is not None:
            self.host.say("verify is running; x stops it", "warning")
            return
        stop = self._under_way = threading.Event()
        self._found = []
        self.query_one("#checks", Rows).fill([])
        self.query_one("#checks", Rows).display = True
        self.query_one("#state", Static).update("verify runs ... (x stops)")
        snapshot = self.host.snapshot
        model = snapshot.models[0].name if snapshot is not None and snapshot.models else ""

        def run() -> None:
            named = [self.host.source.spelled(model)] if model else []
            try:
                for line in commands.lines(["verify", *named], stop):
                    self.host.later(partial(self._row, line))
            finally:
                self._under_way = None
                self.host.later(partial(self._over, stop.is_set()))

        self.host.work(run)

    def action_stop(self) -> None:
        """Ends it."""
        if self._under_way is not None:
            self._under_way.set()

    def _row(self, line: str) -> None:
        mark, _, rest = line.partition("  ")
        self._found.append(line)
        style = "green" if mark.startswith("✓") else "red" if mark.startswith("✗") else ""
        table = self.query_one("#checks", Rows)
        table.fill([*table.table_rows, Row(str(len(self._found)), (mark.strip(), words.line(rest)), style)])

    def _over(self, stopped: bool) -> None:
        red = sum(line.startswith("✗") for line in self._found)
        green = sum(line.startswith("✓") for line in self._found)
        text = f"verify {'was stopped' if stopped else 'is over'}: {green} green, {red} red"
        self.query_one("#state", Static).update(text)
        self.host.say(text, "error" if red else "information")
