"""Matrices on the device: cut into streams that fit a binding, repacked piece by piece, never dequantised."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llamay.errors import OutOfMemory, Unsupported
from llamay.quant import TensorType
from llamay.tensor.program import Linear, Matrix
from llamay.tensor.webgpu.device import TEXELS, Buffer, Device, Texture
from llamay.tensor.webgpu.formats import FORMATS, Format, Tile, pack, steps, tile_vectors

PIECE = 4 << 20  # file bytes repacked at a time: the steps of that take ten times as much

Order = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Rows [row0, row0 + rows) of a linear, of one tensor type, in one binding."""

    memory: Buffer | Texture
    type: TensorType
    rows: int
    row0: int
    columns: int
    bias: bool
    tile: Tile

    @property
    def format(self) -> Format:
        return FORMATS[self.type]

    @property
    def steps(self) -> int:
        """Inner steps of a tile."""
        return steps(self.format, self.columns, self.tile)

    @property
    def tiles(self) -> int:
        return -(-self.rows // self.tile.height)


@dataclass(frozen=True, slots=True)
class _Run:
    """Neighbouring parts of a linear that have one type."""

    parts: tuple[Matrix, ...]
    row0: int

    @property
    def rows(self) -> int:
        return sum(part.rows for part in self.parts)

    def read(self, order: Order) -> NDArray[np.uint8]:
        """File rows of the run's loaded rows `order` (-1: a zero row) -> [len(order), row bytes]."""
        raw = self.parts[0].read()
        out = np.zeros((len(order), raw.shape[1]), np.uint8)
        start = 0
        for part in self.parts:
            inside = (order >= start) & (order < start + part.rows)
            rows = order[inside] - start
            out[inside] = part.read()[rows if part.order is None else part.order[rows]]
            start += part.rows
        return out


def load(device: Device, linear: Linear, *, normed: bool) -> tuple[Stream, ...]:
    """The streams of a linear, its parts in order.  `normed`: see Launch.tile_for."""
    runs: list[_Run] = []
    row0 = 0
    for part in linear.parts:
        if runs and runs[-1].parts[0].type == part.type:
            runs[-1] = _Run((*runs[-1].parts, part), runs[-1].row0)
        else:
            runs.append(_Run((part,), row0))
        row0 += part.rows
    streams: list[Stream] = []
    for run in runs:
        bias = None if linear.bias is None else linear.bias[run.row0 : run.row0 + run.rows]
        tile = device.launch.tile_for(run.rows, normed=normed)
        streams += _streams(device, run, np.arange(run.rows), bias, tile)
    _release(linear)
    return tuple(streams)


def interleaved(gate: Linear, up: Linear, tile: Tile) -> Order:
    """Rows of [gate; up] such that each lane's first half of rows is gate's and the rest up's; -1 pads the last tile."""
    width = gate.rows
    half = tile.rows // 2
    tiles = -(-2 * width // tile.height)
    rows = np.arange(tiles * tile.row_lanes * half, dtype=np.int64)
    rows[rows >= width] = -1
    pairs = rows.reshape(-1, half)
    ups = np.where(pairs < 0, -1, pairs + width)
    return np.concatenate([pairs, ups], 1).reshape(-1)


def load_gated(device: Device, gate: Linear, up: Linear) -> tuple[Stream, ...] | None:
    """The streams of gate and up woven together, or None when their types or biases differ."""
    types = {part.type for part in (*gate.parts, *up.parts)}
    if len(types) > 1 or len(gate.parts) > 1 or len(up.parts) > 1 or (gate.bias is None) != (up.bias is None):
        return None
    tile = device.launch.tile_for(2 * gate.rows, normed=True)
    order = interleaved(gate, up, tile)
    bias = None
    if gate.bias is not None and up.bias is not None:
        bias = np.where(order < 0, 0, np.concatenate([gate.bias, up.bias])[order]).astype(np.float32)
    streams = _streams(device, _Run((gate.parts[0], up.parts[0]), 0), order, bias, tile, rows=2 * gate.rows)
    _release(gate)
    _release(up)
    return tuple(streams)


def _release(linear: Linear) -> None:
    for part in linear.parts:
        if part.release is not None:
            part.release()


def _streams(
    device: Device, run: _Run, order: Order, bias: NDArray[np.float32] | None, tile: Tile, rows: int | None = None
) -> list[Stream]:
    first = run.parts[0]
    if first.type not in FORMATS:
        names = ", ".join(type.name for type in FORMATS)
        raise Unsupported(
            f"tensor {first.name} has type {first.type.name}, which WGSL does not unpack; it does {names}"
        )
    count = len(order) if rows is None else rows
    tile_bytes = 16 * tile_vectors(FORMATS[first.type], first.columns, tile, bias is not None)
    limit = min(device.limits["max-storage-buffer-binding-size"], device.limits["max-buffer-size"])
    if device.launch.textures:
        limit = min(limit, 16 * TEXELS * device.limits["max-texture-dimension-2d"])
    most = limit // tile_bytes * tile.height
    if not most:
        raise OutOfMemory(f"tensor {first.name}: {tile.height} rows take {tile_bytes:,} bytes, a binding {limit:,}")
    streams = []
    for start in range(0, count, most):
        here = min(most, count - start)
        end = min(start + most, len(order))
        part_bias = None if bias is None else bias[start:end]
        pieces = _pieces(run, order[start:end], part_bias, tile)
        memory = device.fill(-(-here // tile.height) * tile_bytes, pieces)
        streams.append(Stream(memory, first.type, here, run.row0 + start, first.columns, bias is not None, tile))
    return streams


def _pieces(run: _Run, order: Order, bias: NDArray[np.float32] | None, tile: Tile) -> Iterator[NDArray[np.uint8]]:
    """The packed bytes of the rows in `order`, some whole tiles at a time."""
    first = run.parts[0]
    step = max(1, PIECE // (first.read().shape[1] * tile.height)) * tile.height
    for start in range(0, len(order), step):
        piece_bias = None if bias is None else bias[start : start + step]
        words = pack(first.type, run.read(order[start : start + step]), first.columns, tile, piece_bias)
        yield words.reshape(-1).view(np.uint8)
        for part in run.parts:  # the pages of the file that were read so far count as this process's memory
            if part.release is not None:
                part.release()
