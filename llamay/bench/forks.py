"""What it costs to fork, save and restore a context, against computing it again; what each gives is checked."""

import hashlib
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from llamay.bench.measure import GREEDY, SEED, Progress, check_reps
from llamay.bench.shared import Room
from llamay.bench.target import Target
from llamay.errors import LlamayError, UsageError
from llamay.kv import Context
from llamay.kv.snapshots import Folder, Label, Saved, origin_of, restore, save
from llamay.serve.request import Limits, Request
from llamay.serve.scheduling.together import Together

MOST = 1024
BEYOND = 2  # tokens that the context's forks go on for, the one they are given included
SHARED = 0.9  # of the tokens that the second snapshot has from the first


@dataclass(frozen=True, slots=True)
class Forks:
    """Seconds of every repetition, pages of all groups, bytes."""

    forks: int
    tokens: int  # of the context
    fork_seconds: tuple[float, ...]  # of all forks together
    allocated: int  # pages that forking took
    copied: int  # pages that as many copies would have taken
    generate_seconds: float  # a token by each of the forks
    page_bytes: int  # of the context
    snapshot_seconds: tuple[float, ...]
    snapshot_bytes: int  # on disk, with the description
    restore_seconds: tuple[float, ...]
    prefill_seconds: tuple[float, ...]
    shared_tokens: int  # of the second snapshot, those it has from the first
    second_bytes: int  # that the second snapshot added on disk

    @property
    def prefill(self) -> float:
        """Seconds, of the middle repetition."""
        return median(self.prefill_seconds)

    @property
    def restored(self) -> float:
        """Seconds, of the middle repetition."""
        return median(self.restore_seconds)

    @property
    def speedup(self) -> float:
        """How many times faster restoring is than computing again."""
        return self.prefill / self.restored

    @property
    def second_share(self) -> float:
        """The bytes that the second snapshot added, of those of the first."""
        return self.second_bytes / self.snapshot_bytes

    def as_json(self) -> dict[str, Any]:
        """Plain data, and what follows from it."""
        return {**asdict(self), "speedup": self.speedup, "second_share": self.second_share}


def check(forks: int, tokens: int, reps: int) -> None:
    """Raises UsageError for counts that measure nothing."""
    check_reps(reps)
    for name, value, least, most in (("-forks", forks, 1, MOST), ("-prompt", tokens, 2, None)):
        if value < least or (most is not None and value > most):
            bound = f"{least} or more" if most is None else f"{least} to {most}"
            raise UsageError(f"{name} is {value}; with -forks it may be {bound}")


def room_of(forks: int, tokens: int) -> Room:
    """The pages: the context, a restored or a second one, and one more for each fork's token."""
    return Room(tokens + BEYOND, 2, 2 * forks + 2)


def run(target: Target, forks: int, tokens: int, reps: int, folder: Path, say: Progress) -> Forks:
    """Computes a context of `tokens` random tokens, forks, saves and restores it, each `reps` times.

    The saved contexts are written into a folder of their own within `folder`, and removed.
    LlamayError where a fork or what was restored goes on otherwise than the context itself.
    """
    check(forks, tokens, reps)
    with tempfile.TemporaryDirectory(prefix="bench-", dir=folder) as made:
        return _Bench(target, forks, tokens, reps, Folder(Path(made)), say).run()


class _Bench:
    """One run.  The context holds all of `ids` but the last, which everything goes on with."""

    def __init__(self, target: Target, forks: int, tokens: int, reps: int, folder: Folder, say: Progress) -> None:
        self.executor, self.folder, self.say = target.executor, folder, say
        self.forks, self.tokens, self.reps = forks, tokens, reps
        self.crowd = Together(target.executor, target.context)
        self.cache = self.crowd.cache
        vocabulary = target.program.vocabulary
        self.ids = tuple(np.random.default_rng(SEED).integers(0, vocabulary, tokens + 1).tolist())
        weights = f"sha256:{hashlib.sha256(target.name.encode()).hexdigest()}"  # of nobody else's: the folder goes
        self.origin = origin_of(target.executor, self.cache, target.name[:100], weights)

    def run(self) -> Forks:
        self.say("warming up")
        self.cache.drop(self._prefilled())
        prefills: list[float] = []
        context = None
        for rep in range(self.reps):
            self.say(f"prefill {rep + 1} of {self.reps}")
            if context is not None:
                self.cache.drop(context)
            start = time.perf_counter()
            context = self._prefilled()
            prefills.append(time.perf_counter() - start)
        if context is None:
            raise LlamayError("no context was computed")
        pages = sum(len(table.live) for table in context.tables)
        fork_seconds, allocated, generate_seconds, answer = self._fork(context)
        saves, saved = self._save(context)
        restores = self._restore(saved, answer)
        shared, second = self._second(context)
        return Forks(
            forks=self.forks,
            tokens=self.tokens,
            fork_seconds=fork_seconds,
            allocated=allocated,
            copied=self.forks * pages,
            generate_seconds=generate_seconds,
            page_bytes=sum(
                len(table.live) * shape.page_bytes for table, shape in zip(context.tables, self.origin.groups, strict=True)
            ),
            snapshot_seconds=saves,
            snapshot_bytes=saved.description_bytes + self.folder.stored_bytes(saved.manifest.digests()),
            restore_seconds=restores,
            prefill_seconds=tuple(prefills),
            shared_tokens=shared,
            second_bytes=second,
        )

    def _prefilled(self) -> Context:
        """A context of the tokens, computed from the first one in a scheduler's chunks, and there when this returns."""
        context, _ = self.cache.match(())
        self._compute(context, self.ids)
        return context

    def _compute(self, context: Context, ids: Sequence[int]) -> None:
        """All of the tokens but the last, from where the context is."""
        self.crowd.run(Request(tuple(ids), GREEDY, Limits(tokens=0), context=context.id, prefix_cache=False))
        self._settle(context)

    def _settle(self, context: Context) -> None:
        """Waits for what was queued: a page comes back after everything before it."""
        self.executor.read_pages(0, context.tables[0].live[-1:].tolist())

    def _next(self, contexts: Sequence[Context]) -> list[tuple[int, ...]]:
        """The token that each goes on with, all in the same steps."""
        limits = Limits(tokens=1)
        asked = [Request(self.ids, GREEDY, limits, context=one.id, prefix_cache=False) for one in contexts]
        return [done.choices[0].tokens for done in self.crowd.run(*asked)]

    def _fork(self, context: Context) -> tuple[tuple[float, ...], int, float, tuple[int, ...]]:
        """Seconds to fork, pages taken, seconds for a token of each fork, and the token the context itself gives."""
        self.say(f"forking {self.forks} times")
        [original] = self.cache.fork(context)
        [answer] = self._next([original])
        self.cache.drop(original)
        seconds, allocated = [], 0
        forks: list[Context] = []
        for _ in range(self.reps + 1):  # the first warms up
            for one in forks:
                self.cache.drop(one)
            before = self._taken()
            start = time.perf_counter()
            forks = self.cache.fork(context, self.forks)
            seconds.append(time.perf_counter() - start)
            allocated = self._taken() - before
        start = time.perf_counter()
        answers = self._next(forks)
        generate = time.perf_counter() - start
        self.cache.check_integrity()
        if set(answers) != {answer}:
            raise LlamayError(f"forks went on with {sorted(set(answers))}, the context itself with {answer}")
        for one in forks:
            self.cache.drop(one)
        self.cache.check_integrity()
        return tuple(seconds[1:]), allocated, generate, answer

    def _taken(self) -> int:
        return sum(group.pages.count - group.pages.free for group in self.cache.groups)

    def _save(self, context: Context) -> tuple[tuple[float, ...], Saved]:
        seconds: list[float] = []
        saved: Saved | None = None
        for rep in range(self.reps):
            self.say(f"snapshot {rep + 1} of {self.reps}")
            if saved is not None:  # its pages would be there already
                self.folder.remove(saved.name)
            start = time.perf_counter()
            saved = save(self.folder, context, self.executor, self.origin, Label("bench"), pending=self.ids[-1:])
            seconds.append(time.perf_counter() - start)
        if saved is None:
            raise LlamayError("no context was saved")
        return tuple(seconds), saved

    def _restore(self, saved: Saved, answer: tuple[int, ...]) -> tuple[float, ...]:
        """The files are in the system's cache: they have just been written."""
        seconds = []
        for rep in range(self.reps):
            self.say(f"restore {rep + 1} of {self.reps}")
            start = time.perf_counter()
            manifest = self.folder.find(saved.name).manifest
            found = restore(self.folder, manifest, self.cache, self.executor, self.origin)
            self._settle(found.context)
            seconds.append(time.perf_counter() - start)
            [given] = self._next([found.context])
            if given != answer:
                raise LlamayError(f"the restored context went on with {given}, the one that was saved with {answer}")
            self.cache.drop(found.context)
        self.cache.check_integrity()
        return tuple(seconds)

    def _second(self, context: Context) -> tuple[int, int]:
        """Tokens that a second saved context has from the first, and the bytes it adds on disk."""
        self.say("a second snapshot")
        shared = max(1, round(self.tokens * SHARED))
        [fork] = self.cache.fork(context)
        self.cache.rewind(fork, shared)
        others = (np.array(self.ids[shared:]) + 1) % self.origin.vocabulary
        self._compute(fork, (*self.ids[:shared], *others.tolist()))
        before = self._on_disk()
        second = save(self.folder, fork, self.executor, self.origin, Label("second", parent="bench"))
        added = self._on_disk() - before + second.description_bytes
        self.cache.drop(fork)
        return shared, added

    def _on_disk(self) -> int:
        """Bytes of all pages in the folder."""
        return sum(path.stat().st_size for path in self.folder.pages.iterdir())
