"""The Header: what is looked at, in one line, and the screens in another."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.widgets import Static

from llamay.tui import words
from llamay.tui.history import History
from llamay.tui.lines import Pieces, Said
from llamay.tui.moment import Snapshot

GAUGE = 8  # columns of the pages' bar


class Header(Vertical):
    """A click on a name shows that screen."""

    DEFAULT_CSS = """
    Header { height: 2; background: $panel; }
    Header > Said { height: 1; width: 100%; }
    Header > Static { height: 1; width: 100%; text-wrap: nowrap; text-overflow: ellipsis; }
    """

    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self._screens, self._tabs = names, ""

    def compose(self) -> ComposeResult:
        """Two lines."""
        yield Said("llamay", id="line")
        yield Static(self.tabs(""), id="tabs")

    def show(self, line: Pieces, current: str, wide: int) -> None:
        """Draws both."""
        self.query_one("#line", Said).say([line])
        tabs = self.tabs(current, wide)
        if tabs != self._tabs:  # markup, which takes long to read
            self._tabs = tabs
            self.query_one("#tabs", Static).update(tabs, layout=False)

    def tabs(self, current: str, wide: int = 80) -> str:
        """`1 chat  2 batch ...` with links; where there is no room, the digits of the others."""
        shown, room = [], sum(len(f" {number} {called} ") for number, called in enumerate(self._screens, 1))
        for number, called in enumerate(self._screens, 1):
            label = f"{number} {called}" if wide >= room or called == current else f"{number}"
            shown.append(f"[reverse bold] {label} [/]" if called == current else f"[@click=app.show('{called}')] {label} [/]")
        return "".join(shown)


def line(snapshot: Snapshot | None, history: History, where: str, lost: str, paused: bool, wide: int) -> Pieces:
    """`smollm2 · lavapipe · pages ▇▇▁ 12% · 41.2 tok/s · 3 running · 1 waiting`; what does not fit goes from the end."""
    before = ((" PAUSED (space goes on) ", "reverse bold"), (" ", "")) if paused else ()
    if lost:
        return (*before, (" DISCONNECTED ", "reverse bold"), (f" {words.line(lost)}; trying again", ""))
    return (*before, (_state(snapshot, history, where, wide), ""))


def _state(snapshot: Snapshot | None, history: History, where: str, wide: int) -> str:
    if snapshot is None:
        return f"asking {words.line(where)} ..."
    speed = sum(one.decode for one in history.rates.values())
    tail = f"{words.rate(speed):>6} tok/s · {snapshot.running:>2} running · {snapshot.waiting:>2} waiting"
    if not snapshot.models:
        loading = f"loading {', '.join(snapshot.loading)}" if snapshot.loading else "no model is loaded"
        return f"{words.line(loading)} · {tail} · {words.line(where)}"
    model = snapshot.models[0]
    more = f" +{len(snapshot.models) - 1}" if len(snapshot.models) > 1 else ""
    if wide < 80:
        return f"{words.line(model.name)}{more} · {words.rate(speed)} tok/s · {snapshot.running} running"
    pages, used = sum(group.pages for group in model.pages), sum(group.used for group in model.pages)
    share = used / pages if pages else 0.0
    gauge = f"pages [{words.bar(share, GAUGE)}] {share:4.0%}"
    name = words.line(model.name)
    rest = f" · {words.line(model.device).partition(' (')[0][:30]} · kv {snapshot.kv} · {words.line(where)}" if wide >= 120 else ""
    return f"{name[:28]}{more} · {gauge} · {tail}{rest}"
