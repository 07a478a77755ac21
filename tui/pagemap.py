"""The page map: a cell a page, its colour the owner, its glyph how many own it; only the lines one sees are drawn."""

from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message

from llamay.tui.cursor import Cursor
from llamay.tui.moment import Run

Ints = NDArray[np.int32]

COLOURS = ("bright_blue", "bright_green", "bright_yellow", "bright_magenta", "bright_cyan", "bright_red", "blue", "green", "magenta")
FREE, TREE, OWN, MIXED = "·", "▒", "█", "▓"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
ZOOMS = (1, 4, 16)
GUTTER = 8  # columns of the address in front of a line
PAGE = 16  # tokens of a page
DIM = Style(dim=True)


@dataclass(frozen=True, slots=True)
class Page:
    """The page at the cursor."""

    number: int
    context: int  # oldest owner, -1 for none
    owners: int
    tree: bool  # whether the prefix tree is one of them
    place: int  # in its context, -1 where that is not known

    @property
    def tokens(self) -> tuple[int, int] | None:
        """First and last position that it holds."""
        return None if self.place < 0 else (self.place * PAGE, self.place * PAGE + PAGE - 1)


class PageMap(Cursor):
    """Arrow keys and the mouse move the cursor."""

    DEFAULT_CSS = "PageMap { height: 1fr; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "step(-1, 0)", "Left", show=False),
        Binding("right", "step(1, 0)", "Right", show=False),
    ]

    class Moved(Message):
        """The cursor is on another page."""

    class Opened(Message):
        """Enter on a page."""

    def __init__(self) -> None:
        super().__init__(id="map")
        self._runs: tuple[Run, ...] = ()
        self._by_page: Ints = np.zeros((5, 0), np.int32)  # owner, owners, tree, 0, place
        self._order: Ints = np.zeros(0, np.int32)  # cell -> page
        self._cells: Ints = np.zeros((4, 0), np.int32)  # owner, owners, tree, mixed by cell
        self._at = self._cell = 0  # page of the cursor, and where it is drawn
        self.zoom = 1
        self.grouped = self.only_shared = self.letters = False

    @property
    def pages(self) -> int:
        """How many there are."""
        return int(self._by_page.shape[1])

    @property
    def cursor_page(self) -> Page | None:
        """What the cursor is on."""
        if self._at >= self.pages:
            return None
        owner, owners, tree, _, place = (int(value) for value in self._by_page[:, self._at])
        return Page(self._at, owner, owners, bool(tree), place)

    def load(self, runs: tuple[Run, ...]) -> None:
        """Shows another moment."""
        if runs == self._runs:
            return
        self._runs = runs
        counts, owner, owners, tree, place = np.array(runs, np.int32).reshape(-1, 5).T
        lead = place - (np.cumsum(counts, dtype=np.int32) - counts)  # of a run, what the place is beyond the page's number
        self._by_page = np.repeat(np.stack((owner, owners, tree, np.zeros_like(owner), np.where(place < 0, -1, lead))), counts, axis=1)
        numbers = np.arange(self.pages, dtype=np.int32)
        self._by_page[4] += np.where(np.repeat(place, counts) < 0, 0, numbers)
        self.regroup(numbers)

    def regroup(self, numbers: Ints | None = None) -> None:
        """Makes cells of pages, by address or by owner."""
        before = self._cells
        owner, owners, tree, _, place = self._by_page
        if self.grouped:  # owners first, then the prefix tree, then what is free
            self._order = np.lexsort((place, owner, owner < 0, owners == 0)).astype(np.int32)
        else:
            self._order = np.arange(self.pages, dtype=np.int32) if numbers is None else numbers
        if self.zoom == 1:
            self._cells = self._by_page[:4, self._order] if self.grouped else self._by_page[:4]
        else:
            padded = np.full(-(-self.pages // self.zoom) * self.zoom, -1, np.int32)
            padded[: self.pages] = self._order
            blocks = padded.reshape(-1, self.zoom)
            counts = np.where(blocks < 0, -1, owners[blocks])
            best = blocks[np.arange(len(blocks)), counts.argmax(axis=1)]
            lead = owner[best]
            mixed = ((owner[blocks] != lead[:, None]) & (blocks >= 0) & (counts > 0)).any(axis=1)
            self._cells = np.stack((lead, owners[best], tree[best], mixed.astype(np.int32)))
        self._at = min(self._at, max(0, self.pages - 1))
        self._cell = self._cell_of(self._at)
        self._extend()
        self._redraw(before)

    def next_of_owner(self) -> None:
        """The cursor goes to the next page of the owner it is on."""
        owner = self._by_page[0]
        if self._at >= self.pages:
            return
        same = np.flatnonzero(owner == owner[self._at])
        if len(same):
            self._go(int(same[np.searchsorted(same, self._at + 1) % len(same)]))

    def go_to_owner(self, context: int) -> bool:
        """The cursor goes to the first page of a context; False where it has none that is its own first."""
        same = np.flatnonzero(self._by_page[0] == context)
        if len(same):
            self._go(int(same[0]))
        return bool(len(same))

    def action_step(self, across: int, down: int) -> None:
        """Moves the cursor by cells."""
        if self.pages:
            cell = self._cell + across + down * self._wide
            cell = min(max(cell, 0), self._cells.shape[1] - 1)
            self._go(int(self._order[min(cell * self.zoom, self.pages - 1)]))

    def action_open(self) -> None:
        """Asks who has the page."""
        self.post_message(self.Opened())

    def on_click(self, event: events.Click) -> None:
        """The cursor goes to where the mouse is."""
        cell = (event.y + self.scroll_offset.y) * self._wide + event.x - GUTTER
        if event.x >= GUTTER and cell < self._cells.shape[1]:
            self._go(int(self._order[min(cell * self.zoom, self.pages - 1)]))

    def on_resize(self, event: events.Resize) -> None:
        """Lines have other lengths."""
        self._extend()

    def source_of(self, y: int) -> object:
        """The cells of the line, where the cursor is in it, and how they are to be drawn."""
        wide = max(8, self._room - GUTTER)
        first = (y + self._top) * wide
        cells = self._cells[:, first : first + wide]
        cursor = self._cell - first if self.pages and 0 <= self._cell - first < wide else -1
        return first, cells.tobytes(), cursor, self.zoom, self.grouped, self.only_shared, self.letters

    def drawn(self, y: int) -> list[Segment]:
        """Cells of the same owner and glyph in one piece."""
        room, base, wide = self._room, self._base, max(8, self._room - GUTTER)
        first = (y + self._top) * wide
        count = self._cells.shape[1]
        if first >= count:
            return super().drawn(y)
        cells = self._cells[:, first : first + wide]
        length = cells.shape[1]
        changes = np.flatnonzero((cells[:, 1:] != cells[:, :-1]).any(axis=0)) + 1
        bounds = [0, *changes.tolist(), length]
        cursor = self._cell - first if self.pages else -1
        label = f"{int(self._order[first * self.zoom]):>{GUTTER - 2}}  " if not self.grouped else " " * GUTTER
        segments = [Segment(label, base + DIM)]
        for begin, end in pairwise(bounds):
            owner, owners, tree, mixed = cells[:, begin].tolist()
            text, style = self._drawn(owner, owners, tree, mixed, end - begin)
            style = base + style
            if begin <= cursor < end:
                at, marked = cursor - begin, style + Style(reverse=True, bold=True)
                glyph = "◆" if text[at] == OWN else text[at]  # a full block looks the same reversed
                segments += [Segment(text[:at], style), Segment(glyph, marked), Segment(text[at + 1 :], style)]
            else:
                segments.append(Segment(text, style))
        rest = room - GUTTER - length
        return [*segments, Segment(" " * rest, base)] if rest > 0 else segments

    def _redraw(self, before: Ints) -> None:
        """The lines on which something changed, where those are few."""
        if before.shape != self._cells.shape or not self._cells.size:
            self.refresh()
            return
        first, wide = self.scroll_offset.y, self._wide
        seen = slice(first * wide, (first + self.size.height) * wide)
        changed = np.flatnonzero((before[:, seen] != self._cells[:, seen]).any(axis=0)) // wide
        for line in np.unique(changed).tolist():
            self.refresh(Region(0, line, self.size.width, 1))

    def _drawn(self, owner: int, owners: int, tree: int, mixed: int, count: int) -> tuple[str, Style]:
        if not owners:
            return FREE * count, DIM
        if self.only_shared and owners < 2:
            return " " * count, DIM
        if owner < 0:
            return TREE * count, DIM
        style = Style(color=COLOURS[owner % len(COLOURS)])
        if mixed:
            return MIXED * count, style
        if owners > 1:
            return ("+" if owners > 9 else str(owners)) * count, style
        return (LETTERS[owner % 26] if self.letters else OWN) * count, style

    @property
    def _wide(self) -> int:
        return max(8, self.scrollable_content_region.width - GUTTER)

    def _cell_of(self, page: int) -> int:
        place = int(np.flatnonzero(self._order == page)[0]) if self.grouped and self.pages else page
        return place // self.zoom

    def _go(self, page: int) -> None:
        self._at, self._cell = page, self._cell_of(page)
        self.scroll_to_region(Region(0, self._cell // self._wide, 1, 1), animate=False, force=True)
        self.refresh()
        self.post_message(self.Moved())

    def _extend(self) -> None:
        self.virtual_size = Size(self.scrollable_content_region.width, -(-self._cells.shape[1] // self._wide))
