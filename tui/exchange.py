"""An Exchange: one question with its answer, which grows while it comes, and what it took."""

from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.widgets import Markdown, Static
from textual.widgets.markdown import MarkdownStream

from llamay.tui import words
from llamay.tui.conversation import Turn
from llamay.tui.moment import Answered

REASONS = {
    "end": "the model ended it",
    "stop": "a stop string",
    "length": "the limit",
    "context": "the context is full",
    "cancel": "stopped",
}


class Exchange(Vertical, can_focus=True, can_focus_children=False):
    """Takes the focus as a whole, so that keys act on this answer."""

    DEFAULT_CSS = """
    Exchange { height: auto; margin: 0 0 1 0; padding: 0 1; border-left: outer $panel; }
    Exchange:focus { border-left: outer $accent; background: $boost; }
    Exchange > .question { text-style: bold; color: $accent; }
    Exchange > .figures { color: $text-muted; }
    Exchange > .thoughts { color: $text-muted; text-style: italic; }
    Exchange > .figures.failed { color: $text-error; }
    Exchange > Markdown { padding: 0; margin: 0; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "step(-1)", "Earlier", show=False),
        Binding("down", "step(1)", "Later", show=False),
    ]

    class Stepped(Message):
        """The one before, or after, is wanted."""

        def __init__(self, exchange: "Exchange", by: int) -> None:
            self.exchange, self.by = exchange, by
            super().__init__()

    def __init__(self, turn: Turn, *, thoughts: bool = False) -> None:
        """Whether what was thought is shown; else a line tells how much it was."""
        super().__init__()
        self.turn, self._shows = turn, thoughts
        self._stream: MarkdownStream | None = None

    def compose(self) -> ComposeResult:
        """Question, answer, figures."""
        yield Static(Text(f"> {words.plain(self.turn.question)}"), classes="question")
        thoughts = Static(self._thoughts(), classes="thoughts")
        thoughts.display = bool(self.turn.thoughts)
        yield thoughts
        yield Markdown(words.plain(self.turn.answer), open_links=False)
        yield Static(self._figures(), classes="figures")

    @property
    def number(self) -> int:
        """Of the turn."""
        return self.turn.number

    def show_thoughts(self, shown: bool) -> None:
        """Shows what was thought, or how much it was."""
        self._shows = shown
        self.think()

    def think(self) -> None:
        """A piece of what is thought came."""
        thoughts = self.query_one(".thoughts", Static)
        thoughts.display = bool(self.turn.thoughts)
        thoughts.update(self._thoughts())

    async def grow(self, text: str) -> None:
        """A piece of the answer came."""
        if self._stream is None:
            self._stream = Markdown.get_stream(self.query_one(Markdown))
        await self._stream.write(words.plain(text))

    async def finish(self) -> None:
        """The answer is over."""
        if self._stream is not None:
            await self._stream.stop()
            self._stream = None
        await self.query_one(Markdown).update(words.plain(self.turn.answer))  # once more as a whole: pieces may have split a mark
        self.think()
        figures = self.query_one(".figures", Static)
        figures.update(self._figures())
        figures.set_class(self.turn.end is not None and bool(self.turn.end.error), "failed")

    def action_step(self, by: int) -> None:
        """Hands it to who knows the others."""
        self.post_message(self.Stepped(self, by))

    def _thoughts(self) -> Text:
        """All of it, or its length: a line in front of the answer either way."""
        said = words.plain(self.turn.thoughts)
        doing = "thinking" if self.turn.end is None and not self.turn.answer else "thought"
        head = f"▾ {doing} (t hides)\n{said}" if self._shows else f"▸ {doing}, {len(said.split()):,} words (t shows)"
        return Text(head)

    def _figures(self) -> Text:
        end = self.turn.end
        return Text("… answering (x stops)" if end is None else figures(end))


def figures(end: Answered) -> str:
    """`38 tokens · ttft 210ms · 41.2 tok/s · 96 of 120 cached · the model ended it`, or what went wrong.

    Of an answer that was stopped a server tells no counts: whoever hung up is told nothing more.
    """
    if end.error:
        more = "; 6, then p, does it here" if "llamay pull" in end.error else ""
        return f"✗ {words.line(end.error)}{more}  (r tries again)"
    reason = REASONS.get(end.reason, end.reason)
    if not end.prompt:
        return f"ttft {words.seconds(end.first)} · {reason}"
    return (
        f"{end.generated} tokens · ttft {words.seconds(end.first)} · {words.rate(end.rate)} tok/s · "
        f"{end.cached} of {end.prompt} cached · {reason}"
    )
