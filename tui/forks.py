"""Screen 4: the contexts as a tree; what each has of its own, where branches part, and what they say from there on."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from llamay.tui import trees, words
from llamay.tui.moment import Parting, Snapshot
from llamay.tui.pane import Host, Pane
from llamay.tui.rows import Column, Row, Rows

COLUMNS = (
    Column("context", 0, least=16),
    Column("tokens", 7, right=True),
    Column("parts at", 8, right=True),
    Column("own", 6, right=True),
    Column("shared", 6, right=True),
    Column("age", 5, right=True, rank=2),
    Column("state", 8, rank=1),
    Column("branch from its parent", 24, rank=3),
)
RIBBON = 24
EMPTY = (
    "No context is kept.  Press 1 and ask something: every answer becomes a context, and f there forks it.\n"
    "Over HTTP: POST /v1/contexts, or the header X-Llamay-Context (docs/contexts.md)."
)


class Forks(Pane):
    """The tree, and what two branches say."""

    TITLE = "forks"
    ENTER = "Goes on from the context, in the chat"
    DEFAULT_CSS = """
    Forks > #none { height: auto; }
    Forks > #parting { height: auto; max-height: 12; border-top: solid $primary; display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "fork", "Fork"),
        Binding("equals_sign", "diff", "Diff", key_display="="),
        Binding("s", "save", "Save"),
        Binding("d", "drop", "Drop"),
        Binding("p", "its_pages", "Pages"),
    ]

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._left = ""  # the first of two that are to be compared
        self._told = ""

    def compose(self) -> ComposeResult:
        """The tree and, once asked for, a comparison."""
        yield Static(EMPTY, id="none", markup=False)
        yield Rows(COLUMNS, id="branches")
        yield Static("", id="parting", markup=False)

    @property
    def branches(self) -> Rows:
        """The table."""
        return self.query_one("#branches", Rows)

    def shown(self, snapshot: Snapshot) -> None:
        """The tree as it is now."""
        rows = [row_of(node, snapshot, node.key == self._left) for node in trees.kept(snapshot)]
        for model in snapshot.models:
            rows += [row_of(node, snapshot, False) for node in trees.passing(model, snapshot)]
        self.query_one("#none", Static).display = not rows
        self.branches.fill(rows)

    def take_focus(self) -> None:
        """The tree has the keys."""
        self.branches.focus()

    def pick(self, key: str) -> None:
        """The cursor goes to a context."""
        self.branches.go(key)

    def copied(self) -> str:
        """The comparison, else the id under the cursor."""
        return self._told or self.branches.cursor_key

    def on_rows_chosen(self, event: Rows.Chosen) -> None:
        """Enter goes on with it in the chat."""
        if self._kept(event.key):
            self.host.go("chat", event.key)

    def action_fork(self) -> None:
        """Asks how many, and forks."""
        if key := self._chosen():
            self.host.ask("How many forks?", lambda text: self._fork(key, text), "1")

    def action_diff(self) -> None:
        """Marks a context at the first press, compares it with another at the second."""
        if not (key := self._chosen()):
            return
        if not self._left or self._left == key:
            self._left = "" if self._left == key else key
            if self._left:
                self.host.say(f"{words.short(key)} is marked; move to another branch and press = again")
        else:
            left, self._left = self._left, ""
            self.host.work(lambda: self.host.source.diff(left, key), lambda found: self._parted(left, key, found))
        if self.host.snapshot is not None:
            self.shown(self.host.snapshot)

    def action_save(self) -> None:
        """Asks for a name, and saves the context as a snapshot."""
        if key := self._chosen():
            self.host.ask(
                "Name of the snapshot (empty: one is made up)",
                lambda name: self.host.work(
                    lambda: self.host.source.save(key, name), lambda saved: self.host.say(f"saved as {saved}; `llamay context show {saved}`")
                ),
            )

    def action_drop(self) -> None:
        """Asks, and gives the context up; its forks stay."""
        if key := self._chosen():
            self.host.confirm(
                f"Drop {words.short(key)}? Its forks stay.",
                lambda: self.host.work(lambda: self.host.source.drop(key), lambda done: self.host.say(f"{words.short(key)} is dropped")),
            )

    def action_its_pages(self) -> None:
        """Shows in the map where its pages are."""
        key = self.branches.cursor_key
        if key:
            self.host.go("pages", key.rpartition("#")[2])

    def _fork(self, key: str, text: str) -> None:
        if not (text.isdecimal() and 0 < int(text) <= 1000):
            self.host.say(f"{text!r} is no number of forks", "error")
            return
        count = int(text)
        self.host.work(lambda: self.host.source.fork(key, count), lambda made: self.host.say(f"{len(made)} forks of {words.short(key)}"))

    def _parted(self, left: str, right: str, found: Parting) -> None:
        self._told = parted(left, right, found)
        panel = self.query_one("#parting", Static)
        panel.update(self._told)
        panel.display = True
        self.app.clear_notifications()  # that one is marked: the notice would lie over what was asked for

    def _chosen(self) -> str:
        """The context under the cursor, said where it cannot be acted on."""
        key = self.branches.cursor_key
        if key and not self._kept(key):
            self.host.say("this context is a request's own and goes with it; only kept ones can be acted on", "warning")
            return ""
        return key

    def _kept(self, key: str) -> bool:
        snapshot = self.host.snapshot
        return snapshot is not None and any(one.id == key for one in snapshot.kept)


def row_of(node: trees.Node, snapshot: Snapshot, marked: bool) -> Row:
    """One context."""
    kept, held = node.kept, node.held
    name = words.line(kept.name if kept is not None else held.name if held is not None else "")
    who = words.short(kept.id) if kept is not None else f"context {held.id if held is not None else '?'} (a request's)"
    parts = kept.fork_point if kept is not None else held.fork_point if held is not None else 0
    created = kept.created if kept is not None else held.created if held is not None else snapshot.time
    pinned = kept.pinned if kept is not None else held is not None and held.pinned
    states = ["busy"] * (kept is not None and kept.busy) + ["pinned"] * pinned + ["no pages"] * (held is None)
    label = f"{node.strokes}{'= ' if marked else ''}{who}{f' {name}' if name else ''}"
    cells = (
        label, f"{node.tokens:,}", f"{parts:,}" if parts else "-", f"{node.own:,}", f"{node.shared:,}",
        words.age(snapshot.time - created), states[0] if states else "", ribbon(parts, node.tokens),
    )  # fmt: skip
    return Row(node.key, cells)


def ribbon(parts: int, tokens: int) -> tuple[tuple[str, str], ...]:
    """What is the parent's, then what is its own."""
    common = round(RIBBON * min(parts, tokens) / tokens) if tokens else 0
    return (("─" * common, "dim"), ("├" if 0 < common < RIBBON else "", ""), ("━" * (RIBBON - common - (common > 0)), "green"))


def parted(left: str, right: str, found: Parting) -> str:
    """Two branches, and what they say from where they part."""
    head = (
        f"{words.short(left)} and {words.short(right)}: {found.common:,} tokens are common, of {found.tokens[0]:,} and "
        f"{found.tokens[1]:,}; {found.shared:,} pages are shared, of {found.pages[0]:,} and {found.pages[1]:,}"
    )
    return f"{head}\n< {words.line(found.texts[0])}\n> {words.line(found.texts[1])}"
