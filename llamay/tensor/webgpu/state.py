"""The words the host and the kernels share: token rows, output slots, sampled tokens, page tables.

    word 0            taken    [SLOTS]      steps each slot has made since `begin`
                      slots    [SLOTS][4]   token, position, table, window table
                      rows     [rows][4]    token, position, table, window table
                      outputs  [SLOTS]      the row of each output slot of a batch
                      identity [SLOTS]      0, 1, 2, ...: the same for steps that continue
                      ring     [RING][SLOTS] tokens sampled, by step
                      scratch  [2]          the tables of padding rows: a page of each group that nobody owns
                      probe    [2][PROBE]   tables of the self-test: those pages over and over
                      tables   [...]        page numbers, by sequence; then those of the window group

In models that read both ways a row has its sequence's last position and its kind where others have a window table.
A step that continues reads its rows from the slots, so no host write lies between steps.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llamay.tensor.batch import PAGE, Batch

SLOTS = 64  # output slots of a step
RING = 64  # steps whose tokens are kept
PROBE = 24  # pages of the self-test's tables: positions beyond the first attention split
KIND = 24  # bits of a position, in rows that are read both ways
TAKEN_AT = 0
SLOTS_AT = TAKEN_AT + SLOTS
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
    def probe_at(self) -> int:
        return self.scratch_at + 2

    @property
    def tables_at(self) -> int:
        return self.probe_at + 2 * PROBE

    @property
    def words(self) -> int:
        return self.tables_at + self.entries

    def fixed(self, scratch_page: int, window_scratch_page: int) -> NDArray[np.uint32]:
        """The whole state before the first step."""
        words = np.zeros(self.words, np.uint32)
        words[self.identity_at : self.identity_at + SLOTS] = np.arange(SLOTS)
        words[self.scratch_at : self.probe_at] = scratch_page, window_scratch_page
        words[self.probe_at : self.tables_at] = np.repeat([scratch_page, window_scratch_page], PROBE)
        words[SLOTS_AT : self.outputs_at].reshape(-1, 4)[:, 2:] = self._padding
        return words

    @property
    def _padding(self) -> tuple[int, int]:
        """The tables of a padding row."""
        return self.scratch_at, self.scratch_at + 1

    def fresh_slots(self) -> NDArray[np.uint32]:
        """The words from TAKEN_AT on: no steps taken, every slot a padding row."""
        words = np.zeros(ROWS_AT - TAKEN_AT, np.uint32)
        rows = words[SLOTS_AT - TAKEN_AT :].reshape(SLOTS, 4)
        rows[:, 2:] = self._padding
        return words

    def batch_rows(
        self, batch: Batch, first: int, count: int, padded: int, *, both_ways: bool = False
    ) -> NDArray[np.uint32]:
        """Rows [first, first + count) of a batch as [padded, 4] words; the rest are padding rows.

        Where rows are read `both_ways` the last word is the last position they see, and from bit KIND on their kind.
        """
        sequences = batch.sequences[first : first + count]
        starts = self.tables_at + _starts(batch.tables)
        windows = self.tables_at + _starts(batch.windows, sum(map(len, batch.tables))) if batch.windows else starts
        rows = np.zeros((padded, 4), np.uint32)
        rows[:, 2:] = self._padding
        rows[:count, 0] = batch.tokens[first : first + count]
        rows[:count, 1] = batch.positions[first : first + count]
        rows[:count, 2] = starts[sequences]
        if both_ways:
            rows[:, 3] = 0
            kinds = 0 if batch.kinds is None else batch.kinds[first : first + count].astype(np.uint32)
            rows[:count, 3] = batch.lasts()[first : first + count].astype(np.uint32) | kinds << np.uint32(KIND)
        else:
            rows[:count, 3] = windows[sequences]
        return rows

    def table_words(self, batch: Batch) -> NDArray[np.uint32]:
        """All page tables of a batch, end to end."""
        return np.concatenate([*batch.tables, *batch.windows]).astype(np.uint32)


def _starts(tables: tuple[NDArray[np.int32], ...], first: int = 0) -> NDArray[np.int64]:
    """Where each table begins, when they lie end to end from word `first` of the tables."""
    return first + np.concatenate([[0], np.cumsum([len(table) for table in tables])[:-1]]).astype(np.int64)


def pages_for(context: int) -> int:
    """Pages that hold `context` positions."""
    return -(-context // PAGE)
