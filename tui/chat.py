"""Screen 1: the chat; an answer as it comes, and every answer a context that may be forked, asked again or gone on from."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.widgets import Static

from llamay.tui import trees, words
from llamay.tui.conversation import Conversation, Turn, code
from llamay.tui.exchange import Exchange
from llamay.tui.moment import Answered, Asked, News, Piece, Snapshot
from llamay.tui.pane import Host, Pane, tell
from llamay.tui.prompt import Prompt
from llamay.tui.rows import Column, Row, Rows

HELLO = """\
{model}

Type a question below and press enter.  For example:
  · Explain what a KV cache is, in three sentences.
  · Write a haiku about the sea.
  · What is the capital of Portugal?

escape leaves the field; then the arrows choose an answer, and
f forks it   r asks again in a fork   e edits the question in a fork
1-8 switch screens (3: the pages, 4: the forks)   ? explains every key"""

HINT = "enter sends · escape, then f forks, r asks again, ? helps"


class Chat(Pane):
    """The contexts at the side, the branch in the middle, the prompt below."""

    TITLE = "chat"
    ENTER = "Sends what is in the field; alt+enter begins another line there"
    DEFAULT_CSS = """
    Chat #side { width: 30; border-right: solid $panel; display: none; }
    Chat #hello { padding: 1 2; height: auto; }
    Chat #messages { height: 1fr; }
    Chat Prompt { height: auto; min-height: 3; max-height: 9; border: round $primary; }
    Chat Prompt:focus { border: round $accent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("f", "fork", "Fork"),
        Binding("r", "again", "Again"),
        Binding("e", "edit", "Edit"),
        Binding("x", "stop", "Stop"),
        Binding("i", "prompt", "Type"),
        Binding("t", "thoughts", "Thoughts", show=False),
        Binding("T", "think", "Think", show=False),
        Binding("w", "rewind", "Rewind", show=False),
        Binding("s", "save", "Snapshot", show=False),
        Binding("n", "new", "New conversation", show=False),
    ]

    def __init__(self, host: Host) -> None:
        super().__init__(host)
        self.conversation = Conversation()
        self.model = ""  # empty: the default
        self.thoughts = False  # whether they are shown

    def compose(self) -> ComposeResult:
        """Side, branch, prompt."""
        with Horizontal():
            with Vertical(id="side"):
                yield Rows((Column("contexts", 0), Column("tok", 6, right=True)), id="contexts")
            with Vertical():
                with VerticalScroll(id="messages"):
                    yield Static(HELLO.format(model="No model is loaded yet; the first question loads one."), id="hello", markup=False)
                prompt = Prompt(placeholder="Ask something; enter sends", id="prompt", show_line_numbers=False)
                prompt.cursor_blink = False
                prompt.border_subtitle = HINT
                yield prompt

    @property
    def prompt(self) -> Prompt:
        """The field."""
        return self.query_one(Prompt)

    @property
    def chosen(self) -> Turn | None:
        """The turn whose answer has the focus, else the last one of the branch."""
        focused = self.screen.focused
        if isinstance(focused, Exchange):
            return focused.turn
        branch = self.conversation.branch()
        return branch[-1] if branch else None

    def shown(self, snapshot: Snapshot) -> None:
        """The tree at the side, and the model's name before the first question."""
        rows = []
        for node in trees.kept(snapshot):
            turn = self.conversation.of_context(node.key)
            said = turn.question if turn is not None else node.kept.name if node.kept is not None else ""
            here = "● " if node.key == self.conversation.head else ""
            label = f"{node.strokes}{here}{words.line(said)[:40] or words.short(node.key)}"
            rows.append(Row(node.key, (label, f"{node.tokens:,}")))
        self.query_one("#contexts", Rows).fill(rows)
        if not self.conversation.turns and (snapshot.models or snapshot.loading):
            tell(self.query_one("#hello", Static), HELLO.format(model=_ready(snapshot)))

    def take_focus(self) -> None:
        """The prompt, where nothing was asked yet; else the last answer."""
        exchanges = self._exchanges
        (exchanges[-1] if exchanges else self.prompt).focus()

    def pick(self, key: str) -> None:
        """Goes on from a context, or with a model."""
        turn = self.conversation.of_context(key)
        if turn is not None:
            self.conversation.show(turn.number)
        elif key.startswith("ctx_"):
            self.conversation.show(None)
            self.conversation.adopt(key)
            self.host.say(f"going on from {words.short(key)}, which was made elsewhere: its text is not known here")
        else:
            self.model = key
            self.conversation.show(None)
        self.call_later(self._redraw)
        self.prompt.focus()

    def copied(self) -> str:
        """The answer."""
        turn = self.chosen
        return "" if turn is None else turn.answer

    def parts(self) -> list[tuple[str, str]]:
        """Its blocks of code, and all of it."""
        blocks = code(self.copied())[:8]  # one digit each, and one for all
        names = [f"block of {language or 'code'}, {_lines(text)}: {words.line(text)[:40]}" for language, text in blocks]
        whole = [("the whole answer", self.copied())] if blocks else []
        return [*zip(names, (text for _, text in blocks), strict=True), *whole]

    async def heard(self, news: News) -> None:
        """Questions and answers."""
        if not isinstance(news, Asked | Piece | Answered):
            return
        turn = self.conversation.hear(news)
        if turn is None:
            return
        if isinstance(news, Asked):
            typing = self.screen.focused is self.prompt
            await self._redraw()
            if self.is_on_screen and not typing:
                self._exchanges[-1].focus()
            return
        exchange = next((one for one in self._exchanges if one.number == turn.number), None)
        if exchange is not None and isinstance(news, Piece) and news.thought:
            exchange.think()
        elif exchange is not None and isinstance(news, Piece):
            await exchange.grow(news.text)
        elif exchange is not None:
            await exchange.finish()
        messages = self.query_one("#messages", VerticalScroll)
        if exchange is not None and self._exchanges[-1] is exchange:
            messages.scroll_end(animate=False)

    def on_prompt_sent(self, event: Prompt.Sent) -> None:
        """Asks."""
        if self.conversation.streaming is not None and self.conversation.edits is None:
            self.host.say("the answer before is still coming; escape, then x stops it", "warning")
            return
        self.prompt.text = ""
        self.host.question(self.conversation.next(event.text, self.model))

    def on_prompt_left(self) -> None:
        """The keys act on answers now."""
        self.conversation.edits = None
        exchanges = self._exchanges
        (exchanges[-1] if exchanges else self.query_one("#messages", VerticalScroll)).focus()

    def on_prompt_recalled(self) -> None:
        """Edits the last question."""
        self.action_edit()

    def on_exchange_stepped(self, event: Exchange.Stepped) -> None:
        """To the answer before or after; past the last one, to the prompt."""
        exchanges = self._exchanges
        at = exchanges.index(event.exchange) + event.by
        if at >= len(exchanges):
            self.prompt.focus()
        elif at >= 0:
            exchanges[at].focus()

    def on_rows_chosen(self, event: Rows.Chosen) -> None:
        """Enter in the tree shows that branch."""
        self.pick(event.key)

    def action_prompt(self) -> None:
        """Goes into the field, to ask."""
        self.prompt.focus()

    def action_fork(self) -> None:
        """Forks the chosen answer; the next question goes into the fork."""
        turn = self._complete()
        if turn is None:
            return

        def forked(made: tuple[str, ...]) -> None:
            self.conversation.show(turn.number)
            self.conversation.adopt(made[0])
            self.call_later(self._redraw)
            self.prompt.focus()
            self.host.say(f"forked as {words.short(made[0])}: what you ask now goes into the fork (4 shows it, 3 its pages)")

        self.host.work(lambda: self.host.source.fork(turn.context), forked)

    def action_again(self) -> None:
        """Asks the same question once more, in a fork."""
        turn = self.chosen
        if turn is None:
            self.host.say("nothing was asked yet", "warning")
        elif turn.end is None:
            self.host.say("this answer is still coming; x stops it", "warning")
        else:
            self.host.question(self.conversation.again(turn, self.model))

    def action_edit(self) -> None:
        """Takes the question back into the field; once sent, it is asked in a fork of what was before it."""
        turn = self.chosen
        if turn is None:
            return
        self.conversation.edits = turn
        self.prompt.text = turn.question
        self.prompt.focus()
        self.prompt.move_cursor(self.prompt.document.end)
        self.host.say("enter asks this instead, in a fork; escape leaves it as it was")

    def action_rewind(self) -> None:
        """Takes the last question and its answer back, and frees their pages."""
        branch = self.conversation.branch()
        snapshot = self.host.snapshot
        if not branch or snapshot is None:
            return
        turn = branch[-1]
        kept = next((one for one in snapshot.kept if one.id == turn.context), None)
        if kept is None:
            self.conversation.show(turn.parent)
            self.call_later(self._redraw)
            return

        def rewound(done: None) -> None:
            self.conversation.show(turn.parent)
            if kept.fork_point:
                self.conversation.adopt(kept.id)
            self.call_later(self._redraw)
            self.prompt.text = turn.question
            self.prompt.focus()
            self.host.say(f"rewound {kept.tokens - kept.fork_point} tokens, to {kept.fork_point}")

        source = self.host.source
        do = (lambda: source.rewind(kept.id, kept.fork_point)) if kept.fork_point else (lambda: source.drop(kept.id))
        self.host.work(do, rewound)

    def action_save(self) -> None:
        """Asks for a name, and saves the context of the chosen answer."""
        turn = self._complete()
        if turn is not None:
            self.host.ask(
                "Name of the snapshot (empty: one is made up)",
                lambda name: self.host.work(
                    lambda: self.host.source.save(turn.context, name),
                    lambda saved: self.host.say(f"saved as {saved}; `llamay context show {saved}`"),
                ),
            )

    def action_stop(self) -> None:
        """Ends the answer that is coming; what came of it stays."""
        for turn in self.conversation.branch():
            if turn.end is None:
                self.host.stop(turn.number)

    def action_thoughts(self) -> None:
        """Shows what was thought before the answers, or hides it."""
        self.thoughts = not self.thoughts
        for exchange in self._exchanges:
            exchange.show_thoughts(self.thoughts)
        if not any(turn.thoughts for turn in self.conversation.branch()):
            self.host.say(f"thoughts will be {'shown' if self.thoughts else 'hidden'}; here are none")

    def action_think(self) -> None:
        """Has models that can think before they answer do so, or not."""
        self.conversation.thinks = not self.conversation.thinks
        how = "before they answer" if self.conversation.thinks else "no more: the next question is answered at once"
        self.host.say(f"models that can think do so {how}")

    def action_new(self) -> None:
        """Begins a conversation anew; what was said stays in the tree."""
        self.conversation.show(None)
        self.call_later(self._redraw)
        self.prompt.focus()

    @property
    def _exchanges(self) -> list[Exchange]:
        return list(self.query(Exchange))

    def _complete(self) -> Turn | None:
        """The chosen turn, where its answer is a context."""
        turn = self.chosen
        if turn is None or not turn.context:
            self.host.say("there is no complete answer here yet", "warning")
            return None
        return turn

    async def _redraw(self) -> None:
        """The branch as it is now; what is shown already stays."""
        branch = self.conversation.branch()
        shown = self._exchanges
        same = 0
        while same < min(len(shown), len(branch)) and shown[same].number == branch[same].number:
            same += 1
        for exchange in shown[same:]:
            await exchange.remove()
        messages = self.query_one("#messages", VerticalScroll)
        self.query_one("#hello", Static).display = not branch
        for turn in branch[same:]:
            await messages.mount(Exchange(turn, thoughts=self.thoughts))
        messages.scroll_end(animate=False)


def _ready(snapshot: Snapshot) -> str:
    """Who will answer."""
    if not snapshot.models:
        return f"{words.line(snapshot.loading[0]) or 'The model'} is being loaded; you may ask already."
    model = snapshot.models[0]
    return f"{words.line(model.name)} on {words.line(model.device)}"


def _lines(text: str) -> str:
    count = text.count("\n") + 1
    return f"{count} line{'s' * (count > 1)}"
