"""A Context for Python: a text whose keys and values are kept, and that forks, rewinds, is saved and goes on."""

import weakref
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, Unpack, overload

import numpy as np

from llamay.errors import UsageError
from llamay.kv import snapshots
from llamay.serve.contexts.pages import Pages
from llamay.serve.events import Failed, Rows
from llamay.serve.options import Options
from llamay.serve.request import Limits, Reading, Request
from llamay.serve.results import Completion, Stream
from llamay.serve.scheduling.scheduler import Scheduler
from llamay.tensor.program import Floats

if TYPE_CHECKING:
    from llamay.serve.llama import Llama


class Context:
    """Tokens, of which all but the last are computed and kept.  `Llama.context` makes one.

    It outlives everything but its Llama: pages that went, because memory ran out or a device was
    lost, are computed again from the tokens, bit for bit.  One thread at a time may use it.
    """

    def __init__(self, llama: "Llama", tokens: Sequence[int], pages: Pages, parent: "str | None" = None) -> None:
        self._llama = llama
        self._tokens = list(tokens)
        self._pages = pages
        self._parent = parent  # name of the saved context it came from
        self._stream: Stream | None = None
        self.note = ""  # where it was restored, how: from pages, or from tokens and why
        llama.engine.hold(1)
        self._finalizer = weakref.finalize(self, _release, llama.engine, pages)

    @property
    def tokens(self) -> tuple[int, ...]:
        """All of them."""
        self._settle()
        return tuple(self._tokens)

    @property
    def text(self) -> str:
        """What the tokens spell, the names of special ones included."""
        return self._llama.tokenizer.text(self.tokens, special=True)

    def __len__(self) -> int:
        """How many tokens."""
        self._settle()
        return len(self._tokens)

    def __repr__(self) -> str:
        return f"<Context of {len(self._tokens)} tokens>"

    def append(self, *, text: str | None = None, tokens: Sequence[int] | None = None) -> Self:
        """Computes more of a text, and returns itself.  Special tokens written in `text` are recognised."""
        if (text is None) == (tokens is None):
            raise UsageError("append takes either text or tokens")
        self._settle()
        tokenizer = self._llama.tokenizer
        goes_on = tokenizer.continues(self._tokens)
        more = list(tokens or ()) if text is None else tokenizer.encode(text, parse_special=True, continues=goes_on)
        before = len(self._tokens)
        self._tokens += more
        try:
            self._compute()
        except BaseException:
            del self._tokens[before:]
            raise
        return self

    def fork(self, n: int = 1) -> "list[Context]":
        """`n` contexts that share all pages with this one: none is copied until it is written to."""
        self._settle()
        tokens = list(self._tokens)

        forked = self._llama.engine.call(lambda scheduler: self._pages.fork(scheduler.admission, tokens, n))
        return [Context(self._llama, tokens, pages, self._parent) for pages in forked]

    def rewind(self, n: int) -> Self:
        """Forgets all but the first `n` tokens, and returns itself."""
        self._settle()
        if not 0 <= n <= len(self._tokens):
            raise UsageError(f"the context has {len(self._tokens)} tokens; it cannot go back to {n}")
        del self._tokens[n:]
        self._llama.engine.call(lambda scheduler: self._pages.rewind(scheduler.admission, n))
        return self

    @overload
    def generate(self, *, stream: Literal[False] = False, **options: Unpack[Options]) -> Completion: ...
    @overload
    def generate(self, *, stream: Literal[True], **options: Unpack[Options]) -> Stream: ...
    def generate(self, *, stream: bool = False, **options: Any) -> Completion | Stream:
        """Goes on with the text.  The answer's tokens become part of the context, unless there are several choices."""
        self._settle()
        if not self._tokens:
            raise UsageError("the context has no tokens, so there is nothing to continue")
        started = self._llama.ask(tuple(self._tokens), options, context=self._id(), ended=self._adopt)
        self._stream = started
        return started if stream else self._llama.finished(started, options)

    def logits(self) -> Floats:  # -> [tokens, vocabulary]
        """The logits of every position, computed anew: those of row i are for token i + 1."""
        self._settle()
        rows: list[Floats] = []
        for event in self._llama.engine.submit(Reading(tuple(self._tokens), prefix_cache=False)):
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Rows):
                rows.append(event.logits)
        return np.concatenate(rows)

    def snapshot(self, name: str = "", *, tags: Sequence[str] = (), replace: bool = True) -> str:
        """Saves it, and returns the name, which is made up where none is given.  docs/contexts.md tells of the files.

        Where `replace` is False a name that is taken is refused.
        """
        self._settle()
        folder, origin = self._llama.folder, self._llama.origin
        tokens = list(self._tokens)
        label = snapshots.Label(name, tuple(tags), self._parent or "", self.text)

        def record(scheduler: Scheduler) -> snapshots.Recording:
            self._pages.call(label.name)
            return self._pages.record(scheduler, folder, origin(scheduler), tokens)

        with self._llama.engine.call(record) as recording:
            saved = recording.commit(label, replace=replace)
        self._parent = saved.name
        return saved.name

    def restore(self, name: str, *, tokens: int | None = None, recompute: bool = False) -> Self:
        """Becomes a saved context, or its first `tokens` tokens, and returns itself.

        Everything is checked before anything of this one is given up.  Where the pages are not what
        this machine would compute it is refused by name, or, with `recompute`, built from the tokens; `note` says so.
        """
        self._settle()
        folder, origin = self._llama.folder, self._llama.origin
        saved = folder.find(name).manifest

        def restore(scheduler: Scheduler) -> snapshots.Restored:
            found = self._pages.restore(scheduler, folder, saved, origin(scheduler), tokens=tokens, recompute=recompute)
            self._pages.call(saved.name)
            return found

        found = self._llama.engine.call(restore)
        self._tokens, self.note = list(found.tokens), found.note
        self._parent = name
        self._compute()
        return self

    def close(self) -> None:
        """Gives its pages back.  Safe to call twice; leaving it to be collected does the same."""
        if self._stream is not None and not self._stream.over:
            self._stream.close()
        self._finalizer()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _settle(self) -> None:
        """Sees to it that nothing is under way; what nobody listens to any more is waited for."""
        if not self._finalizer.alive:
            raise UsageError("the context was closed")
        stream = self._stream
        if stream is not None and not stream.over:
            if not stream.left:
                raise UsageError("the context is being continued by a stream; finish or close that first, or fork")
            stream.close()
        self._stream = None

    def _adopt(self, completion: Completion | None) -> None:
        """The answer becomes part of the tokens."""
        if completion is not None and len(completion.choices) == 1:
            self._tokens += completion.choices[0].tokens

    def _id(self) -> int:
        tokens = list(self._tokens)
        return self._llama.engine.call(lambda scheduler: self._pages.current(scheduler.admission, tokens).id)

    def _compute(self) -> None:
        """Computes all but the last token."""
        if len(self._tokens) > 1:
            request = Request(tuple(self._tokens), limits=Limits(tokens=0), context=self._id())
            self._llama.engine.submit(request).result()


def _release(engine: Any, pages: Pages) -> None:
    """For when nobody has the context any more: from any thread, without waiting."""
    engine.post(pages.drop)
    engine.hold(-1)
