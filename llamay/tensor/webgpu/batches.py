"""What a batch must be before it is written to the device, and what follows from how its rows lie."""

import numpy as np
from numpy.typing import NDArray

from llamay.errors import ContextFull, UsageError
from llamay.tensor.batch import PAGE, Batch, check_kinds
from llamay.tensor.program import Program


def check(batch: Batch, program: Program, positions: int, pages: int, window_pages: int) -> None:
    """Raises for a position, page or token beyond what there is; `window_pages` 0: there is no such group."""
    most = int(batch.positions.max(initial=0))
    if most >= positions:
        raise ContextFull(f"position {most} lies outside the context of {positions}")
    need = np.zeros(len(batch.tables), np.int64)
    np.maximum.at(need, batch.sequences, batch.positions // PAGE + 1)
    _check_tables(batch.tables, need, pages)
    if window_pages:
        if len(batch.windows) != len(batch.tables):
            raise UsageError(f"{len(batch.tables)} sequences came with {len(batch.windows)} window tables")
        _check_tables(batch.windows, need, window_pages)
    if int(batch.tokens.min(initial=0)) < 0 or int(batch.tokens.max(initial=0)) >= program.vocabulary:
        raise UsageError(f"a token lies outside the vocabulary of {program.vocabulary}")
    check_kinds(batch, program)


def steps_within(batch: Batch, positions: int) -> int:
    """How many steps a batch's outputs have room for in their tables and the context, the batch's own included."""
    groups = (batch.tables, batch.windows) if batch.windows else (batch.tables,)
    rows = [(int(batch.sequences[row]), int(batch.positions[row])) for row in batch.outputs]
    return min((min(len(tables[i]) * PAGE, positions) - at for tables in groups for i, at in rows), default=0)


def following(batch: Batch, first: int, count: int) -> bool:
    """Whether some of these rows follow each other in one sequence."""
    rows = batch.sequences[first : first + count]
    return bool((rows[1:] == rows[:-1]).any())


def _check_tables(tables: tuple[NDArray[np.int32], ...], need: NDArray[np.int64], pool: int) -> None:
    for index, table in enumerate(tables):
        if len(table) < need[index]:
            raise UsageError(f"sequence {index} has {len(table)} pages, its positions need {need[index]}")
        if len(table) and not 0 <= int(table.min()) <= int(table.max()) < pool:
            raise UsageError(f"sequence {index} names a page outside the pool of {pool}")
