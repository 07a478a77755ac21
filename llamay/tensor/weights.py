"""A Linear's weights for the NumPy executor: dequantised once and held, or a strip at a time as they are used."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from llamay.quant import dequantize
from llamay.tensor import twins
from llamay.tensor.program import Floats, Linear, Matrix
from llamay.tensor.stable import LONGEST_SUM, Stable
from llamay.tensor.twins.linear import Real

TILE = 64  # rows a tile: small enough for the BLAS kernels that read their operands in place
STRIP_BYTES = 8 << 20  # of dequantised weights at a time


def part_rows(matrix: Matrix, start: int, stop: int) -> Floats:
    """Rows [start, stop) of the loaded matrix, as float32 [rows, columns]."""
    return dequantize(matrix.type, matrix.take(np.arange(start, stop)))


def linear_rows(linear: Linear, start: int, stop: int) -> Floats:
    """Rows [start, stop) of the stacked parts, as float32 [rows, columns]."""
    pieces, first = [], 0
    for part in linear.parts:
        low, high = max(start - first, 0), min(stop - first, part.rows)
        if low < high:
            pieces.append(part_rows(part, low, high))
        first += part.rows
    return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def sum_length(columns: int) -> int:
    """Columns of one partial sum: an even division where there is one, else near-even pieces with padding."""
    least = -(-columns // LONGEST_SUM)
    for count in range(least, 2 * least + 1):
        if columns % count == 0:
            return columns // count
    return -(-columns // least)


@dataclass(slots=True, eq=False)
class Plain:
    """The float64 form: y = x W^T + b by the twin itself."""

    linear: Linear
    held: Real | None

    @classmethod
    def load(cls, linear: Linear, hold: bool) -> "Plain":
        held = linear_rows(linear, 0, linear.rows).astype(np.float64) if hold else None
        return cls(linear, held)

    def __call__(self, x: Real) -> Real:
        """x [T, columns] -> [T, rows]."""
        if self.held is not None:
            return twins.linear(x, self.held, self.linear.bias)
        pieces = [
            twins.linear(x, linear_rows(self.linear, start, stop).astype(np.float64))
            for start, stop in _strips(self.linear)
        ]
        y = np.concatenate(pieces, axis=-1)
        return y if self.linear.bias is None else y + self.linear.bias


@dataclass(slots=True, eq=False)
class Tiled:
    """The float32 form: tiles [sums, tiles, columns a sum, TILE], every sum in one fixed order."""

    linear: Linear
    stable: Stable
    held: Floats | None

    @classmethod
    def load(cls, linear: Linear, stable: Stable, hold: bool) -> "Tiled":
        if not hold:
            return cls(linear, stable, None)
        length = sum_length(linear.columns)
        sums, tiles = -(-linear.columns // length), -(-linear.rows // TILE)
        held = np.empty((sums, tiles, length, TILE), np.float32)
        for start, stop in _strips(linear):
            held[:, start // TILE : -(-stop // TILE)] = _tiles(linear, start, stop)
        return cls(linear, stable, held)

    def __call__(self, x: Real) -> Real:
        """x [T, columns] -> [T, rows]."""
        parts = _columns(x, self.linear.columns)
        if self.held is not None:
            y = self._product(parts, self.held)
        else:
            strips = [self._product(parts, _tiles(self.linear, *strip)) for strip in _strips(self.linear)]
            y = np.concatenate(strips, axis=-1)
        y = np.ascontiguousarray(y[:, : self.linear.rows])
        return y if self.linear.bias is None else y + self.linear.bias

    def _product(self, parts: Real, tiles: Floats) -> Real:
        """parts [sums, 1, T, columns a sum] times tiles -> [T, tiles * TILE]."""
        total = self.stable.product(parts[0], tiles[0])
        for part, tile in zip(parts[1:], tiles[1:], strict=True):
            total += self.stable.product(part, tile)
        return total.transpose(1, 0, 2).reshape(total.shape[1], -1)


def _strips(linear: Linear) -> Iterator[tuple[int, int]]:
    """Row ranges of about STRIP_BYTES, whole tiles each but for the last."""
    step = max(1, STRIP_BYTES // (4 * linear.columns * TILE)) * TILE
    for start in range(0, linear.rows, step):
        yield start, min(start + step, linear.rows)


def _tiles(linear: Linear, start: int, stop: int) -> Floats:
    """Rows [start, stop) as tiles [sums, tiles, columns a sum, TILE], padded with zeros."""
    length = sum_length(linear.columns)
    sums, tiles = -(-linear.columns // length), -(-(stop - start) // TILE)
    rows = linear_rows(linear, start, stop)
    if rows.shape != (tiles * TILE, sums * length):
        padded = np.zeros((tiles * TILE, sums * length), np.float32)
        padded[: rows.shape[0], : rows.shape[1]] = rows
        rows = padded
    return np.ascontiguousarray(rows.reshape(tiles, TILE, sums, length).transpose(2, 0, 3, 1))


def _columns(x: Real, columns: int) -> Real:
    """x [T, columns] as [sums, 1, T, columns a sum], padded with zeros."""
    length = sum_length(columns)
    sums = -(-columns // length)
    if sums * length != columns:
        padded = np.zeros((len(x), sums * length), x.dtype)
        padded[:, :columns] = x
        x = padded
    return x.reshape(len(x), sums, length).transpose(1, 0, 2)[:, None]
