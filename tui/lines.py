"""Lines that are drawn anew only where what they are drawn from has changed, and a widget of such lines."""

from collections.abc import Callable, Sequence

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.strip import Strip
from textual.widget import Widget

from llamay.tui import words

Pieces = Sequence[tuple[str, str]]
"""Pieces of a line with the style of each."""


class Lines:
    """The lines of a widget without borders, paddings and links, of which Textual would look up each for every line it draws."""

    def __init__(self, widget: Widget) -> None:
        self._widget = widget
        self._look: object = None  # what all lines have in common
        self._made: dict[int, tuple[object, Strip]] = {}

    def render(
        self, crop: Region, width: int, source_of: Callable[[int], object], draw: Callable[[int], list[Segment]]
    ) -> list[Strip]:
        """What `Widget.render_lines` gives: a line of that width is drawn where its source is another than before."""
        widget, made = self._widget, self._made
        filters, background = widget.get_line_filters(), widget.background_colors[1]
        look = (width, widget.rich_style, background, *filters)
        if look != self._look:
            self._look = look
            made.clear()
        found = []
        for y in crop.line_range:
            source, known = source_of(y), made.get(y)
            if known is None or known[0] != source:
                segments = draw(y)
                for one in filters:
                    segments = one.apply(segments, background)
                known = made[y] = (source, Strip(segments, width))
            found.append(known[1])
        first, last = crop.column_span
        return found if first == 0 and last >= width else [strip.crop(first, last) for strip in found]


class Said(Widget):
    """Lines of text as they are, without markup; what there is no room for is cut."""

    DEFAULT_CSS = "Said { height: auto; }"

    def __init__(self, text: str = "", *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._shown: list[Pieces] = [((line, ""),) for line in text.split("\n")]
        self._lines = Lines(self)

    def say(self, lines: Sequence[Pieces]) -> None:
        """Shows other lines."""
        if lines != self._shown:
            grows = len(lines) != len(self._shown)
            self._shown = list(lines)
            self.refresh(layout=grows)

    def tell(self, text: str) -> None:
        """The same of plain text."""
        self.say([((line, ""),) for line in text.split("\n")])

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """A line each."""
        return len(self._shown)

    def render_lines(self, crop: Region) -> list[Strip]:
        """Those that changed are drawn."""
        return self._lines.render(crop, self.size.width, self._line, self._drawn)

    def _line(self, y: int) -> Pieces:
        return self._shown[y] if y < len(self._shown) else ()

    def _drawn(self, y: int) -> list[Segment]:
        """One line; what a terminal would obey is left out."""
        base, left = self.rich_style, self.size.width
        segments = []
        for text, style in self._line(y):
            text = words.plain(text)
            if cell_len(text) > left:
                text = set_cell_size(text, left - 1) + "…" if left else ""
            left -= cell_len(text)
            segments.append(Segment(text, base + Style.parse(style) if style else base))
        return [*segments, Segment(" " * left, base)]
