"""The integrity check: every count of a cache recomputed from the owners."""

from collections.abc import Collection, Sequence

import numpy as np

from llamay.errors import LlamayError
from llamay.kv.context import Context
from llamay.kv.group import Group
from llamay.kv.table import sized
from llamay.kv.tree import Tree
from llamay.tensor.batch import PAGE, Ints


def check(contexts: Collection[Context], groups: Sequence[Group], tree: Tree) -> None:
    """LlamayError names the first count, table, tree node or right to write that is not as it must be."""
    for group in groups:
        for context in contexts:
            _check_table(context, group)
        tables = [context.tables[group.number].live for context in contexts]
        group.check_integrity(tables, tree.held(group))
        _check_writers(contexts, group)
    tree.check_integrity()


def _check_table(context: Context, group: Group) -> None:
    """One table reaches as far as the tokens and the room, and its window has no hole."""
    table = context.tables[group.number]
    name = f"context {context.id}, group {group.number}: {context.position} tokens, room for {context.room},"
    if context.room < context.position or len(table) < sized(context.room):
        raise LlamayError(f"{name} but {len(table)} pages")
    if table.first > group.first(context.position) or table.array[: table.first].any():
        raise LlamayError(f"{name} but holes before page {table.first} of {table.array.tolist()}")
    if table.array.flags.writeable:
        raise LlamayError(f"{name} and a table that can be written to")
    if len(table.live) > 1 and not np.diff(np.sort(table.live)).all():
        raise LlamayError(f"{name} and a page twice: {table.array.tolist()}")


def _check_writers(contexts: Collection[Context], group: Group) -> None:
    """No page may be written by two contexts, none of the tree's by any, and unfilled ones have one owner."""
    written: list[Ints] = [np.empty(0, np.int32)]
    for context in contexts:
        array = context.tables[group.number].array
        if (group.pages.owners[array[sized(context.position) :]] != 1).any():
            raise LlamayError(f"context {context.id} shares a page of group {group.number} that it has not filled yet")
        if context.room > context.position:
            written.append(array[context.position // PAGE :])
    pages = np.concatenate(written)
    if group.held[pages].any():
        raise LlamayError(
            f"KV page {pages[group.held[pages]][0]} of group {group.number} is the tree's, but may be written"
        )
    if len(pages) and np.bincount(pages).max() > 1:
        raise LlamayError(
            f"KV page {np.bincount(pages).argmax()} of group {group.number} may be written by two contexts"
        )
