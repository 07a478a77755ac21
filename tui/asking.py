"""Asking: small windows over a screen, for a yes, for a line of text, and for the help."""

import textwrap
from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from llamay.tui import words

WIDTH, SHARE = 84, 94  # columns of a window, and the most of the screen's that it takes, in hundredths
FRAME = 8  # columns of its border, padding and scroll bar
NARROWEST = 32  # columns of the help, also where a terminal has fewer for a while
BOX = f"""
{{name}} {{ align: center middle; }}
{{name}} > #box {{ width: {WIDTH}; max-width: {SHARE}%; height: auto; max-height: 90%; padding: 1 2; border: round $accent; background: $surface; }}
"""


class Confirm(ModalScreen[bool]):
    """Yes or no; escape is no."""

    DEFAULT_CSS = BOX.replace("{name}", "Confirm")
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y,enter", "answer(True)", "Yes"),
        Binding("n,escape", "answer(False)", "No"),
    ]

    def __init__(self, text: str) -> None:
        super().__init__()
        self._asks = text

    def compose(self) -> ComposeResult:
        """The question and the keys."""
        with Vertical(id="box"):
            yield Static(Text(f"{words.plain(self._asks)}\n\ny yes   n no"))

    def action_answer(self, yes: bool) -> None:
        """Closes the window."""
        self.dismiss(yes)


class Ask(ModalScreen[str | None]):
    """A line of text; None for escape."""

    DEFAULT_CSS = BOX.replace("{name}", "Ask")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "leave", "Leave")]

    def __init__(self, text: str, value: str = "") -> None:
        super().__init__()
        self._asks, self._first = text, value

    def compose(self) -> ComposeResult:
        """The question and the field."""
        with Vertical(id="box"):
            yield Static(Text(words.plain(self._asks)))
            yield Input(self._first, id="answer")
            yield Static("enter takes it   escape leaves", markup=False)

    def on_mount(self) -> None:
        """The field has the keys."""
        self.query_one(Input).focus()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Enter."""
        self.dismiss(event.value)

    def action_leave(self) -> None:
        """Nothing."""
        self.dismiss(None)


class Choose(ModalScreen[int | None]):
    """One of several, by its digit; enter takes the first, None is for escape."""

    DEFAULT_CSS = BOX.replace("{name}", "Choose")
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"choose({number})", show=False) for number in range(1, 10)),
        Binding("enter,y", "choose(1)", "First"),
        Binding("escape", "leave", "Leave"),
    ]

    def __init__(self, text: str, names: Sequence[str]) -> None:
        super().__init__()
        self._asks, self._names = text, names[:9]

    def compose(self) -> ComposeResult:
        """The names behind their digits."""
        lines = [f"{number}  {words.line(name)}" for number, name in enumerate(self._names, 1)]
        with Vertical(id="box"):
            yield Static(Text("\n".join([self._asks, "", *lines, "", "enter takes the first   escape leaves"])))

    def action_choose(self, number: int) -> None:
        """Closes the window."""
        if number <= len(self._names):
            self.dismiss(number - 1)

    def action_leave(self) -> None:
        """Nothing."""
        self.dismiss(None)


class Help(ModalScreen[None]):
    """Every key, as the bindings have it."""

    DEFAULT_CSS = BOX.replace("{name}", "Help")
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,question_mark,q,enter", "leave", "Leave")]

    def __init__(self, sections: Sequence[tuple[str, Sequence[tuple[str, str]]]]) -> None:
        """Each section a title, and pairs of key and what it does."""
        super().__init__()
        self._sections = sections

    def compose(self) -> ComposeResult:
        """Title by title."""
        text, wide = Text(), max(NARROWEST, min(WIDTH, self.app.size.width * SHARE // 100) - FRAME)
        for title, keys in self._sections:
            text.append(f"{title}\n", "bold")
            for key, what in keys:
                text.append("\n".join(textwrap.wrap(what, wide, initial_indent=f"  {key:<13} ", subsequent_indent=" " * 16)) + "\n")
            text.append("\n")
        text.append("escape leaves", "dim")
        with VerticalScroll(id="box"):
            yield Static(text)

    def action_leave(self) -> None:
        """Closes it."""
        self.dismiss(None)
