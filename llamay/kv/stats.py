"""What a Cache tells about itself: plain values, safe to hand to another thread."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from llamay.kv.context import Context
from llamay.kv.group import Group
from llamay.kv.map import PageMap


@dataclass(frozen=True, slots=True)
class ContextStats:
    """One context; pages are by page group."""

    id: int
    tokens: int
    name: str = ""
    parent: int | None = None
    fork_point: int = 0
    own: tuple[int, ...] = ()  # pages nobody else owns
    shared: tuple[int, ...] = ()
    pinned: bool = False
    created: float = 0.0
    last_used: float = 0.0


@dataclass(frozen=True, slots=True)
class GroupStats:
    """Pages of one group by who owns them; the last four add up to `pages`."""

    pages: int
    contexts: int  # owned by contexts alone
    both: int  # owned by contexts and the prefix tree
    tree: int  # owned by the tree alone: what it can give up
    free: int


@dataclass(slots=True)
class Counters:
    """What a cache has done since it was made."""

    taken: int = 0  # pages handed out, of all groups
    copied: int = 0  # of them, those that began as a copy of a shared page
    evicted: int = 0  # entries the tree was made to give up
    looked_up: int = 0  # tokens that `match` was asked for
    found: int = 0  # and those it knew


@dataclass(frozen=True, slots=True)
class Stats:
    """A cache at one moment."""

    groups: tuple[GroupStats, ...]
    contexts: tuple[ContextStats, ...]
    nodes: int  # of the prefix tree
    counters: Counters
    maps: tuple[PageMap, ...] = field(default=(), compare=False, repr=False)  # by page group


def of_context(context: Context, groups: Sequence[Group]) -> ContextStats:
    """A context's own and shared pages, beside what it says of itself."""
    return of_contexts((context,), groups)[0]


def _told(context: Context, own: tuple[int, ...], pages: tuple[int, ...]) -> ContextStats:
    return ContextStats(
        id=context.id,
        tokens=context.position,
        name=context.name,
        parent=context.parent,
        fork_point=context.fork_point,
        own=own,
        shared=tuple([count - alone for count, alone in zip(pages, own, strict=True)]),
        pinned=context.pinned,
        created=context.created,
        last_used=context.last_used,
    )


def of_group(group: Group) -> GroupStats:
    """A group's pages by owner."""
    held, tree = int(np.count_nonzero(group.held)), group.reclaimable()
    used = group.pages.count - group.pages.free
    return GroupStats(group.pages.count, contexts=used - held, both=held - tree, tree=tree, free=group.pages.free)


def of_contexts(contexts: Collection[Context], groups: Sequence[Group]) -> tuple[ContextStats, ...]:
    """All of them, oldest first."""
    if not contexts:
        return ()
    own, pages = [], []  # by group, then by context
    for group in groups:
        live = [context.tables[group.number].live for context in contexts]
        ends = np.cumsum([len(part) for part in live])
        alone = np.concatenate(([0], np.cumsum(group.pages.owners[np.concatenate(live)] == 1)))
        starts = np.concatenate(([0], ends[:-1]))
        own.append((alone[ends] - alone[starts]).tolist())
        pages.append((ends - starts).tolist())
    rows = zip(contexts, zip(*own, strict=True), zip(*pages, strict=True), strict=True)
    return tuple([_told(context, mine, all) for context, mine, all in rows])
