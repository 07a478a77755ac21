"""Pages: a context of a model's cache that somebody keeps, and that may be gone when it is looked for again."""

import weakref
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from llamay import kv
from llamay.errors import OutOfMemory, UsageError
from llamay.kv import snapshots
from llamay.kv.context import TOKENS
from llamay.serve.scheduling.admission import Admission
from llamay.serve.scheduling.scheduler import Scheduler


@dataclass(slots=True, eq=False)
class Pages:
    """What a cache keeps for one owner.  The engine's thread owns it.

    It is gone where the model was given back or loaded anew, and, where it was only `lent`, once
    requests needed its pages.  Nothing is lost with it but time: the owner has the tokens.
    """

    lent: bool = False  # requests may have the pages back while nobody uses them
    pinned: bool = False  # not even then
    name: str = ""
    context: kv.Context | None = None
    _place: "weakref.ref[Admission] | None" = None

    def held(self, admission: Admission) -> kv.Context | None:
        """The context, where it is still there."""
        found = self.context
        return found if found is not None and admission.cache.contexts.get(found.id) is found else None

    def current(self, admission: Admission, tokens: Sequence[int]) -> kv.Context:
        """The context; a new one where it is gone, which holds what is known of the tokens."""
        found = self.held(admission)
        if found is None:
            found = admission.cache.match(tokens[:-1])[0]
            self.replace(admission, found)
        elif self.lent:
            admission.lend(found)
        return found

    def replace(self, admission: Admission, context: kv.Context) -> None:
        """Another context in its place."""
        self.drop()
        self.context, self._place = context, weakref.ref(admission)
        context.name, context.pinned = self.name, self.pinned
        if self.lent:
            admission.lend(context)

    def fork(self, admission: Admission, tokens: Sequence[int], n: int = 1) -> list["Pages"]:
        """`n` that share all pages with this one; forks are not pinned."""
        context = self.current(admission, tokens)
        made = [Pages(self.lent) for _ in range(n)]
        for pages, fork in zip(made, admission.cache.fork(context, n), strict=True):
            pages.replace(admission, fork)
        return made

    def begun(self, admission: Admission, tokens: Sequence[int]) -> kv.Context:
        """A new context with as much of `tokens` as this one or the prefix tree holds; this one stays as it is."""
        cache, held = admission.cache, self.held(admission)
        if held is None:
            return cache.match(tokens)[0]
        if self.lent:
            admission.lend(held)
        same = common(held.tokens, tokens)
        if cache.known(tokens) > cache.recompute_from(held, same):
            return cache.match(tokens)[0]
        (fork,) = cache.fork(held)
        if same < fork.position:
            cache.rewind(fork, same)
        return fork

    def rewind(self, admission: Admission, position: int) -> None:
        """Forgets what lies beyond a position."""
        held = self.held(admission)
        if held is not None and held.position > position:
            admission.cache.rewind(held, position)
            admission.gave_back()

    def numbers(self, admission: Admission | None) -> set[tuple[int, int]]:
        """The pages it has: (page group, page)."""
        held = None if admission is None else self.held(admission)
        tables = () if held is None else held.tables
        return {(group, page) for group, table in enumerate(tables) for page in table.live.tolist()}

    def call(self, name: str) -> None:
        """Gives it a name, for statistics."""
        self.name = name
        if self.context is not None:
            self.context.name = name

    def drop(self) -> None:
        """Gives the context back.  Safe to call twice."""
        admission = None if self._place is None else self._place()
        if admission is not None and self.context is not None:
            admission.drop(self.context)
        self.context = self._place = None

    def record(
        self, scheduler: Scheduler, folder: snapshots.Folder, origin: snapshots.Origin, tokens: Sequence[int]
    ) -> snapshots.Recording:
        """Reads its pages, to be saved with all of the tokens."""
        context = self.current(scheduler.admission, tokens)
        return snapshots.record(folder, context, scheduler.executor, origin, tokens[context.position :])

    def restore(
        self,
        scheduler: Scheduler,
        folder: snapshots.Folder,
        saved: snapshots.Manifest,
        origin: snapshots.Origin,
        *,
        tokens: int | None,
        recompute: bool,
    ) -> snapshots.Restored:
        """Becomes a saved context; where that fails it is what it was."""
        while True:
            try:
                found = snapshots.restore(
                    folder, saved, scheduler.cache, scheduler.executor, origin, tokens=tokens, recompute=recompute
                )
                break
            except OutOfMemory:
                if not scheduler.admission.spare():
                    raise
        self.replace(scheduler.admission, found.context)
        return found


def common(left: Sequence[int], right: Sequence[int]) -> int:
    """How many tokens both begin with."""
    count = min(len(left), len(right))
    ours, theirs = (np.frombuffer(ids(tokens[:count]), np.int32) for tokens in (left, right))
    differing = np.flatnonzero(ours != theirs)
    return int(differing[0]) if len(differing) else count


def ids(tokens: Sequence[int]) -> "array[int]":
    """A copy in 4 bytes a token; UsageError for what is no token id."""
    try:
        return array(TOKENS, tokens)
    except (TypeError, OverflowError) as error:
        raise UsageError(f"tokens are ids from 0 to {2**31 - 1}: {error}") from error
