"""The application: one screen of panes over one source, which threads of their own watch and act on."""

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ClassVar, TypeVar, cast

from textual import events
from textual.app import App, ComposeResult, SystemCommand
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.notifications import SeverityLevel
from textual.screen import Screen
from textual.widgets import ContentSwitcher, Footer, Static

from llamay.errors import LlamayError
from llamay.tui import header, words
from llamay.tui.asking import Ask, Choose, Confirm, Help
from llamay.tui.batch import Batch
from llamay.tui.bench import Bench
from llamay.tui.chat import Chat
from llamay.tui.forks import Forks
from llamay.tui.header import Header
from llamay.tui.history import Entry, History
from llamay.tui.journal import Journal
from llamay.tui.keys import bound, keys, shown_key
from llamay.tui.models import Models
from llamay.tui.moment import Answered, Asked, Lost, News, Snapshot
from llamay.tui.pages import Pages
from llamay.tui.pane import Pane
from llamay.tui.requests import Requests
from llamay.tui.source import Hear, Source
from llamay.tui.verify import Verify

T = TypeVar("T")

PANES: tuple[type[Pane], ...] = (Chat, Batch, Pages, Forks, Requests, Models, Bench, Verify)
NAMES = tuple(pane.TITLE for pane in PANES)
LEAST = (50, 14)  # columns and lines
WIDE = 100  # columns from which on the chat has its tree at the side
THEMES = ("textual-dark", "textual-light", "nord", "gruvbox", "textual-ansi")


class Terminal(App[int]):
    """What `llamay tui` runs.  Everything that may wait happens on other threads; they send messages."""

    TITLE = "llamay"
    CSS = """
    Screen { overflow: hidden; }
    .wide #side { display: block; }
    #panes { height: 1fr; }
    #small { display: none; height: 1fr; content-align: center middle; }
    .small > * { display: none; }
    .small > #small { display: block; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(str(number), f"show('{name}')", name.capitalize(), show=False) for number, name in enumerate(NAMES, 1)),
        Binding("space", "pause", "Pause"),
        Binding("y", "copy", "Copy"),
        Binding("question_mark", "help", "Help", key_display="?"),
        Binding("ctrl+t", "theme", "Theme", show=False),
        Binding("q", "leave", "Quit"),
        Binding("ctrl+q,ctrl+c", "leave", "Quit", show=False, priority=True),
    ]

    class Heard(Message):
        """News from the source; of snapshots only the last that is not shown yet."""

        def __init__(self, news: News | None) -> None:
            self.news = news
            super().__init__()

    class Due(Message):
        """Something that another thread wants done on the screen's."""

        def __init__(self, do: Callable[[], None]) -> None:
            self.do = do
            super().__init__()

    def __init__(
        self, source: Source, cache: Path, first: str = "chat", record: Hear = lambda news: None, note: str = "",
        *, load: bool = False,
    ) -> None:  # fmt: skip
        """`record` hears everything, on the thread it came on; `note` is said on the models screen.

        With `load` the source's default model is loaded at once, as somebody asked for it.
        """
        super().__init__()
        self.source, self.cache, self.note = source, cache, note
        self.history, self.journal = History(), Journal()
        self.snapshot: Snapshot | None = None
        self.connected, self.paused = True, False
        self._first, self._record, self._load = first, record, load
        self._lost = ""
        self._measured: Size | None = None
        self._latest: Snapshot | None = None  # heard and not taken in yet
        self._newest: Snapshot | None = None  # taken in; shown unless it is paused
        self._over = threading.Event()
        self._answers: dict[int, threading.Event] = {}
        self._queued = threading.Lock()

    def compose(self) -> ComposeResult:
        """Header, panes, keys."""
        yield Header(NAMES)
        with ContentSwitcher(initial=self._first, id="panes"):
            for pane in PANES:
                yield pane(self)
        yield Footer(show_command_palette=False)
        yield Static("", id="small", markup=False)

    def on_mount(self) -> None:
        """Begins to watch."""
        self._sized()
        self.pane.take_focus()
        self._draw_header()
        threading.Thread(target=self._watch, name="llamay-watch", daemon=True).start()
        if self._load:
            self.work(lambda: self.source.load(""))

    def on_unmount(self) -> None:
        """Ends what is under way."""
        self._over.set()
        for stop in self._answers.values():
            stop.set()

    def on_resize(self, event: events.Resize) -> None:
        """Another size, another layout.  The same size again: it was another in between, and the terminal has lost what it showed."""
        if event.size == self._measured:
            self.refresh()
        self._measured = event.size
        self._sized()
        self.call_after_refresh(self._draw)

    @property
    def pane(self) -> Pane:
        """The one that is shown."""
        return self._pane(self.query_one("#panes", ContentSwitcher).current or NAMES[0])

    # what panes may ask

    def work(self, do: Callable[[], T], then: Callable[[T], None] = lambda found: None) -> None:
        """On a thread of its own, and back."""

        def run() -> None:
            try:
                found = do()
            except (LlamayError, OSError) as error:
                said = str(error)  # the name of an exception ends with its clause
                self.later(lambda: self.say(said, "error"))
                return
            self.later(lambda: then(found))

        threading.Thread(target=run, name="llamay-act", daemon=True).start()

    def later(self, do: Callable[[], None]) -> None:
        """From any thread; nothing happens any more once the screen is being left."""
        if not self._over.is_set():
            self.post_message(self.Due(do))

    def on_terminal_due(self, event: Due) -> None:
        """It is."""
        if self.is_running and not self._over.is_set():
            event.do()

    def say(self, text: str, level: str = "information") -> None:
        """As a notice, and in the log."""
        text = words.plain(text)
        self.journal.write(text, level)
        severity = level if level in ("information", "warning", "error") else "information"
        self.notify(text, severity=cast(SeverityLevel, severity), markup=False, timeout=8 if level == "error" else 4)

    def question(self, asked: Asked) -> None:
        """Its pieces come back as news."""
        stop = self._answers[asked.number] = threading.Event()
        self._tell(asked)

        def run() -> None:
            try:
                for news in self.source.answer(asked, stop):
                    self._tell(news)
            except LlamayError as error:
                self._tell(Answered(asked.number, error=str(error)))
            self._answers.pop(asked.number, None)

        threading.Thread(target=run, name="llamay-answer", daemon=True).start()

    def stop(self, number: int) -> None:
        """Within a step, where the model is at it."""
        if number in self._answers:
            self._answers[number].set()

    def confirm(self, text: str, then: Callable[[], None]) -> None:
        """A window."""
        self.push_screen(Confirm(text), lambda yes: then() if yes else None)

    def ask(self, text: str, then: Callable[[str], None], value: str = "") -> None:
        """A window."""
        self.push_screen(Ask(text, value), lambda line: None if line is None else then(line))

    def go(self, pane: str, key: str = "") -> None:
        """Another pane, its cursor on something."""
        self.action_show(pane)
        if key:
            self._pane(pane).pick(key)

    # keys

    def action_show(self, name: str) -> None:
        """Shows one of the screens."""
        self.query_one("#panes", ContentSwitcher).current = name
        self.pane.take_focus()
        self._draw()

    def action_pause(self) -> None:
        """Holds live figures still until the next press; a chat goes on."""
        self.paused = not self.paused
        if not self.paused:
            self._show()
        self._draw_header()

    def action_copy(self) -> None:
        """Copies what the screen is about; of an answer with code, asks which block."""
        parts = self.pane.parts()
        if parts:
            texts = [text for _, text in parts]
            chosen = Choose("Copy which?", [name for name, _ in parts])
            self.push_screen(chosen, lambda at: None if at is None else self._copy(texts[at]))
        else:
            self._copy(self.pane.copied())

    def _copy(self, text: str) -> None:
        if text:
            self.copy_to_clipboard(text)
            self.say(f"copied {len(text)} characters")
        else:
            self.say("there is nothing to copy here", "warning")

    def action_help(self) -> None:
        """Shows every key of this screen."""
        pane = self.pane
        screens = ", ".join(f"{number} {name}" for number, name in enumerate(NAMES, 1))
        everywhere = [
            (f"1-{len(NAMES)}", f"Screens: {screens}"),
            ("arrows", "Move the cursor; in the chat, from answer to answer"),
            ("tab", "Next part of the screen"),
            ("ctrl+p", "Palette: finds any action by its name"),
        ]
        sections = [(pane.TITLE, [("enter", pane.ENTER)] * bool(pane.ENTER) + keys(type(pane))), ("everywhere", [*everywhere, *keys(type(self))])]
        self.push_screen(Help(sections))

    def action_theme(self) -> None:
        """Takes other colours, five kinds in turn."""
        at = THEMES.index(self.theme) + 1 if self.theme in THEMES else 0
        self.theme = THEMES[at % len(THEMES)]
        self.say(f"theme {self.theme}")

    def action_leave(self) -> None:
        """Leaves; asks first where an answer would be lost."""
        if any(not stop.is_set() for stop in self._answers.values()) and len(self.screen_stack) < 2:
            self.confirm("An answer is still coming. Quit all the same?", lambda: self.exit(0))
        else:
            self.exit(0)

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Everything that a key does, for the palette."""
        yield from super().get_system_commands(screen)
        for name in NAMES:
            yield SystemCommand(f"Show {name}", f"Screen {NAMES.index(name) + 1}", lambda name=name: self.action_show(name))
        for pane in PANES:
            for binding in bound(pane):
                yield SystemCommand(
                    f"{pane.TITLE}: {binding.description}", f"Key {shown_key(binding)} there", self._doing(pane.TITLE, binding.action)
                )

    # news

    async def on_terminal_heard(self, event: Heard) -> None:
        """From the source, or from an answer."""
        if not self.is_running or self._over.is_set():
            return  # the panes are being taken down
        if event.news is None:
            with self._queued:
                snapshot, self._latest = self._latest, None
            if snapshot is not None:
                self._take(snapshot)
            return
        if isinstance(event.news, Lost):
            self._lose(event.news)
        for pane in PANES:
            await self._pane(pane.TITLE).heard(event.news)

    def _take(self, snapshot: Snapshot) -> None:
        """Into the history, and on the screen unless it is paused."""
        for entry in self.history.hear(snapshot):
            self._note(entry)
        if not self.connected:
            self.connected, self._lost = True, ""
            self.say(f"{self.source.where} answers again")
        self._newest = snapshot
        if not self.paused:
            self._show()

    def _show(self) -> None:
        if self._newest is not None:
            self.snapshot = self._newest
            self._draw()

    def _lose(self, lost: Lost) -> None:
        if self.connected:
            self.say(f"disconnected: {lost.reason}", "error")
        self.connected, self._lost = False, lost.reason
        self._draw_header()

    def _note(self, entry: Entry) -> None:
        level = "error" if entry.state == "failed" else "information"
        how = entry.state if entry.outcome in ("", "cancel") else f"{entry.state} ({entry.outcome})"
        took = f"{entry.generated} tokens, {entry.rate:.1f} tok/s" if entry.generated else "no token"
        self.journal.write(f"request {entry.id} of {entry.model}: {how}, {took}", level, entry.at)

    def _watch(self) -> None:
        """On a thread of its own."""
        try:
            self.source.watch(self._tell, self._over)
        except LlamayError as error:
            self._tell(Lost(str(error)))

    def _tell(self, news: News) -> None:
        """From any thread."""
        self._record(news)
        if self._over.is_set():
            return
        if isinstance(news, Snapshot):
            with self._queued:
                waiting, self._latest = self._latest is not None, news
            if not waiting:
                self.post_message(self.Heard(None))
        else:
            self.post_message(self.Heard(news))

    # drawing

    def _draw(self) -> None:
        with self.batch_update():
            if self.snapshot is not None and not self.screen.has_class("small"):
                self.pane.shown(self.snapshot)
            self._draw_header()

    def _draw_header(self) -> None:
        wide = (self._measured or self.size).width
        text = header.line(self.snapshot, self.history, self.source.where, self._lost, self.paused, wide)
        self.query_one(Header).show(text, self.pane.TITLE, wide)

    def _sized(self) -> None:
        columns, lines = self._measured or self.size
        screen = self.screen_stack[0] if self.screen_stack else self.screen
        small, was = columns < LEAST[0] or lines < LEAST[1], screen.has_class("small")
        screen.set_class(small, "small")
        screen.set_class(columns >= WIDE, "wide")
        if was and not small:
            self.call_after_refresh(self.pane.take_focus)  # what is hidden loses the focus
        if small:
            text = f"This terminal has {columns} columns and {lines} lines; llamay tui needs {LEAST[0]} and {LEAST[1]}."
            self.query_one("#small", Static).update(text)

    def _pane(self, name: str) -> Pane:
        return self.screen_stack[0].query_one(f"#{name}", Pane)

    def _doing(self, pane: str, action: str) -> Callable[[], None]:
        async def act() -> None:
            self.action_show(pane)
            await self.run_action(action, self._pane(pane))

        def later() -> None:
            self.call_later(act)

        return later
