"""What a Cache tells about itself: plain values, safe to hand to another thread."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from llamay.kv.context import Context
from llamay.kv.group import Group


@dataclass(frozen=True, slots=True)
class ContextStats:
    """One context; pages are by page group."""

    id: int
    name: str
    parent: int | None
    fork_point: int
    tokens: int
    own: tuple[int, ...]  # pages nobody else owns
    shared: tuple[int, ...]
    pinned: bool
    created: float
    last_used: float


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


def of_context(context: Context, groups: Sequence[Group]) -> ContextStats:
    """A context's own and shared pages, beside what it says of itself."""
    counts = [group.pages.owners[table.live] for group, table in zip(groups, context.tables, strict=True)]
    own = tuple([int(np.count_nonzero(owners == 1)) for owners in counts])
    return ContextStats(
        id=context.id,
        name=context.name,
        parent=context.parent,
        fork_point=context.fork_point,
        tokens=context.position,
        own=own,
        shared=tuple([len(owners) - alone for owners, alone in zip(counts, own, strict=True)]),
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
    return tuple([of_context(context, groups) for context in contexts])
