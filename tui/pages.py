"""Screen 3: the pages of keys and values, who owns each, and what sharing saves."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Static

from llamay.tui import words
from llamay.tui.moment import Group, Model, Snapshot
from llamay.tui.pagemap import ZOOMS, PageMap
from llamay.tui.pane import Host, Pane, tell

LEGEND = "█ one owner  2-9+ owners  ▒ prefix tree alone  · free  (colour: owner; l: letters; arrows move)"
EMPTY = "No model is loaded, so there are no pages.  Press 1 and ask something, or 6 to load a model."


class Pages(Pane):
    """The map, what the cursor is on, and the sums."""

    TITLE = "pages"
    ENTER = "Shows the request that has the page"
    DEFAULT_CSS = """
    Pages > Static { height: 1; }
    Pages > #sums, Pages > #owner { height: 2; }
    Pages > #legend { height: auto; max-height: 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "next", "Owner's next"),
        Binding("s", "shared", "Shared"),
        Binding("g", "group", "Group"),
        Binding("z", "zoom", "Zoom"),
        Binding("l", "letters", "Letters", show=False),
        Binding("w", "group_of_pages", "Next page group", show=False),
        Binding("t", "model", "Next model", show=False),
    ]

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._model, self._group = 0, 0
        self._wanted = ""

    def compose(self) -> ComposeResult:
        """The sums, the map, and who owns what is under the cursor."""
        yield Static(EMPTY, id="sums", markup=False)
        yield PageMap()
        yield Static("", id="owner", markup=False)
        yield Static(LEGEND, id="legend", markup=False)

    @property
    def map(self) -> PageMap:
        """The map."""
        return self.query_one(PageMap)

    def shown(self, snapshot: Snapshot) -> None:
        """The group of pages that is looked at."""
        found = self._looked_at(snapshot)
        if found is None:
            self.map.load(())
            self._tell(EMPTY, "")
            return
        model, group = found
        self.map.load(group.map)
        if self._wanted and self._go(model, snapshot, self._wanted):
            self._wanted = ""
        self._tell(self._sums(model, group), self._owner(model, snapshot))

    def take_focus(self) -> None:
        """The map has the keys."""
        self.map.focus()

    def pick(self, key: str) -> None:
        """The first page of a context."""
        self._wanted = key
        if self.host.snapshot is not None:
            self.shown(self.host.snapshot)

    def copied(self) -> str:
        """The sums and the page under the cursor."""
        return "\n".join(str(self.query_one(id, Static).visual) for id in ("#sums", "#owner"))

    def on_page_map_moved(self) -> None:
        """Tells of another page."""
        if self.host.snapshot is not None:
            self.shown(self.host.snapshot)

    def on_page_map_opened(self) -> None:
        """Enter shows the request that has the page."""
        request = self._request()
        if request:
            self.host.go("requests", request)
        else:
            self.host.say("no request under way has this page", "warning")

    def action_next(self) -> None:
        """Goes to the next page of the same owner."""
        self.map.next_of_owner()

    def action_shared(self) -> None:
        """Shows only pages that several own, or all again."""
        self.map.only_shared = not self.map.only_shared
        self.map.refresh()

    def action_letters(self) -> None:
        """Shows owners as letters, for who sees no colours."""
        self.map.letters = not self.map.letters
        self.map.refresh()

    def action_group(self) -> None:
        """Sorts pages by owner, or by address again."""
        self.map.grouped = not self.map.grouped
        self.map.regroup()
        self.map.refresh()

    def action_zoom(self) -> None:
        """Has one cell stand for more pages."""
        self.map.zoom = ZOOMS[(ZOOMS.index(self.map.zoom) + 1) % len(ZOOMS)]
        self.map.regroup()
        self.map.refresh()

    def action_group_of_pages(self) -> None:
        """Shows the pages of other layers: those with a window have their own."""
        self._group += 1
        self._again()

    def action_model(self) -> None:
        """Shows another model's pages, where several are loaded."""
        self._model, self._group = self._model + 1, 0
        self._again()

    def _again(self) -> None:
        if self.host.snapshot is not None:
            self.shown(self.host.snapshot)

    def _looked_at(self, snapshot: Snapshot) -> tuple[Model, Group] | None:
        if not snapshot.models:
            return None
        model = snapshot.models[self._model % len(snapshot.models)]
        return (model, model.pages[self._group % len(model.pages)]) if model.pages else None

    def _go(self, model: Model, snapshot: Snapshot, key: str) -> bool:
        kept = next((one.context for one in snapshot.kept if one.id == key), None)
        number = int(key) if key.isdecimal() else kept
        if number is None or not self.map.go_to_owner(number):
            self.host.say("it has no page that is its own first: they were given up, or belong to an older context too", "warning")
        return True

    def _request(self) -> str:
        page, snapshot = self.map.cursor_page, self.host.snapshot
        if page is None or snapshot is None or (found := self._looked_at(snapshot)) is None:
            return ""
        request = found[0].request_of(page.context)
        return "" if request is None else str(request.id)

    def _sums(self, model: Model, group: Group) -> str:
        which = f"group {self._group % len(model.pages)} of {len(model.pages)} · " if len(model.pages) > 1 else ""
        saved = group.saved
        shared = f"a copy would be {group.used + saved:,}, sharing holds {group.used:,} ({saved:,} saved)"
        cells = f" · 1 cell = {self.map.zoom} pages" if self.map.zoom > 1 else ""
        return (
            f"{which}{group.used:,} of {group.pages:,} pages used, {group.free:,} free · "
            f"{shared if saved else 'nothing is shared'} · prefix tree alone {group.tree:,}{cells}"
        )

    def _owner(self, model: Model, snapshot: Snapshot) -> str:
        page = self.map.cursor_page
        if page is None:
            return ""
        if not page.owners:
            return f"page {page.number:,}: free"
        also = f"{page.owners} owners" + (", the prefix tree one of them" if page.tree else "") if page.owners > 1 else "1 owner"
        if page.context < 0:
            return f"page {page.number:,}: the prefix tree's alone; a prompt that begins like it finds it, others take it"
        held, request = model.held(page.context), model.request_of(page.context)
        kept = next((one for one in snapshot.kept if one.context == page.context and one.model == model.name), None)
        who = words.short(kept.id) if kept is not None else f"context {page.context}"
        name = words.line(held.name if held is not None else "")
        asked = f" · request {request.id}, {request.state} (enter shows it)" if request is not None else ""
        tokens = page.tokens
        where = f" · tokens {tokens[0]:,} to {tokens[1]:,}" if tokens is not None else ""
        return f"page {page.number:,}: {who}{f' {name!r}' if name else ''}{asked} · {also}{where}"

    def _tell(self, sums: str, owner: str) -> None:
        tell(self.query_one("#sums", Static), sums)
        tell(self.query_one("#owner", Static), owner)
