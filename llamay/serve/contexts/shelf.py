"""The Shelf: contexts that clients go on from, by id, of all models; what was used longest ago goes first."""

import contextlib
import os
import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence

from llamay.errors import ContextFileError, ContextLost, PinsFull, ShelfFull, UsageError
from llamay.kv import snapshots
from llamay.kv.snapshots.labels import check_name
from llamay.serve.contexts.kept import Growth, Kept, Told
from llamay.serve.contexts.pages import Pages, common, ids
from llamay.serve.loading.language import Message
from llamay.serve.models import Models, Served
from llamay.serve.options import Options
from llamay.serve.scheduling.admission import Admission
from llamay.serve.scheduling.scheduler import Scheduler
from llamay.serve.ticket import Ticket

STATE = "messages"  # what a saved context's state calls the messages that it holds and nothing else


class Shelf:
    """Any number of threads may use it.

    A context outlives its pages: they are given up where requests need them, and with the model, and
    are computed again when it is used.  A pinned one keeps both, and its model loaded.
    """

    def __init__(self, models: Models, most: int = 64, pins: int | None = None) -> None:
        """`most` contexts are kept; one client may have `pins` of them pinned, all where that is None."""
        self.most, self.pins = most, most if pins is None else min(pins, most)
        self._models = models
        self._engine = models.engine
        self._folder = snapshots.Folder(models.settings.contexts)
        self._all: OrderedDict[str, Kept] = OrderedDict()  # the least recently used first
        self._lock = threading.Lock()  # of `_all`; never held while the engine is waited for

    # looking

    def all(self) -> list[Kept]:
        """Every context, the oldest first."""
        with self._lock:
            return sorted(self._all.values(), key=lambda one: one.created)

    def find(self, id: str) -> Kept:
        """The context of an id, which counts as a use; ContextLost where there is none."""
        with self._lock:
            if id not in self._all:
                raise ContextLost(
                    f"context {id[:100]!a} is not kept here: it was deleted, or went because others were used "
                    f"({self.most} are kept, -max-contexts), or the server was started anew; make it again"
                )
            self._all.move_to_end(id)
            return self._all[id]

    def told(self, kept: Iterable[Kept]) -> list[Told]:
        """What is so of each, pages included; waits for the engine's thread, and loads nothing."""
        found, rows = list(kept), dict[str, Told]()
        for name in dict.fromkeys(one.served.name for one in found):
            ours = [one for one in found if one.served.name == name]

            def tell(scheduler: Scheduler | None, ours: list[Kept] = ours) -> dict[str, Told]:
                return {one.id: one.told(_admission(scheduler)) for one in ours}

            rows |= self._engine.visit(tell, name)
        return [rows[one.id] for one in found]

    def nearest(self, served: Served, tokens: Sequence[int]) -> tuple[Kept, int] | None:
        """The context that has the longest common beginning with the tokens, and its length; None where none has any."""
        with self._lock:
            ours = [one for one in self._all.values() if one.served.name == served.name]
        found = [(common(one.tokens, tokens), one) for one in ours]
        length, kept = max(found, key=lambda one: one[0], default=(0, None))
        return (kept, length) if kept is not None and length else None

    def diff(self, left: Kept, right: Kept) -> snapshots.Parting:
        """Where two contexts of one model part."""
        if left.served.name != right.served.name:
            raise UsageError(
                f"{left.id} is of {left.served.name} and {right.id} of {right.served.name}: "
                "their tokens mean different texts, so they cannot be compared"
            )
        tokenizer = self._models.language(left.served).tokenizer

        def pages(scheduler: Scheduler | None) -> list[set[tuple[int, int]]]:
            return [one.pages.numbers(_admission(scheduler)) for one in (left, right)]

        ours, theirs = self._engine.visit(pages, left.served.name)
        texts = [tokenizer.text(one.tokens, special=True) for one in (left, right)]
        return snapshots.compared((left.tokens, right.tokens), (texts[0], texts[1]), (ours, theirs))

    # making

    def grow(
        self,
        served: Served,
        tokens: Sequence[int],
        options: Options,
        *,
        stops: tuple[str, ...] = (),
        parent: Kept | None = None,
        messages: Sequence[Message] | None = None,
        name: str = "",
        pinned: bool = False,
        client: str = "",
        via: str = "",
        id: str = "",
    ) -> tuple[Kept, Ticket]:
        """Asks for an answer to the tokens, and keeps them with it; its id is good from now on, it is complete at the end.

        With max_tokens 0 it computes them.  `parent` is what they go on from, `messages` what they hold and all of it.
        """
        point = 0 if parent is None else common(parent.tokens, tokens)
        kept = Kept(
            served, ids(tokens), Pages(lent=True, pinned=pinned), id, checked(name),
            None if parent is None else parent.id, point, None if messages is None else tuple(messages), client,
            busy=True,
        )  # fmt: skip
        self._put([kept])
        growth = Growth(kept, Pages() if parent is None else parent.pages, self._lose, self._settle)
        try:
            return kept, self._models.ask(served, tuple(tokens), options, stops=stops, via=via, keeper=growth)
        except BaseException:
            self._lose(kept)
            raise

    def fork(self, kept: Kept, n: int = 1) -> list[Kept]:
        """`n` contexts that hold the same, and share its pages."""
        if not 1 <= n <= self.most:
            raise UsageError(f"{n} forks were asked for; 1 to {self.most} contexts are kept here (-max-contexts)")

        def fork(scheduler: Scheduler | None) -> list[Kept]:
            kept.check()
            none = [Pages(lent=True) for _ in range(n)]
            pages = none if scheduler is None else kept.pages.fork(scheduler.admission, kept.tokens, n)
            return [
                Kept(
                    kept.served, kept.tokens, one, "", kept.name, kept.id, len(kept.tokens), kept.messages,
                    kept.client, kept.saved,
                )
                for one in pages
            ]

        made = self._engine.visit(fork, kept.served.name)
        self._put(made)
        return made

    def rewind(self, kept: Kept, to: int) -> None:
        """Forgets all but the first `to` tokens."""

        def rewind(scheduler: Scheduler | None) -> None:
            kept.check()
            if not 0 <= to <= len(kept.tokens):
                raise UsageError(f"{kept.id} has {len(kept.tokens)} tokens; it can go back to 0 to {len(kept.tokens)}, not {to}")
            if to < len(kept.tokens):
                kept.messages = None if to else ()
            kept.tokens, kept.fork_point = kept.tokens[:to], min(kept.fork_point, to)
            if scheduler is not None:
                kept.pages.rewind(scheduler.admission, to)

        self._engine.visit(rewind, kept.served.name)

    def delete(self, kept: Kept) -> None:
        """Gives it up; its forks and children stay."""
        kept.check()
        self._lose(kept)

    # saving

    def snapshot(self, kept: Kept, name: str = "", tags: Sequence[str] = (), *, replace: bool = False) -> snapshots.Saved:
        """Saves it as a name, which is made up where none is given; UsageError where that is taken and not to be replaced."""
        checked(name)
        language, origin = self._models.language(kept.served), self._origin(kept.served)

        def record(scheduler: Scheduler) -> snapshots.Recording:
            kept.check()
            return kept.pages.record(scheduler, self._folder, origin(scheduler), kept.tokens)

        with self._placeless(), self._engine.call(record, kept.served.name) as recording:
            text = language.tokenizer.text(recording.tokens, special=True)
            state: snapshots.State = {} if kept.messages is None else {STATE: list(kept.messages)}
            label = snapshots.Label(name, tuple(tags), kept.saved, text, state)
            saved = recording.commit(label, replace=replace)
        kept.saved = saved.name
        return saved

    def restore(
        self,
        served: Served,
        snapshot: str,
        *,
        name: str = "",
        pinned: bool = False,
        client: str = "",
        tokens: int | None = None,
        recompute: bool = False,
    ) -> tuple[Kept, Ticket | None, str]:
        """A context that holds a saved one, or its first tokens; the request that computes what has no page, if any; how it came about."""
        name, wanted = checked(name), checked(snapshot)
        with self._placeless():
            saved = self._folder.find(wanted).manifest
        origin = self._origin(served)
        pages = Pages(lent=True, pinned=pinned)

        def restore(scheduler: Scheduler) -> snapshots.Restored:
            return pages.restore(scheduler, self._folder, saved, origin(scheduler), tokens=tokens, recompute=recompute)

        with self._placeless():
            found = self._engine.call(restore, served.name)
        messages = found.state.get(STATE)
        kept = Kept(
            served, ids(found.tokens), pages, "", name or saved.name,
            messages=tuple(messages) if isinstance(messages, list) else None, client=client,
            saved=saved.name, busy=len(found.pending) > 1,
        )  # fmt: skip
        self._put([kept])
        note = self._without_place(found.note)
        if not kept.busy:
            return kept, None, note
        computing = Growth(kept, pages, self._lose, self._settle)
        try:
            return kept, self._models.ask(served, found.tokens, {"max_tokens": 0}, keeper=computing), note
        except BaseException:
            self._lose(kept)
            raise

    @contextlib.contextmanager
    def _placeless(self) -> Iterator[None]:
        """An error about a saved file is told without where the folder lies: clients hear it."""
        try:
            yield
        except ContextFileError as error:
            raise type(error)(self._without_place(str(error))) from error

    def _without_place(self, text: str) -> str:
        return text.replace(f"{self._folder.root}{os.sep}", "")

    def _origin(self, served: Served) -> Callable[[Scheduler], snapshots.Origin]:
        loaded = self._models.load(served)
        weights = loaded.digest()
        return lambda scheduler: snapshots.origin_of(scheduler.executor, scheduler.cache, loaded.name, weights)

    def pinned(self) -> Counter[str]:
        """How many contexts are pinned, by client."""
        with self._lock:
            return self._pinned()

    def _pinned(self) -> Counter[str]:
        return Counter(one.client for one in self._all.values() if one.pinned)

    def _put(self, made: Sequence[Kept]) -> None:
        """Keeps them; ShelfFull where too many are pinned, PinsFull where its client has pinned enough of them."""
        with self._lock:
            full = self._full(made)
            if full is None:
                self._all |= {one.id: one for one in made}
        if full is not None:
            for one in made:
                self._drop(one)
            raise full
        for one in made:
            if one.pinned:
                self._engine.hold(1, one.served.name)
        self._settle(*made)

    def _full(self, made: Sequence[Kept]) -> ShelfFull | None:
        """What forbids that these are kept.  Under the lock, as `_pinned` is."""
        pinned = self._pinned()
        if pinned.total() + len(made) > self.most:
            return ShelfFull(
                f"{pinned.total()} of {self.most} contexts are pinned, so there is no place for {len(made)} more; "
                "DELETE one, or -max-contexts takes more"
            )
        over = next((one.client for one in made if one.pinned and pinned[one.client] >= self.pins), None)
        if over is None:
            return None
        return PinsFull(
            f"{pinned[over]} contexts of yours are pinned, and one client may have {self.pins}; "
            "DELETE one, make this one without `pin`, or -max-pinned allows more"
        )

    def _settle(self, *made: Kept) -> None:
        """What was used longest ago and is not pinned makes place for these, as far as they are complete."""
        with self._lock:
            idle = [one for one in self._all.values() if not one.busy]
            old = [one for one in idle if not one.pinned and one not in made]
            gone = old[: max(0, len(idle) - self.most)]
            for one in gone:
                del self._all[one.id]
        for one in gone:
            self._drop(one)

    def _lose(self, kept: Kept) -> None:
        with self._lock:
            there = self._all.pop(kept.id, None) is not None
        self._drop(kept)
        if there and kept.pinned:
            self._engine.hold(-1, kept.served.name)

    def _drop(self, kept: Kept) -> None:
        """What is done with it on the engine's thread later than this finds that it is lost."""
        kept.lost = True
        self._engine.post(kept.pages.drop)


def checked(name: str) -> str:
    """A name from outside: empty, or one that could not be taken for a path either; UsageError says what is wrong."""
    if name and (set(name) & set("/\\") or name.startswith(".")):
        raise UsageError(f"a context's name is {name[:100]!a}; here it has no / and no \\, and does not begin with a dot")
    return check_name(name) if name else ""


def _admission(scheduler: Scheduler | None) -> Admission | None:
    return None if scheduler is None else scheduler.admission
