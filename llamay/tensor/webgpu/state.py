"""The words the host and the kernels share: token rows, output slots, sampled tokens, page tables.

    word 0            header (unused by kernels)
    word 16           slots    [SLOTS][4]   token, position, table, steps taken
                      rows     [rows][4]    token, position, table, 0
                      outputs  [SLOTS]      the row of each output slot of a batch
                      identity [SLOTS]      0, 1, 2, ...: the same for steps that continue
                      ring     [RING][SLOTS] tokens sampled, by step
                      scratch  [1]          the table of padding rows: one page nobody owns
                      tables   [...]        page numbers, by sequence

A step that continues reads its rows from the slots, so no host write lies between steps.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llamay.tensor.batch import PAGE, Batch

SLOTS = 64  # output slots of a step
RING = 64  # steps whose tokens are kept
SLOTS_AT = 16
ROWS_AT = SLOTS_AT + 4 * SLOTS


@dataclass(frozen=True, slots=True)
class StateLayout:
    """Where each part begins, in words, for a number of rows and table entries."""

    rows: int
    entries: int

    @property
    def outputs_at(self) -> int:
        return ROWS_AT + 4 * self.rows

    @property
    def identity_at(self) -> int:
        return self.outputs_at + SLOTS

    @property
    def ring_at(self) -> int:
        return self.identity_at + SLOTS

    @property
    def scratch_at(self) -> int:
        return self.ring_at + RING * SLOTS

    @property
    def tables_at(self) -> int:
        return self.scratch_at + 1

    @property
    def words(self) -> int:
        return self.tables_at + self.entries

    def fixed(self, scratch_page: int) -> NDArray[np.uint32]:
        """The whole state before the first step."""
        words = np.zeros(self.words, np.uint32)
        words[self.identity_at : self.identity_at + SLOTS] = np.arange(SLOTS)
        words[self.scratch_at] = scratch_page
        words[SLOTS_AT + 2 : ROWS_AT : 4] = self.scratch_at
        words[ROWS_AT + 2 : self.outputs_at : 4] = self.scratch_at
        return words

    def slot_rows(self) -> NDArray[np.uint32]:
        """Fresh slots: every one a padding row."""
        rows = np.zeros((SLOTS, 4), np.uint32)
        rows[:, 2] = self.scratch_at
        return rows

    def batch_rows(self, batch: Batch, first: int, count: int, padded: int) -> NDArray[np.uint32]:
        """Rows [first, first + count) of a batch as [padded, 4] words; the rest are padding rows."""
        starts = self.tables_at + self.table_offsets(batch)
        rows = np.zeros((padded, 4), np.uint32)
        rows[:, 2] = self.scratch_at
        rows[:count, 0] = batch.tokens[first : first + count]
        rows[:count, 1] = batch.positions[first : first + count]
        rows[:count, 2] = starts[batch.sequences[first : first + count]]
        return rows

    @staticmethod
    def table_offsets(batch: Batch) -> NDArray[np.int64]:
        lengths = [len(table) for table in batch.tables]
        return np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)

    def table_words(self, batch: Batch) -> NDArray[np.uint32]:
        """All page tables of a batch, end to end."""
        return np.concatenate(batch.tables).astype(np.uint32)


def pages_for(context: int) -> int:
    """Pages that hold `context` positions."""
    return -(-context // PAGE)
