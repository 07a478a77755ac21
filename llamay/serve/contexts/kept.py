"""A Kept: one context on the shelf, and the keeper of the request that makes it."""

import secrets
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from llamay import kv
from llamay.errors import ContextBusy, ContextLost
from llamay.kv.context import TOKENS
from llamay.kv.stats import of_context
from llamay.serve.contexts.pages import Pages
from llamay.serve.events import Done, Final
from llamay.serve.loading.language import Message
from llamay.serve.models import Served
from llamay.serve.scheduling.admission import Admission

PREFIX = "ctx_"


@dataclass(frozen=True, slots=True)
class Told:
    """A context at one moment, for its owner."""

    id: str
    model: str
    name: str
    parent: str | None
    fork_point: int
    tokens: int
    own: int  # pages nobody else has, and those that others have too; 0 while they are given up
    shared: int
    pinned: bool
    created: int  # Unix seconds


@dataclass(slots=True, eq=False)
class Kept:
    """Tokens that a client may go on from, and the pages of all but the last, while there are any.

    What it holds is changed on the engine's thread alone; all else is as it was made.
    """

    served: Served
    tokens: "array[int]"
    pages: Pages
    id: str = ""
    name: str = ""
    parent: str | None = None
    fork_point: int = 0
    messages: tuple[Message, ...] | None = None  # those it holds and nothing else: no answer, no text
    client: str = ""  # who had it made
    saved: str = ""  # name of the saved context that it came from or became
    busy: bool = False  # a request is making it
    lost: bool = False  # it is on the shelf no more, and gets no pages again
    created: float = field(default_factory=time.time)

    def __post_init__(self) -> None:
        self.id = self.id or PREFIX + secrets.token_hex(12)
        self.pages.name = self.name

    @property
    def pinned(self) -> bool:
        """Whether it stays, with its pages, until it is deleted."""
        return self.pages.pinned

    def check(self) -> None:
        """ContextLost where it is kept no more, ContextBusy while a request is making it."""
        if self.lost:
            raise ContextLost(f"context {self.id} went while it was asked for")
        if self.busy:
            raise ContextBusy(f"{self.id} is still being made; it can be used when that answer is complete")

    def told(self, admission: Admission | None) -> Told:
        """What is so; `admission` is that of its model, where it is loaded."""
        context = None if admission is None else self.pages.held(admission)
        own = shared = 0
        if admission is not None and context is not None:
            stats = of_context(context, admission.cache.groups)
            own, shared = sum(stats.own), sum(stats.shared)
        return Told(
            self.id, self.served.name, self.name, self.parent, self.fork_point, len(self.tokens), own, shared,
            self.pinned, int(self.created),
        )  # fmt: skip


@dataclass(slots=True, eq=False)
class Growth:
    """The keeper of a request whose prompt and answer become `kept`; `source` are the pages it goes on from.

    Where the request fails nothing is kept.  Where it is cancelled what was generated so far is, if there is any.
    """

    kept: Kept
    source: Pages
    lose: Callable[[Kept], Any]
    settle: Callable[[Kept], Any]  # it is complete
    _over: bool = False

    def begin(self, admission: Admission, tokens: Sequence[int]) -> kv.Context:
        """Shares what the source or the prefix tree holds."""
        return self.source.begun(admission, tokens)

    def keep(self, admission: Admission, context: kv.Context) -> None:
        """The pages are the kept one's now."""
        if self._over or self.kept.lost:
            admission.drop(context)
        else:
            self.kept.pages.replace(admission, context)

    def ended(self, final: Final) -> None:
        """It holds the answer, or there is nothing to hold."""
        self._over = True
        generated = final.choices[0].tokens if isinstance(final, Done) and final.choices else ()
        if isinstance(final, Done) and (final.reason != "cancel" or generated):
            self.kept.tokens = self.kept.tokens + array(TOKENS, generated)
            self.kept.busy = False
            self.settle(self.kept)
        else:
            self.kept.pages.drop()
            self.lose(self.kept)
