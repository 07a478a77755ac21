"""Screen 5: requests, under way and over; sorted, filtered, each with its timeline."""

import time
from collections.abc import Callable
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from llamay.tui import words
from llamay.tui.history import Entry
from llamay.tui.moment import Snapshot
from llamay.tui.pane import Host, Listed, passes, tell
from llamay.tui.rows import Column, Row, Rows

COLUMNS = (
    Column("id", 6, right=True),
    Column("ended", 8, rank=3),
    Column("state", 9),
    Column("queue", 7, right=True, rank=4),
    Column("prefill", 7, right=True, rank=5),
    Column("ttft", 7, right=True),
    Column("tok/s", 7, right=True),
    Column("in", 7, right=True),
    Column("cached", 7, right=True, rank=1),
    Column("out", 6, right=True),
    Column("stop", 9, rank=2),
    Column("api", 9, rank=7),
    Column("client", 8, rank=8),
    Column("model", 0, rank=6),
)
ORDERS: dict[int, Callable[[Entry], float | str]] = {
    0: lambda entry: entry.id,
    1: lambda entry: entry.at,
    2: lambda entry: entry.state,
    3: lambda entry: entry.queued,
    4: lambda entry: entry.prefill,
    5: lambda entry: entry.first,
    6: lambda entry: entry.rate,
    7: lambda entry: entry.prompt,
    8: lambda entry: entry.cached,
    9: lambda entry: entry.generated,
    10: lambda entry: entry.outcome,
    11: lambda entry: entry.via,
    12: lambda entry: entry.client,
    13: lambda entry: entry.model,
}
EMPTY = """\
No request has come since this began.  This sends one (y copies it):

{curl}"""
CURL = """curl {url}/v1/chat/completions -H 'content-type: application/json' -d '{{"messages": [{{"role": "user", "content": "hello"}}]}}'"""
WIDE = 60  # columns of the timeline


class Requests(Listed):
    """The table, and the timeline of the row that was opened."""

    TITLE = "requests"
    ENTER = "Shows where the request's time went, or hides it"
    HINT = "state:failed, api:ollama, model:NAME, or words; escape ends"
    DEFAULT_CSS = """
    Requests > #nothing { height: auto; padding: 1; }
    Requests > #timeline { height: auto; border-top: solid $primary; display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("less_than_sign", "sort(-1)", "Sort by", key_display="<"),
        Binding("greater_than_sign", "sort(1)", "Sort by", key_display=">", show=False),
        Binding("v", "reverse", "Other way", show=False),
        Binding("k,x", "cancel", "Cancel"),
        Binding("p", "its_pages", "Pages"),
    ]

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._by, self._descending = 0, True
        self._made: dict[str, Row] = {}  # of those that are over, which change no more
        self._opened = ""

    def compose(self) -> ComposeResult:
        """An empty state or the table, and a timeline."""
        yield Static("", id="nothing", markup=False)
        yield Rows(COLUMNS, id="table")
        yield Static("", id="timeline", markup=False)
        yield from super().compose()

    def on_mount(self) -> None:
        """The order is shown from the beginning."""
        self._mark()

    @property
    def rows(self) -> Rows:
        """The table."""
        return self.query_one("#table", Rows)

    def shown(self, snapshot: Snapshot) -> None:
        """What is under way changes with each snapshot."""
        self.refill()

    def refill(self) -> None:
        """Those under way first, then the rest, each in the order that is asked for."""
        entries = self.host.history.entries
        wanted = self.wanted
        nothing = self.query_one("#nothing", Static)
        nothing.display = not entries
        if not entries:
            tell(nothing, EMPTY.format(curl=self._curl()))
        if wanted:
            entries = [entry for entry in entries if matches(entry, wanted)]
        if (self._by, self._descending) != (0, True):
            entries = sorted(entries, key=ORDERS[self._by], reverse=self._descending)
        made = self._made
        rows = []
        for entry in entries:
            row = made.get(entry.key)
            if row is None:
                row = row_of(entry)
                if not entry.live:
                    made[entry.key] = row
            rows.append(row)
        if len(made) > 2 * len(rows) + 1000 and not wanted:
            self._made = {row.key: made[row.key] for row in rows if row.key in made}
        self.rows.fill(rows)
        if self._opened:
            self._open(self._opened)

    def take_focus(self) -> None:
        """The table has the keys."""
        self.rows.focus()

    def pick(self, key: str) -> None:
        """A request."""
        self.refill()
        if not self.rows.go(key):
            self.host.say(f"request {key} is not among those that are remembered", "warning")
        else:
            self._open(key)

    def copied(self) -> str:
        """The row under the cursor; without any the line that makes a request."""
        entry = self._entry(self.rows.cursor_key)
        return self._curl() if entry is None else timeline(entry)

    def on_rows_chosen(self, event: Rows.Chosen) -> None:
        """Enter opens and closes the timeline."""
        if self._opened == event.key:
            self._opened = ""
            self.query_one("#timeline", Static).display = False
        else:
            self._open(event.key)

    def on_rows_headed(self, event: Rows.Headed) -> None:
        """A click on a title sorts by it, a second one the other way."""
        if event.column < 0:
            return
        self._descending = not self._descending if event.column == self._by else True
        self._by = event.column
        self._mark()

    def action_sort(self, by: int) -> None:
        """Sorts by the column before, or by the one after."""
        self._by = (self._by + by) % len(COLUMNS)
        self._mark()

    def action_reverse(self) -> None:
        """Sorts the other way round."""
        self._descending = not self._descending
        self._mark()

    def action_cancel(self) -> None:
        """Asks, and ends the request."""
        entry = self._entry(self.rows.cursor_key)
        if entry is None or not entry.live:
            self.host.say("this request is over already", "warning")
            return
        self.host.confirm(
            f"Cancel request {entry.id}? It is answered with what there is.",
            lambda: self.host.work(
                lambda: self.host.source.cancel(entry.id), lambda done: self.host.say(f"request {entry.id} ends within a step")
            ),
        )

    def action_its_pages(self) -> None:
        """Shows in the map where its pages are."""
        entry = self._entry(self.rows.cursor_key)
        if entry is None or entry.context is None:
            self.host.say("this request has no pages now", "warning")
        else:
            self.host.go("pages", str(entry.context))

    def _open(self, key: str) -> None:
        entry = self._entry(key)
        panel = self.query_one("#timeline", Static)
        panel.display = entry is not None
        self._opened = key if entry is not None else ""
        if entry is not None:
            tell(panel, timeline(entry))

    def _mark(self) -> None:
        self.rows.head(self._by, "▾" if self._descending else "▴")
        self.refill()

    def _entry(self, key: str) -> Entry | None:
        return self.host.history.find(key)

    def _curl(self) -> str:
        where = self.host.source.where
        return CURL.format(url=where if "://" in where else "http://127.0.0.1:11435")


def matches(entry: Entry, wanted: str) -> bool:
    """`field:text` looks into one field, a word into all."""
    fields = {"state": entry.state, "model": entry.model, "stop": entry.outcome, "client": entry.client, "api": entry.via, "id": str(entry.id)}
    for word in wanted.split():
        name, _, value = word.partition(":")
        if name in fields and ":" in word:
            if not passes(fields[name], value):
                return False
        elif not passes(" ".join(fields.values()), word):
            return False
    return True


def row_of(entry: Entry) -> Row:
    """One request."""
    ended = "" if entry.live else time.strftime("%H:%M:%S", time.localtime(entry.at))
    style = {"failed": "red", "decode": "bold", "prefill": "bold"}.get(entry.state, "")
    cells = (
        str(entry.id), ended, entry.state, words.seconds(entry.queued), words.seconds(entry.prefill),
        words.seconds(entry.first), words.rate(entry.rate), f"{entry.prompt:,}", f"{entry.cached:,}",
        f"{entry.generated:,}", words.line(entry.outcome), words.line(entry.via) or "-",
        words.line(entry.client) or "-", words.line(entry.model),
    )  # fmt: skip
    return Row(entry.key, cells, style)


def timeline(entry: Entry) -> str:
    """`request 12: queue ▏ 3ms  prefill ███ 210ms  decode ██████ 1.20s`, each by its share."""
    spent = (("queue", entry.queued), ("prefill", entry.prefill), ("decode", entry.decode))
    whole = sum(seconds for _, seconds in spent) or 1.0
    parts = "\n".join(f"  {name:<8}{words.seconds(seconds):>8}  {words.bar(seconds / whole, WIDE).rstrip()}" for name, seconds in spent)
    how = f" ({words.line(entry.outcome)})" if entry.outcome not in ("", "cancel") else ""
    again = f", computed again {entry.preempted} times" if entry.preempted else ""
    return (
        f"request {entry.id} of {words.line(entry.model)}: {entry.state}{how}{again}\n{parts}\n"
        f"  {entry.prompt:,} tokens in, {entry.cached:,} of them cached, {entry.generated:,} out, {words.rate(entry.rate)} tok/s"
    )
