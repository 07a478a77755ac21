"""Local: an engine in this process, on a thread of its own."""

import os
import threading
import time
from collections.abc import Iterator
from queue import Empty, SimpleQueue

import msgspec

from llamay.errors import LlamayError
from llamay.serve import details, moment
from llamay.serve.contexts import turns
from llamay.serve.contexts.kept import Kept
from llamay.serve.contexts.shelf import Shelf
from llamay.serve.events import Done, Event, Failed
from llamay.serve.loading.language import Language, Prompt
from llamay.serve.models import Models
from llamay.serve.options import Options
from llamay.serve.speech import Spoken, spoken
from llamay.serve.ticket import Ticket
from llamay.settings import Settings
from llamay.store.network import Network
from llamay.store.pull import pull
from llamay.store.sources import Hosts
from llamay.tok.thinking import Thinking
from llamay.tui.moment import Answered, Asked, Installed, Parting, Piece, Progress, Snapshot
from llamay.tui.source import TICK, Hear, NotHere

POLL = 0.05  # seconds between two looks at `stop`


class Local:
    """The models of this machine.  Importing this module loads NumPy; making one starts an engine and loads no model."""

    live = True

    def __init__(self, settings: Settings, model: str = "") -> None:
        """`model` is a name or a file; NotInstalled where there is none."""
        self.models = Models(settings, default=model)
        self._shelf = Shelf(self.models)
        self._started = time.time()
        self.where = "this process"

    def watch(self, hear: Hear, stop: threading.Event) -> None:
        """A snapshot each tick."""
        while not stop.is_set():
            hear(self.snapshot())
            stop.wait(TICK)

    def snapshot(self) -> Snapshot:
        """What is so now."""
        return Snapshot(**msgspec.structs.asdict(moment.told(self.models, self._shelf, self._started)))

    def answer(self, asked: Asked, stop: threading.Event) -> Iterator[Piece | Answered]:
        """As the server answers it: the answer becomes a context of its own."""
        kept, ticket, thinking = self._ask(asked)
        began, first = time.monotonic(), 0.0
        for event in spoken(_heard(ticket, stop), thinking):
            match event:
                case Spoken(text, thought=thought):
                    first = first or time.monotonic() - began
                    yield Piece(asked.number, text, thought)
                case Failed(error):
                    yield Answered(asked.number, error=str(error))
                case Done(reason=reason, timings=times):
                    yield Answered(
                        asked.number, "" if kept.lost else kept.id, times.prompt_tokens, times.cached_tokens,
                        times.generated_tokens, first or times.prompt_seconds, times.decode_seconds, reason,
                    )  # fmt: skip

    def fork(self, context: str, count: int = 1) -> tuple[str, ...]:
        """On the engine's thread, between two steps."""
        return tuple(one.id for one in self._shelf.fork(self._shelf.find(context), count))

    def rewind(self, context: str, to: int) -> None:
        """The same."""
        self._shelf.rewind(self._shelf.find(context), to)

    def save(self, context: str, name: str) -> str:
        """Into the folder of saved contexts."""
        return self._shelf.snapshot(self._shelf.find(context), name).manifest.name

    def drop(self, context: str) -> None:
        """Its forks stay."""
        self._shelf.delete(self._shelf.find(context))

    def diff(self, left: str, right: str) -> Parting:
        """By tokens, texts and pages."""
        found = self._shelf.diff(self._shelf.find(left), self._shelf.find(right))
        return Parting(found.common, found.tokens, found.texts, found.shared, found.pages)

    def cancel(self, request: int) -> None:
        """Within a step."""
        if not self.models.engine.cancel(request):
            raise NotHere(f"request {request} is over already")

    def installed(self) -> tuple[Installed, ...]:
        """The default, and what is in the store."""
        listed = []
        for one in self.models.all():
            found = details.of(one.path)
            size = one.path.stat().st_size if one.installed is None else one.installed.size
            weights = details.counted(found.parameters) if found.parameters else ""
            listed.append(Installed(one.name, size, found.quantization, found.architecture, weights))
        return tuple(listed)

    def load(self, model: str) -> None:
        """Waits for it."""
        self.models.load(self.models.served(model))

    def unload(self, model: str) -> None:
        """Once it is idle."""
        self.models.engine.keep(model, 0.0)

    def delete(self, model: str) -> None:
        """Takes it out of the store."""
        served = self.models.served(model)
        if served.installed is None:
            raise NotHere(f"{model} is a file that was named at the start; it is not the store's to delete")
        self.models.store.remove(served.installed.name)
        self.models.engine.keep(model, 0.0)

    def pull(self, name: str) -> Iterator[Progress]:
        """On a thread of its own, so that progress is told as it comes."""
        hearing = _Hearing()
        error: list[LlamayError] = []

        def work() -> None:
            try:
                pull(self.models.store, name, hosts=Hosts.of(os.environ), network=Network(), reporter=hearing)
            except LlamayError as failure:
                error.append(failure)
            hearing.over.set()

        threading.Thread(target=work, name="llamay-pull", daemon=True).start()
        while not (hearing.over.is_set() and hearing.said.empty()):
            try:
                yield hearing.said.get(timeout=POLL)
            except Empty:
                continue
        if error:
            raise error[0]
        yield Progress("success")

    def spelled(self, model: str) -> str:
        """By its file."""
        return str(self.models.served(model).path)

    def close(self) -> None:
        """Ends what is under way and gives the device back."""
        self.models.close()

    def _ask(self, asked: Asked) -> tuple[Kept, Ticket, Thinking | None]:
        parent = self._shelf.find(asked.before) if asked.before else None
        served = self.models.served(asked.model) if parent is None else parent.served
        prompt = _prompt(self.models.language(served), parent, asked)
        options: Options = {"max_tokens": asked.most} if asked.most else {}
        kept, ticket = self._shelf.grow(served, prompt.tokens, options, stops=prompt.stops, parent=parent, via="terminal")
        return kept, ticket, prompt.thinking


class _Hearing:
    """A reporter that hands on how far a pull is, ten times a second at most."""

    def __init__(self) -> None:
        self.said: SimpleQueue[Progress] = SimpleQueue()
        self.over = threading.Event()
        self._label, self._total, self._done, self._told = "", 0, 0, 0.0

    def say(self, text: str) -> None:
        self.said.put(Progress(text))

    def begin(self, label: str, total: int | None, done: int) -> None:
        self._label, self._total, self._done = label, total or 0, done
        self.said.put(Progress(label, self._total, done))

    def advance(self, count: int) -> None:
        self._done += count
        if time.monotonic() - self._told > 0.1:
            self._told = time.monotonic()
            self.said.put(Progress(self._label, self._total, self._done))

    def end(self) -> None:
        self.said.put(Progress(self._label, self._total, self._done))


def _heard(ticket: Ticket, stop: threading.Event) -> Iterator[Event]:
    """The events of a request, which is cancelled once `stop` is set."""
    event: Event | None = None
    while not isinstance(event, Done | Failed):
        event = ticket.get(timeout=POLL)
        if stop.is_set():
            ticket.cancel()
        if event is not None:
            yield event


def _prompt(language: Language, parent: Kept | None, asked: Asked) -> Prompt:
    message = {"role": "user", "content": asked.text}
    told = {} if asked.think else {"enable_thinking": False}
    if parent is None or parent.messages is not None:
        before = () if parent is None else parent.messages or ()
        return language.chat([*before, message], **told)
    return turns.after_answer(language, parent.tokens, [message], **told)

