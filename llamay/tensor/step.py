"""What all layers of one step of the NumPy executor share."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamay.tensor import twins
from llamay.tensor.batch import PAGE, Batch
from llamay.tensor.program import Rope
from llamay.tensor.twins.linear import Real
from llamay.tensor.view import View

QUERIES = 64  # tokens of one sequence whose attention is computed together


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Where the rows of a step are stored in the pages of one group, and what of them they see."""

    slots: NDArray[np.int64]  # of each row
    views: list[View]
    runs: list[tuple[NDArray[np.intp], NDArray[np.int32], NDArray[np.int32]]]  # of each sequence rows, positions, table

    @classmethod
    def of(cls, batch: Batch, tables: tuple[NDArray[np.int32], ...], *, both_ways: bool) -> "Places":
        slots, views, runs = np.empty(len(batch.tokens), np.int64), [], []
        for index, table in enumerate(tables):
            rows = np.flatnonzero(batch.sequences == index)
            positions = batch.positions[rows]
            slots[rows] = table[positions // PAGE].astype(np.int64) * PAGE + positions % PAGE
            if len(rows):
                runs.append((rows, positions, table))
            for start in range(0, len(rows), QUERIES):
                some = slice(start, start + QUERIES)
                views.append(View(rows[some], positions[some], table, int(positions.max()) if both_ways else None))
        return cls(slots, views, runs)


class Step:
    """What all layers of one forward step share: where rows are stored, what they see, how they turn."""

    def __init__(self, batch: Batch, dtype: type[np.floating[Any]], *, windows: bool, both_ways: bool) -> None:
        self._batch = batch
        self._dtype = dtype
        self._rotations: dict[int, tuple[Real, Real]] = {}
        full = Places.of(batch, batch.tables, both_ways=both_ways)
        near = Places.of(batch, batch.windows, both_ways=both_ways) if windows else full
        self.places = (full, near)  # by page group

    def rotation(self, rope: Rope) -> tuple[Real, Real]:
        """cos and sin of the rows' positions."""
        found = self._rotations.get(id(rope))
        if found is None:
            found = self._rotations[id(rope)] = twins.rotation(self._batch.positions, rope, self._dtype)
        return found
