"""Rows: a table that draws only the lines one sees, so that ten thousand cost what forty do."""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.message import Message

from llamay.tui import words
from llamay.tui.cursor import Cursor

Cell = str | tuple[tuple[str, str], ...]
"""A text, or pieces of it with the style of each."""

BOLD, CURSOR = Style(bold=True), Style(reverse=True)


@dataclass(frozen=True, slots=True)
class Column:
    """One column.  Where there is no room the one with the highest `rank` goes first; one of width 0 takes the rest."""

    title: str
    width: int
    right: bool = False
    rank: int = 0
    least: int = 8  # columns that one which takes the rest has to have


@dataclass(frozen=True, slots=True)
class Row:
    """One line; `key` tells it from others while rows come and go."""

    key: str
    cells: tuple[Cell, ...]
    style: str = ""


class Rows(Cursor):
    """Arrow keys and the mouse move a cursor that stays on its row when others come or go."""

    DEFAULT_CSS = "Rows { height: 1fr; }"

    class Moved(Message):
        """The cursor is on another row."""

        def __init__(self, table: "Rows", key: str) -> None:
            self.table, self.key = table, key
            super().__init__()

        @property
        def control(self) -> "Rows":
            return self.table

    class Chosen(Moved):
        """Enter, or a click on the row that has the cursor."""

    class Fitted(Message):
        """The column that takes the rest has another width: what is drawn to it is to be drawn anew."""

        def __init__(self, table: "Rows") -> None:
            self.table = table
            super().__init__()

        @property
        def control(self) -> "Rows":
            return self.table

    class Headed(Message):
        """A click on the title of a column."""

        def __init__(self, table: "Rows", column: int) -> None:
            self.table, self.column = table, column
            super().__init__()

        @property
        def control(self) -> "Rows":
            return self.table

    def __init__(self, columns: Sequence[Column], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.columns_all = tuple(columns)
        self.mark = ""  # behind the title of the column that is sorted by
        self.marked = -1
        self._table: list[Row] = []
        self._at = 0
        self._places: list[tuple[int, int, bool]] = []  # column, width and whether at the right, of those that are shown

    @property
    def cursor_key(self) -> str:
        """Of the row that has the cursor, empty where there is none."""
        return self._table[self._at].key if self._table else ""

    @property
    def table_rows(self) -> Sequence[Row]:
        """What is shown."""
        return self._table

    @property
    def rest_width(self) -> int:
        """What the column that takes the rest has."""
        return next((width for column, width, _ in self._places if not self.columns_all[column].width), 0)

    def fill(self, rows: Sequence[Row]) -> None:
        """Shows these; the cursor stays on its row."""
        if rows == self._table:
            return
        key, before, at = self.cursor_key, self._table, self._at
        self._table = list(rows)
        if self._at >= len(rows) or (rows and rows[self._at].key != key):
            self._at = next((at for at, row in enumerate(rows) if row.key == key), min(self._at, max(0, len(rows) - 1)))
        if len(rows) != len(before):
            self._measure()
            self.refresh()
            return
        first = self.scroll_offset.y
        seen = range(first, min(first + self.size.height - 1, len(rows)))
        changed = [line for line in seen if rows[line] != before[line]] if at == self._at else seen
        if changed:  # in one piece: each costs more than a line
            self.refresh(Region(0, changed[0] + 1 - first, self.size.width, changed[-1] + 1 - changed[0]))

    def go(self, key: str) -> bool:
        """Puts the cursor on a row; False where it is not there."""
        at = next((at for at, row in enumerate(self._table) if row.key == key), None)
        if at is not None:
            self.action_step(0, at - self._at)
        return at is not None

    def head(self, marked: int, mark: str) -> None:
        """Marks the title of a column."""
        self.marked, self.mark = marked, mark
        self.refresh()

    def action_step(self, across: int, down: int) -> None:
        """Moves the cursor by rows."""
        if not self._table:
            return
        self._at = min(max(0, self._at + down), len(self._table) - 1)
        self.scroll_to_region(Region(0, self._at, 1, 2), animate=False, force=True)
        self.refresh()
        self.post_message(self.Moved(self, self.cursor_key))

    def action_open(self) -> None:
        """Opens the row."""
        if self._table:
            self.post_message(self.Chosen(self, self.cursor_key))

    def on_resize(self, event: events.Resize) -> None:
        """Other columns may have room."""
        self._measure()

    def on_click(self, event: events.Click) -> None:
        """A title sorts, a row takes the cursor and, when it has it, opens."""
        if event.y == 0:
            found, x = -1, event.x
            for column, width, _ in self._places:
                if x < width + 1:
                    found = column
                    break
                x -= width + 1
            self.post_message(self.Headed(self, found))
            return
        at = event.y - 1 + self.scroll_offset.y
        if at < len(self._table):
            if at == self._at:
                self.action_open()
            self.action_step(0, at - self._at)

    def source_of(self, y: int) -> object:
        """The row, or the titles, and what the cursor does there."""
        if y == 0:
            return self._places, self.mark, self.marked
        at = y - 1 + self._top
        if at >= len(self._table):
            return None
        return self._table[at], self._places, at == self._at and (1 + self._keyed)

    def drawn(self, y: int) -> list[Segment]:
        """The titles, then the rows from where it is scrolled to."""
        if y == 0:
            text = " ".join([self._titled(column, place) for column, place, _ in self._places])
            return [Segment(set_cell_size(text, self._room), self._base + BOLD)]
        at = y - 1 + self._top
        if at >= len(self._table):
            return super().drawn(y)
        row, style = self._table[at], self._base
        if row.style:
            style += Style.parse(row.style)
        if at == self._at:
            style += CURSOR if self._keyed else BOLD
        return self._line(row.cells, style)

    def _line(self, cells: tuple[Cell, ...], style: Style) -> list[Segment]:
        segments: list[Segment] = []
        text, used = "", 0  # of one style: the fewer pieces, the less there is to do
        for column, place, right in self._places:
            cell = cells[column]
            used += place + 1
            if isinstance(cell, str):
                text += _fitted(cell, place, right) + " "
                continue
            left = place
            segments.append(Segment(text, style))
            for piece, own in cell:
                long = min(cell_len(piece), left)
                if long:
                    left -= long
                    segments.append(Segment(set_cell_size(piece, long), style + Style.parse(own) if own else style))
            text = " " * (left + 1)
        room = self._room
        segments.append(Segment(text + " " * (room - used) if used < room else text[: len(text) - (used - room)], style))
        return segments

    def _titled(self, column: int, width: int) -> str:
        shown = self.columns_all[column]
        return _fitted(shown.title + (self.mark if column == self.marked else ""), width, shown.right)

    def _measure(self) -> None:
        """Which columns there is room for."""
        room = self.scrollable_content_region.width
        shown = list(range(len(self.columns_all)))

        def needed() -> int:
            return sum((self.columns_all[column].width or self.columns_all[column].least) + 1 for column in shown)

        while len(shown) > 1 and needed() > room + 1:
            last = max(shown, key=lambda column: (self.columns_all[column].rank, column))
            if self.columns_all[last].rank == 0:
                break
            shown.remove(last)
        before = self.rest_width
        rest = room - sum(self.columns_all[column].width + 1 for column in shown) + 1
        columns = [(column, self.columns_all[column]) for column in shown]
        self._places = [(number, column.width or max(rest, 8), column.right) for number, column in columns]
        self.virtual_size = Size(room, len(self._table) + 1)
        if self.rest_width != before:
            self.post_message(self.Fitted(self))


def _fitted(text: str, width: int, right: bool) -> str:
    """A text in so many columns."""
    if not text.isprintable():
        text = words.line(text)  # a terminal would obey it
    long = len(text) if text.isascii() else cell_len(text)
    if long > width:
        return set_cell_size(text, max(0, width - 1)) + "…" if width else ""
    return " " * (width - long) + text if right else text + " " * (width - long)
