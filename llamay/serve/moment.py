"""One moment of the engine and the shelf: what `GET /v1/stats` sends, and what a terminal draws and records.

docs/server.md names the fields.  Whoever reads a moment may be older or newer than who sends it: what is missing has a
default, what is unknown is passed over.
"""

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import msgspec

from llamay import kv
from llamay.serve.stats import EndedStats, ModelStats, RequestStats, Stats, StepTimes

if TYPE_CHECKING:  # who only reads moments needs no engine
    from llamay.serve import models
    from llamay.serve.contexts import kept, shelf

LATEST = 250_000_000_000  # seconds after 1970 that a system's calendar can tell

MOST_PAGES = 1 << 24  # that a map may have: whoever draws it has bytes for each
Number = Annotated[int, msgspec.Meta(ge=-1, lt=1 << 31)]

Run = tuple[Number, Number, Number, Number, Number]
"""Pages in a row: how many, oldest context or -1, owners, 1 where the prefix tree is one, place of the first or -1."""


class Group(msgspec.Struct, frozen=True, omit_defaults=True):
    """The pages of one group."""

    pages: int
    contexts: int
    both: int
    tree: int
    free: int
    map: tuple[Run, ...] = ()  # empty where it was not asked for

    def __post_init__(self) -> None:
        """A map has the pages there are; it comes from other machines, too."""
        counts = [run[0] for run in self.map]
        if counts and (min(counts) < 1 or sum(counts) > min(self.pages, MOST_PAGES)):
            raise ValueError(f"a map of {sum(counts)} pages where there are {self.pages}")

    @property
    def used(self) -> int:
        """Pages that somebody owns."""
        return self.pages - self.free

    @property
    def saved(self) -> int:
        """Pages that copies would take and sharing does not."""
        return sum(count * (owners - 1) for count, _, owners, _, _ in self.map if owners > 1)


class Model(msgspec.Struct, frozen=True):
    """One loaded model."""

    name: str
    device: str
    slots: int
    requests: tuple[RequestStats, ...] = ()
    waiting: int = 0
    pages: tuple[Group, ...] = ()
    contexts: tuple[kv.ContextStats, ...] = ()
    times: StepTimes = msgspec.field(default_factory=StepTimes)
    clients: Mapping[str, int] = {}
    nodes: int = 0
    counters: kv.Counters = msgspec.field(default_factory=kv.Counters)

    def held(self, id: int | None) -> kv.ContextStats | None:
        """The context of an id."""
        return next((one for one in self.contexts if one.id == id), None)

    def request_of(self, context: int) -> RequestStats | None:
        """The request that has a context."""
        return next((one for one in self.requests if one.context == context), None)


class Kept(msgspec.Struct, frozen=True):
    """One context that is kept for clients; `context` is its number among the model's, while it has pages."""

    id: str
    model: str
    tokens: int
    name: str = ""
    parent: str | None = None
    fork_point: int = 0
    pinned: bool = False
    busy: bool = False
    created: float = 0.0
    context: int | None = None


class Room(msgspec.Struct, frozen=True):
    """What the shelf takes: contexts, those that one client may pin, and those that are pinned by client."""

    contexts: int = 0
    pins: int = 0
    pinned: Mapping[str, int] = {}


class Moment(msgspec.Struct, frozen=True):
    """Everything at one moment."""

    time: Annotated[float, msgspec.Meta(ge=0, lt=LATEST)]
    uptime: float = 0.0
    closing: bool = False
    waiting: int = 0
    queue: int = 0
    finished: int = 0
    shelf: Room = Room()
    ended: tuple[EndedStats, ...] = ()
    loading: tuple[str, ...] = ()
    lost: Mapping[str, str] = {}
    kv: str = ""
    models: tuple[Model, ...] = ()
    kept: tuple[Kept, ...] = ()

    @property
    def running(self) -> int:
        """Requests that were admitted."""
        return sum(len({one.id for one in model.requests if one.state != "waiting"}) for model in self.models)

    def model(self, name: str) -> Model | None:
        """The loaded model of a name."""
        return next((one for one in self.models if one.name == name), None)


def told(models: "models.Models", shelf: "shelf.Shelf", started: float, *, closing: bool = False, pages: bool = True) -> Moment:
    """This moment, of what was started at a Unix time.  Page maps become runs in the caller's thread, not in the engine's."""
    now, stats = time.time(), models.engine.stats()
    return Moment(
        time=now,
        uptime=now - started,
        closing=closing,
        waiting=stats.waiting,
        queue=stats.limit,
        finished=stats.finished,
        shelf=Room(shelf.most, shelf.pins, dict(shelf.pinned())),
        ended=stats.ended,
        loading=stats.loading,
        lost=dict(stats.lost),
        kv=models.settings.kv,
        models=tuple([_model(one, pages=pages) for one in stats.models]),
        kept=tuple([_kept(one, stats) for one in shelf.all()]),
    )


def _model(one: ModelStats, *, pages: bool) -> Model:
    cache = one.cache
    maps = [tuple([(n, first, owners, tree, at) for n, first, owners, tree, at in found.runs()]) if pages else () for found in cache.maps]
    groups = zip(cache.groups, maps, strict=True)
    return Model(
        name=one.name,
        device=one.device,
        slots=one.slots,
        requests=one.requests,
        waiting=one.waiting,
        pages=tuple([Group(of.pages, of.contexts, of.both, of.tree, of.free, runs) for of, runs in groups]),
        contexts=cache.contexts,
        times=one.times,
        clients=dict(one.clients),
        nodes=cache.nodes,
        counters=cache.counters,
    )


def _kept(one: "kept.Kept", stats: Stats) -> Kept:
    there = {context.id for model in stats.models if model.name == one.served.name for context in model.cache.contexts}
    held = one.pages.context
    return Kept(
        id=one.id,
        model=one.served.name,
        tokens=len(one.tokens),
        name=one.name,
        parent=one.parent,
        fork_point=one.fork_point,
        pinned=one.pinned,
        busy=one.busy,
        created=int(one.created),
        context=held.id if held is not None and held.id in there else None,
    )
