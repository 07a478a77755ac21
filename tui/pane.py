"""A Pane: one of the screens, and what it may ask of the application around it."""

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, Protocol, TypeVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, Static

from llamay.tui.history import History
from llamay.tui.journal import Journal
from llamay.tui.moment import Asked, News, Snapshot
from llamay.tui.source import Source

T = TypeVar("T")


class Host(Protocol):
    """What panes know of the application."""

    source: Source
    history: History
    snapshot: Snapshot | None  # the last one that is shown; None before the first
    journal: Journal
    cache: Path  # the folder for what was measured
    note: str  # why it looks at what it looks at, for who did not say

    def work(self, do: Callable[[], T], then: Callable[[T], None] = lambda found: None) -> None:
        """Does something on another thread and, back on the screen's, something with what it returned; an error is said."""

    def later(self, do: Callable[[], None]) -> None:
        """Has the screen's thread do something; for other threads."""

    def say(self, text: str, level: str = "information") -> None:
        """A line for the person, and for the log."""

    def question(self, asked: Asked) -> None:
        """Sends a question; its pieces come back to the chat."""

    def stop(self, number: int) -> None:
        """Ends the answer to a question."""

    def confirm(self, text: str, then: Callable[[], None]) -> None:
        """Asks before something that cannot be taken back."""

    def ask(self, text: str, then: Callable[[str], None], value: str = "") -> None:
        """Asks for a line."""

    def go(self, pane: str, key: str = "") -> None:
        """Shows another pane, its cursor on something."""


class Pane(Vertical):
    """One screen.  `shown` is called for the one that is visible, once a snapshot."""

    TITLE: ClassVar[str] = ""
    ENTER: ClassVar[str] = ""  # what enter does, which the list or the field hears before any binding here
    DEFAULT_CSS = "Pane { height: 1fr; }"

    def __init__(self, host: Host) -> None:
        super().__init__(id=self.TITLE)
        self.host = host

    def shown(self, snapshot: Snapshot) -> None:
        """Draws what is so now."""

    async def heard(self, news: News) -> None:
        """News other than snapshots come to every pane."""

    def take_focus(self) -> None:
        """The pane was switched to: something in it has to take the focus, since keys go to what has it."""

    def pick(self, key: str) -> None:
        """Puts the cursor on something."""

    def copied(self) -> str:
        """What `y` copies."""
        return ""

    def parts(self) -> list[tuple[str, str]]:
        """What it offers to copy instead: names, and texts."""
        return []


class Listed(Pane):
    """A pane with a list that `/` filters."""

    DEFAULT_CSS = """
    Listed Input { dock: bottom; height: 3; display: none; }
    Listed.filtering Input { display: block; }
    """
    HINT: ClassVar[str] = "words that a row must have; escape ends"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("escape", "unfilter", "Filter off", show=False),
    ]

    def compose(self) -> ComposeResult:
        """The field, which is shown while it is used."""
        yield Input(placeholder=f"filter: {self.HINT}", id=f"{self.TITLE}-filter")

    @property
    def wanted(self) -> str:
        """What rows must have."""
        return self.query_one(Input).value

    def refill(self) -> None:
        """Shows what passes the filter."""

    def on_input_changed(self, event: Input.Changed) -> None:
        """Each key filters."""
        self.refill()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter keeps the filter and goes to the list."""
        self.take_focus()

    def action_filter(self) -> None:
        """Leaves the rows that have all the words you type."""
        self.add_class("filtering")
        self.query_one(Input).focus()

    def action_unfilter(self) -> None:
        """Shows all rows again."""
        self.query_one(Input).value = ""
        self.remove_class("filtering")
        self.take_focus()


def tell(line: Static, text: str) -> None:
    """Shows a text, where it is another than before: drawing what is there already takes as long."""
    if line.content != text:
        height = line.styles.height
        grows = height is not None and height.is_auto and line.size.height != text.count("\n") + 1
        line.update(text, layout=grows)


def passes(text: str, wanted: str) -> bool:
    """Whether a text has every word."""
    low = text.lower()
    return all(word in low for word in wanted.lower().split())
