"""The Cache: owner of one model's page pools, prefix tree and contexts, and of every count between them."""

import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from llamay.errors import LlamayError, OutOfMemory, UsageError
from llamay.kv.context import TOKENS, Context
from llamay.kv.group import Group
from llamay.kv.integrity import check
from llamay.kv.map import PageMap
from llamay.kv.need import Need
from llamay.kv.stats import Counters, Stats, of_contexts, of_group
from llamay.kv.table import EMPTY, Table, sized
from llamay.kv.tree import Tree
from llamay.tensor.batch import PAGE
from llamay.tensor.executor import Executor
from llamay.tensor.program import Scan, ShortConv

CHECKPOINT = 16  # pages from one state that is kept to the next

Copy = Callable[[int, Sequence[tuple[int, int]]], None]  # (page group, [(from page, to page)])


class Cache:
    """Contexts of one model over its pages of keys and values.

    It computes nothing and touches no device: it says which pages a step may write, and has
    pages copied through `copy`, which queues the copies before whatever is submitted next.
    Not thread-safe: one thread owns it.  The same calls give the same pages, always.

    What holds between any two calls: a page is free exactly where no context and no prefix of
    the tree owns it; at most one context may write to a page, and what others see of it does
    not change.  A method that raises has changed nothing, except that `extend` and `allocate`
    may have made the tree give up prefixes where `copy` itself failed.
    A context keeps its pages until it is dropped: only the tree gives pages up by itself.
    Calling any method while steps are in flight is safe, as what is queued later runs later: a page
    given back may be handed out at once.  What is not: to queue further steps with tables from before.
    """

    def __init__(
        self,
        full: int,
        window: int = 0,
        span: int = 0,
        copy: Copy | None = None,
        clock: Callable[[], float] = time.time,
        every: int = 0,
    ) -> None:
        """`full` and `window` are the pages of the two groups; `window` and `span` are 0 where no layer has a window.

        Of the pages that a window passes, each `every`-th becomes the tree's, so that there is something to go
        back to; 0: none does.  `span` counts the position itself.  Without `copy` nothing is copied: for tests and plans.
        `clock` is for `created` and `last_used`, which decide nothing.
        """
        if (window > 0) != (span > 0):
            raise UsageError(f"{window} pages for layers with a window of {span} tokens; both are needed, or neither")
        self.groups = (Group(0, full), *([Group(1, window, span)] if span else []))
        self.every = every
        self.contexts: dict[int, Context] = {}
        self._tree = Tree(self.groups)
        self._copy = copy if copy is not None else _copy_nothing
        self._clock = clock
        self._next = 0
        self._counters = Counters()

    @classmethod
    def over(cls, executor: Executor) -> "Cache":
        """A cache of all pages of an executor."""
        program = executor.program
        states = any(isinstance(op, Scan | ShortConv) for op in program.layers)
        span = program.span if executor.window_pages else 0
        copy, every = executor.copy_pages, CHECKPOINT if states and span else 0
        return cls(executor.pages, executor.window_pages, span, copy, every=every)

    # contexts: made and dropped

    def match(self, tokens: Sequence[int]) -> tuple[Context, int]:
        """A new context that holds the longest known prefix of `tokens`, and that prefix's length, a multiple of 16.

        It shares the pages; none is taken or copied.  Nothing known: an empty context and 0.
        To have logits of the last token, leave it out of `tokens`.
        """
        sought = _tokens(tokens)
        found = self._tree.find(sought.tobytes())
        count = found.pages * PAGE
        for group, table in zip(self.groups, found.tables, strict=True):
            group.pages.share(table.live)
        self._counters.looked_up += len(sought)
        self._counters.found += count
        return self._open(sought[:count], found.tables), count

    def known(self, tokens: Sequence[int]) -> int:
        """How many tokens `match` would find; changes nothing, and the tree does not take it as a use."""
        return self._tree.known(_tokens(tokens).tobytes()) * PAGE

    def allocate(self, tokens: Sequence[int]) -> Context:
        """A context that holds `tokens`, in pages of its own whose contents the caller writes before anything reads them.

        For restoring a snapshot: its tables hold what computing the next token needs, with
        holes in the window group before that.  Drop it if writing fails.  OutOfMemory as in `extend`.
        """
        held = _tokens(tokens)
        firsts = [group.first(len(held)) for group in self.groups]
        needs = [Need(group, sized(len(held)) - first) for group, first in zip(self.groups, firsts, strict=True)]
        self._make_room(needs, f"{len(held)} tokens")
        tables = []
        for need, first in zip(needs, firsts, strict=True):
            pages = np.concatenate((np.zeros(first, np.int32), need.group.pages.take(need.missing)))
            tables.append(Table.of(pages, first))
            self._counters.taken += need.missing
        return self._open(held, tuple(tables))

    def fork(self, context: Context, n: int = 1) -> list[Context]:
        """`n` new contexts that hold what this one holds.  No page is taken, none copied.

        What the context was given room for stays its own: it may go on writing there, and a fork
        copies the last page, where that is partly filled, before its own first write.
        """
        self._known(context)
        if n < 0:
            raise UsageError(f"{n} forks were asked for; 0 or more can be made")
        pages, now, first = sized(context.position), self._clock(), self._next
        tables = tuple([table.cut(pages) for table in context.tables])
        if n:
            for group, table in zip(self.groups, tables, strict=True):
                group.pages.share(table.live, n)
        tokens, parent, position = context.tokens, context.id, context.position
        forks = [Context(id, tokens[:], tables, position, parent, position, now, now) for id in range(first, first + n)]
        self.contexts.update(zip(range(first, first + n), forks, strict=True))
        self._next += n
        return forks

    def drop(self, context: Context) -> None:
        """Gives back what the context owns; its forks and the tree keep theirs.  Safe to call twice."""
        if self.contexts.get(context.id) is not context:
            return
        for group, table in zip(self.groups, context.tables, strict=True):
            group.pages.drop(table.live)
        del self.contexts[context.id]
        context.tokens = array(TOKENS)
        context.tables = (EMPTY,) * len(self.groups)
        context.room = 0

    # contexts: written, rewound, published

    def extend(self, context: Context, count: int) -> None:
        """Room for `count` tokens beyond those committed: positions up to position + count - 1 may be written.

        Takes the missing pages, and copies the last page first where somebody else owns it too.
        Where free pages run out the tree gives up prefixes, least recently used first.  OutOfMemory,
        changing nothing, where even an empty tree would leave too few.
        A table that changed is a new object: steps queued from now on need the new arrays.
        """
        self._known(context)
        if count < 1:
            raise UsageError(f"room for {count} tokens was asked for; at least 1 makes sense")
        end = context.position + count
        needs = [Need.of(group, table, context.position, end) for group, table in self._tables(context)]
        if any(need.pages for need in needs):
            self._make_room(needs, f"context {context.id}, for {count} tokens at position {context.position},")
            context.tables = self._write_to(context, needs)
        context.room = max(context.room, end)
        context.last_used = self._clock()

    def commit(self, context: Context, tokens: Sequence[int]) -> None:
        """The keys and values of these tokens are in the pages, or queued to be, at the next positions.

        UsageError where there is no room for them.  Gives back the pages a window has passed.
        """
        self._known(context)
        new = _tokens(tokens)
        if context.position + len(new) > context.room:
            raise UsageError(
                f"{len(new)} tokens at position {context.position} do not fit: context {context.id} has room "
                f"up to position {context.room}; extend it first"
            )
        context.tokens.extend(new)
        context.last_used = self._clock()
        for group in self.groups[1:]:
            self._pass(context, group)

    def rewind(self, context: Context, position: int) -> "array[int]":
        """Drops what lies at and beyond `position`, and the room; returns the tokens before it that are to be computed again.

        Those are none unless a window has passed what `position` needs: then the context goes back
        to `recompute_from(context, position)`, and is as it would be after these tokens are
        extended, computed and committed, bit for bit.
        """
        start = self.recompute_from(context, position)
        lost = context.tokens[start:position]
        pages = sized(start)
        if self._sees(context, position):
            kept = tuple([table.cut(pages) for table in context.tables])
            for group, table in self._tables(context):
                group.pages.drop(table.array[max(pages, table.first) :])
        else:  # the tree has these, with the windows that the context has not
            kept = self._tree.find(context.tokens[:start].tobytes()).tables
            for group, table in zip(self.groups, kept, strict=True):
                group.pages.share(table.live)
            for group, table in self._tables(context):
                group.pages.drop(table.live)
        del context.tokens[start:]
        context.tables = kept
        context.room = start
        return lost

    def recompute_from(self, context: Context, position: int) -> int:
        """Where a rewind to `position` goes: the position itself, or the last one before it whose windows are known."""
        self._known(context)
        if not 0 <= position <= context.position:
            raise UsageError(f"context {context.id} has {context.position} tokens; it cannot go back to {position}")
        if self._sees(context, position):
            return position
        return self._tree.known(context.tokens[:position].tobytes()) * PAGE

    def publish(self, context: Context) -> int:
        """Makes the context's whole pages known to `match`, and returns how many of them were new.

        The tree owns them from then on too; the context may go on, be rewound or dropped.
        """
        self._known(context)
        whole = context.position // PAGE
        return self._tree.insert(
            context.tokens[: whole * PAGE].tobytes(), [table.cut(whole) for table in context.tables]
        )

    # pages

    def evict(self, pages: int, group: int = 0) -> int:
        """Makes the tree give up prefixes until that many pages have become free; returns how many did.

        Contexts lose nothing.  With `pages` as large as the pool, the tree forgets everything it alone owns.
        """
        pool = self.groups[group].pages
        before = pool.free
        while pool.free - before < pages and self.groups[group].reclaimable():
            self._give_up(self.groups[group])
        return pool.free - before

    def stats(self) -> Stats:
        """Pages by owner, contexts and counters, as plain values."""
        return Stats(
            groups=tuple([of_group(group) for group in self.groups]),
            contexts=of_contexts(self.contexts.values(), self.groups),
            nodes=len(self._tree),
            counters=replace(self._counters),
            maps=tuple([PageMap.of(group, self.contexts.values()) for group in self.groups]),
        )

    def check_integrity(self) -> None:
        """Recomputes every count from the owners; LlamayError names the first that differs."""
        check(self.contexts.values(), self.groups, self._tree)

    def _open(self, tokens: "array[int]", tables: tuple[Table, ...]) -> Context:
        now = self._clock()
        context = Context(self._next, tokens, tables, len(tokens), created=now, last_used=now)
        self.contexts[context.id] = context
        self._next += 1
        return context

    def _known(self, context: Context) -> None:
        if self.contexts.get(context.id) is not context:
            raise UsageError(f"context {context.id} is not one of this cache; it may have been dropped")

    def _tables(self, context: Context) -> list[tuple[Group, Table]]:
        return list(zip(self.groups, context.tables, strict=True))

    def _sees(self, context: Context, position: int) -> bool:
        """Whether the context still has every page that computing `position` needs."""
        return all(min(table.first, sized(position)) <= group.first(position) for group, table in self._tables(context))

    def _make_room(self, needs: Sequence[Need], who: str) -> None:
        """Has the tree give up what the needs lack; OutOfMemory, changing nothing, where that cannot be enough."""
        for need in needs:
            pool, spare = need.group.pages, need.group.reclaimable()
            if need.least > pool.free + spare:
                raise OutOfMemory(
                    f"{who} needs {need.least} KV pages of {PAGE} tokens, but of {pool.count} in group "
                    f"{need.group.number} {pool.free} are free and the prefix tree can give up {spare}"
                )
        for need in needs:
            while need.pages > need.group.pages.free:
                self._give_up(need.group)

    def _give_up(self, group: Group) -> None:
        if not self._tree.give_up(group):
            raise LlamayError(f"the prefix tree owns pages of group {group.number} that it cannot find")
        self._counters.evicted += 1

    def _write_to(self, context: Context, needs: Sequence[Need]) -> tuple[Table, ...]:
        """The context's tables with the needed pages, the shared one copied.  Where that fails nothing is taken."""
        copies = [need.partial if need.copies else None for need in needs]
        taken = [need.group.pages.take(need.pages) for need in needs]
        try:
            for need, shared, pages in zip(needs, copies, taken, strict=True):
                if shared is not None:
                    self._copy(need.group.number, [(shared, int(pages[0]))])
        except BaseException:
            for need, pages in zip(needs, taken, strict=True):
                need.group.pages.drop(pages)
            raise
        tables = []
        for table, need, shared, pages in zip(context.tables, needs, copies, taken, strict=True):
            self._counters.taken += len(pages)
            if shared is not None:
                need.group.pages.drop([shared])
                table = table.replaced(context.position // PAGE, int(pages[0]))
                pages = pages[1:]
                self._counters.copied += 1
            tables.append(table.grown(pages))
        return tuple(tables)

    def _pass(self, context: Context, group: Group) -> None:
        """Gives back the pages that no later position of the context needs."""
        table = context.tables[group.number]
        first = group.first(context.position)
        if first > table.first:
            if self.every and context.remembered:
                self._check_in(context, group, range(table.first, first))
            group.pages.drop(table.array[table.first : first])
            tables = list(context.tables)
            tables[group.number] = table.holed(first)
            context.tables = tuple(tables)


    def _check_in(self, context: Context, group: Group, passed: range) -> None:
        """Has the tree own every so many-th of the pages that are passed, and no other of the group."""
        for page in passed[(-passed.start - 1) % self.every :: self.every]:
            tables = [table.cut(page + 1) for table in context.tables]
            tables[group.number] = tables[group.number].holed(page)
            self._tree.insert(context.tokens[: (page + 1) * PAGE].tobytes(), tables)


def _tokens(tokens: Sequence[int]) -> "array[int]":
    """A copy in 4 bytes a token; UsageError for what is no token id."""
    try:
        return array(TOKENS, tokens)
    except (TypeError, OverflowError) as error:
        raise UsageError(f"tokens are ids from 0 to {2**31 - 1}: {error}") from error


def _copy_nothing(group: int, pairs: Sequence[tuple[int, int]]) -> None:
    """For a cache without a device."""
