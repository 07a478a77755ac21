"""What one step computes: rows of tokens, the page tables they see, the rows whose logits are wanted."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llamay.errors import UsageError
from llamay.tensor.program import Embed, Program, Scan, ShortConv

PAGE = 16  # tokens a page

Ints = NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """Rows of one forward step.

    Rows of one sequence come in ascending position, and every earlier position of it
    is already in its pages or an earlier row of this batch.  Page p of a table holds
    positions 16p to 16p+15 of its sequence.  A state space carries a state: where a position is
    computed once more, those after it are to be, too, before any that follows them.
    """

    tokens: Ints  # [rows]
    positions: Ints  # [rows]
    sequences: Ints  # [rows], index into tables
    tables: tuple[Ints, ...]  # per sequence: page numbers, enough for its positions (and steps)
    outputs: Ints  # rows whose logits are wanted, ascending
    windows: tuple[Ints, ...] = ()  # per sequence: pages of the window group, for layers with a window
    kinds: Ints | None = None  # [rows], for models that tell the texts of a pair apart; None: all 0

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

    def lasts(self) -> Ints:
        """The last position of each row's sequence [rows]; UsageError where a sequence is not here from its first to that."""
        counts, lasts = np.zeros(len(self.tables), np.int32), np.full(len(self.tables), -1, np.int32)
        np.add.at(counts, self.sequences, 1)
        np.maximum.at(lasts, self.sequences, self.positions)
        if (lasts + 1 != counts).any():
            raise UsageError("a text that is read both ways is computed in one batch; part of one is missing")
        return lasts[self.sequences]


def kinds_of(program: Program) -> int:
    """How many kinds of tokens a program tells apart."""
    kinds = next((op.kinds for op in program.operations if isinstance(op, Embed)), None)
    return 1 if kinds is None else kinds.rows


def check_kinds(batch: Batch, program: Program) -> None:
    """UsageError where the batch names a kind that the program does not have, cuts a text that is read both ways, or
    has a sequence's rows apart that a state space is to scan.
    """
    most = kinds_of(program)
    if batch.kinds is not None and (len(batch.kinds) != len(batch.tokens) or not 0 <= batch.kinds.min() <= batch.kinds.max() < most):
        raise UsageError(f"a batch names kinds of tokens beyond the {most} of the model")
    if program.both_ways:
        batch.lasts()
    if any(isinstance(op, Scan | ShortConv) for op in program.layers):
        same = batch.sequences[1:] == batch.sequences[:-1]
        runs = 1 + np.count_nonzero(~same)
        if runs != len(np.unique(batch.sequences)) or (np.diff(batch.positions)[same] != 1).any():
            raise UsageError("the rows of a sequence are to follow each other, one position after the other")
