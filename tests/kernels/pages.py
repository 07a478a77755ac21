"""Pages of keys and values as kernels see them, for the kernels' tests."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
POISON = 0x7FC0DEAD  # as f32 a NaN


class Pool:
    """Pages of keys and values and the state that names them, as kernels see them, for `sequences` tables.

    The pages of the tables are scattered; one more belongs to nobody and takes what padding rows write.
    """

    def __init__(self, kv_heads: int, head_dim: int, lengths: Sequence[int], random: np.random.Generator) -> None:
        self.kv_heads, self.head_dim = kv_heads, head_dim
        needs = [-(-length // 16) for length in lengths]
        self.pages = sum(needs) + 3
        order = random.permutation(self.pages)
        cuts = np.cumsum(needs)
        self.tables = np.split(order[: cuts[-1]], cuts[:-1])
        self.scratch = int(order[cuts[-1]])

    def slots(self, sequence: int, positions: Array) -> Array:
        """Where the positions of a sequence lie, as the twins count: page * 16 + position % 16."""
        slots: Array = self.tables[sequence][positions // 16] * 16 + positions % 16
        return slots

    def state(
        self, positions: Sequence[int], sequences: Sequence[int], padded: int, outputs: Sequence[int] = (), windowed: int = 0
    ) -> tuple[Array, dict[str, int]]:
        """The words of `padded` rows, of which the first are given, and where they begin (an odd place)."""
        rows_at, count = 5, len(positions)
        outputs_at = rows_at + 4 * padded
        scratch_at = outputs_at + len(outputs)
        starts = np.cumsum([scratch_at + 1, *(len(table) for table in self.tables)])[:-1]
        rows = np.zeros((padded, 4), np.uint32)
        rows[:, 2 + windowed] = scratch_at
        rows[:count, 0] = 77
        rows[:count, 1] = positions
        rows[:count, 2 + windowed] = starts[np.asarray(sequences)]
        rows[:, 3 - windowed] = 1 << 30  # the other group's table
        parts = [np.full(rows_at, POISON), rows.reshape(-1), outputs, [self.scratch], *self.tables]
        words = np.concatenate([np.asarray(part, np.int64) for part in parts]).astype(np.uint32)
        return words, {"rows_at": rows_at, "outputs_at": outputs_at, "windowed": windowed}

    def lay(self, what: str, format: str, values: Array) -> tuple[Array, Array]:
        """Keys [kv_heads, head_dim, slots] or values [kv_heads, slots, head_dim] as words [page, kv head, ...] of
        a cache format, and what is left of them in it, in the order they came in."""
        cut = self._cut(what, values.astype(np.float64))
        if format == "f32":
            kept = cut.astype(np.float32)
            words: Array = kept.view(np.uint32)
        elif format == "f16":
            kept = cut.astype(np.float16)
            words = kept.view(np.uint32)
        else:
            scale = self._scales(what, np.abs(cut).max((2 if what == "keys" else 3, 4)) / 127).astype(np.float32)
            steps = np.divide(cut, scale, out=np.zeros_like(cut), where=scale > 0)
            kept = np.rint(np.nan_to_num(steps)).astype(np.int8)
            tail = scale.reshape(self.pages, self.kv_heads, 16).view(np.uint32)
            words = np.concatenate([kept.view(np.uint32).reshape(*tail.shape[:2], -1), tail], -1)
            kept = kept.astype(np.float64) * scale
        return words.reshape(self.pages, self.kv_heads, -1), self._joined(what, kept.astype(np.float64))

    def read(self, what: str, format: str, words: Array) -> Array:
        """The inverse: what words [page, kv head, ...] hold."""
        if format == "f32":
            cut = words.view(np.float32)
        elif format == "f16":
            cut = words.view(np.float16)
        else:
            scale = self._scales(what, np.ascontiguousarray(words[:, :, -16:]).view(np.float32))
            cut = self._shaped(what, np.ascontiguousarray(words[:, :, :-16]).view(np.int8)) * scale.astype(np.float64)
        return self._joined(what, self._shaped(what, cut).astype(np.float64))

    def stray(self, what: str, format: str, words: Array, slots: Array) -> int:
        """How many words outside the given slots (and the page of padding rows) are not POISON."""
        ones = np.zeros(self.pages * 16)
        ones[slots] = 1
        ones[self.scratch * 16 : self.scratch * 16 + 16] = 1
        shape = (self.kv_heads, self.head_dim, 1) if what == "keys" else (self.kv_heads, 1, self.head_dim)
        line = ones if what == "keys" else ones[:, None]
        theirs, _ = self.lay(what, format, np.ones(shape) * line)
        return int(((theirs == 0) & (words.reshape(theirs.shape) != POISON)).sum())

    def dirty(self, what: str, format: str, words: Array, slots: Array) -> Array:
        """The words with everything outside the given slots as bad as an earlier owner could leave it."""
        shape = (self.kv_heads, self.head_dim, 1) if what == "keys" else (self.kv_heads, 1, self.head_dim)
        line = np.ones(self.pages * 16)
        line[slots] = 0
        theirs, _ = self.lay(what, format, np.ones(shape) * (line if what == "keys" else line[:, None]))
        bad = np.uint32(0x7E007E00 if format == "f16" else POISON)  # not-a-number, in each half
        return np.where(theirs.reshape(words.shape) != 0, bad, words)

    def words(self, format: str) -> int:
        """Words of a head in a page."""
        return {"f32": 16 * self.head_dim, "f16": 8 * self.head_dim, "q8": 4 * self.head_dim + 16}[format]

    def _cut(self, what: str, values: Array) -> Array:
        """Keys [page, kv head, dim / 4, 16, 4], values [page, kv head, 16, dim / 4, 4]."""
        if what == "keys":
            shaped = values.reshape(self.kv_heads, self.head_dim // 4, 4, self.pages, 16).transpose(3, 0, 1, 4, 2)
        else:
            shaped = values.reshape(self.kv_heads, self.pages, 16, self.head_dim // 4, 4).transpose(1, 0, 2, 3, 4)
        return np.ascontiguousarray(shaped)

    def _joined(self, what: str, cut: Array) -> Array:
        if what == "keys":
            return cut.transpose(1, 2, 4, 0, 3).reshape(self.kv_heads, self.head_dim, -1)
        return cut.transpose(1, 0, 2, 3, 4).reshape(self.kv_heads, -1, self.head_dim)

    def _shaped(self, what: str, flat: Array) -> Array:
        inner = (self.head_dim // 4, 16, 4) if what == "keys" else (16, self.head_dim // 4, 4)
        return flat.reshape(self.pages, self.kv_heads, *inner)

    def _scales(self, what: str, scales: Array) -> Array:
        """Scales [page, kv head, 16] against cut keys or values."""
        return scales[:, :, None, :, None] if what == "keys" else scales[:, :, :, None, None]
