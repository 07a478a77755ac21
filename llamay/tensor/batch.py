"""What one step computes: rows of tokens, the page tables they see, the rows whose logits are wanted."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

PAGE = 16  # tokens a page

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Rows of one forward step.

    Rows of one sequence come in ascending position, and every earlier position of it
    is already in its pages or an earlier row of this batch.  Page p of a table holds
    positions 16p to 16p+15 of its sequence.
    """

    tokens: Ints  # [rows]
    positions: Ints  # [rows]
    sequences: Ints  # [rows], index into tables
    tables: tuple[Ints, ...]  # per sequence: page numbers, enough for its positions (and steps)
    outputs: Ints  # rows whose logits are wanted, ascending
    windows: tuple[Ints, ...] = ()  # per sequence: pages of the window group, for layers with a window

    @classmethod
    def single(cls, tokens: Ints, first: int, table: Ints, outputs: Ints | None = None) -> "Batch":
        """One sequence's tokens at positions first, first+1, ...; by default the last row's logits."""
        rows = len(tokens)
        return cls(
            tokens=np.asarray(tokens, np.int32),
            positions=np.arange(first, first + rows, dtype=np.int32),
            sequences=np.zeros(rows, np.int32),
            tables=(table,),
            outputs=np.array([rows - 1], np.int32) if outputs is None else np.asarray(outputs, np.int32),
        )
