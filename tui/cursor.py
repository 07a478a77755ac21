"""A Cursor: what draws only the lines one sees, with a cursor that the arrow keys move."""

from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Region
from textual.scroll_view import ScrollView
from textual.strip import Strip

from llamay.tui.lines import Lines

PAGE, ALL = 20, 1_000_000  # lines


class Cursor(ScrollView, can_focus=True):
    """Lines longer than the screen.  Without a cursor of its own the keys scroll."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "step(0, -1)", "Up", show=False),
        Binding("down", "step(0, 1)", "Down", show=False),
        Binding("pageup", f"step(0, -{PAGE})", "Page up", show=False),
        Binding("pagedown", f"step(0, {PAGE})", "Page down", show=False),
        Binding("home", f"step(0, -{ALL})", "First", show=False),
        Binding("end", f"step(0, {ALL})", "Last", show=False),
        Binding("enter", "open", "Open", show=False),
    ]

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._lines = Lines(self)
        # of all lines, while they are drawn: columns, style, the first line that is seen, whether the keys come here
        self._room, self._base, self._top, self._keyed = 0, Style(), 0, False

    def action_step(self, across: int, down: int) -> None:
        """Moves the cursor by cells and lines."""
        self.scroll_relative(across, down, animate=False)

    def action_open(self) -> None:
        """Opens what the cursor is on."""

    def render_lines(self, crop: Region) -> list[Strip]:
        """What all lines have in common is found once."""
        self._room, self._base = self.scrollable_content_region.width, self.rich_style
        self._top, self._keyed = self.scroll_offset.y, self.has_focus
        return self._lines.render(crop, self._room, self.source_of, self.drawn)

    def source_of(self, y: int) -> object:
        """What a line of the screen is drawn from."""
        return None

    def drawn(self, y: int) -> list[Segment]:
        """A line of the screen, as wide as the room; blank where nothing is."""
        return [Segment(" " * self._room, self._base)]
