"""Matrices on the device: cut into streams that fit a binding, repacked piece by piece, never dequantised."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llamay.errors import OutOfMemory, Unsupported
from llamay.quant import TensorType
from llamay.tensor.program import Experts, Linear, Matrix
from llamay.tensor.webgpu.device import UNIFORM, Device
from llamay.tensor.webgpu.formats import FORMATS, Format, Tile, pack, steps, tile_vectors
from llamay.tensor.webgpu.storage import LINE, Buffer, Rows

PIECE = 4 << 20  # file bytes repacked at a time: the steps of that take ten times as much

Order = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Stream:
    """Rows [row0, row0 + rows) of a linear, of one tensor type, in one binding."""

    memory: Rows
    type: TensorType
    format: Format
    rows: int
    row0: int
    columns: int
    bias: bool
    tile: Tile
    points: Buffer | None = None  # the codebook, of types that have one
    expert0: int = 0  # the first expert whose rows these are
    experts: int = 1  # as many have theirs here, one below the other, each in whole tiles

    @property
    def bound(self) -> dict[str, Rows]:
        """What kernels read it by."""
        return {"w": self.memory} | ({} if self.points is None else {"points": self.points})

    @property
    def steps(self) -> int:
        """Inner steps of a tile."""
        return steps(self.format, self.columns, self.tile)

    @property
    def tiles(self) -> int:
        """Tiles of one expert, or of all where there are none."""
        return -(-self.rows // self.tile.height)

    @property
    def load(self) -> int:
        """Bytes of a tile, and what of the memory's end is its share."""
        return self.memory.size // (self.tiles * self.experts)


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
        out = np.zeros((len(order), self.parts[0].row_bytes), np.uint8)
        start = 0
        for part in self.parts:
            inside = (order >= start) & (order < start + part.rows)
            if inside.all():
                return part.take(order - start)
            if inside.any():
                out[inside] = part.take(order[inside] - start)
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


def woven(gate: Linear, up: Linear) -> bool:
    """Whether the rows of gate and up can lie between each other in one stream."""
    types = {part.type for part in (*gate.parts, *up.parts)}
    return len(types) == len(gate.parts) == len(up.parts) == 1 and (gate.bias is None) == (up.bias is None)


def load_gated(device: Device, gate: Linear, up: Linear) -> tuple[Stream, ...] | None:
    """The streams of gate and up woven together, or None when their types or biases differ."""
    if not woven(gate, up):
        return None
    tile = device.launch.gated_tile(2 * gate.rows)
    order = interleaved(gate, up, tile)
    bias = None
    if gate.bias is not None and up.bias is not None:
        bias = np.where(order < 0, 0, np.concatenate([gate.bias, up.bias])[order]).astype(np.float32)
    streams = _streams(device, _Run((gate.parts[0], up.parts[0]), 0), order, bias, tile, rows=2 * gate.rows)
    return tuple(streams)


def load_experts(device: Device, experts: Experts) -> tuple[Stream, ...]:
    """The streams of one linear of each expert: whole experts where they fit a binding, else rows of one at a time."""
    rows = experts[0].rows
    tile = device.launch.tile_for(rows, normed=True)
    order = np.arange(-(-rows // tile.height) * tile.height, dtype=np.int64)
    order[rows:] = -1
    bias = experts[0].bias is not None
    return tuple(
        _expert_streams(device, [_Slab((linear.parts[0],), order, _ordered(linear.bias, order)) for linear in experts], tile, rows, bias)
    )


def load_expert_gates(device: Device, gates: Experts, ups: Experts) -> tuple[Stream, ...] | None:
    """The streams of each expert's gate and up woven together, or None when their types or biases differ."""
    gate, up = gates[0], ups[0]
    if not woven(gate, up):
        return None
    tile = device.launch.gated_tile(2 * gate.rows)
    order = interleaved(gate, up, tile)
    slabs = []
    for gate, up in zip(gates, ups, strict=True):
        both = None if gate.bias is None or up.bias is None else np.concatenate([gate.bias, up.bias])
        slabs.append(_Slab((gate.parts[0], up.parts[0]), order, _ordered(both, order)))
    return tuple(_expert_streams(device, slabs, tile, 2 * gate.rows, gate.bias is not None))


@dataclass(frozen=True, slots=True, eq=False)
class _Slab:
    """What one expert has in a stream: matrices, the order of their rows in whole tiles, and biases in that order."""

    parts: tuple[Matrix, ...]
    order: Order
    bias: NDArray[np.float32] | None

    def pieces(self, format: Format, tile: Tile, start: int, stop: int) -> Iterator[NDArray[np.uint8]]:
        """The packed bytes of rows [start, stop) of the order."""
        bias = None if self.bias is None else self.bias[start:stop]
        return _pieces(format, _Run(self.parts, 0), self.order[start:stop], bias, tile)


def _ordered(bias: NDArray[np.float32] | None, order: Order) -> NDArray[np.float32] | None:
    return None if bias is None else np.where(order < 0, np.float32(0), bias[order])


def _expert_streams(device: Device, slabs: Sequence[_Slab], tile: Tile, rows: int, bias: bool) -> Iterator[Stream]:
    first = slabs[0].parts[0]
    tile_bytes, most = _binding(device, first, tile, bias)
    format = device.launch.format(first.type)
    table = points(device, format)
    tiles = -(-rows // tile.height)
    height = min(tiles, most) * tile.height  # rows of an expert in a stream
    together = max(1, most // tiles)  # experts in a stream
    for at in range(0, len(slabs), together):
        some = slabs[at : at + together]
        for start in range(0, rows, height):
            here = min(height, rows - start)
            size = len(some) * -(-here // tile.height) * tile_bytes
            stop = min(start + height, len(slabs[0].order))
            pieces = (piece for slab in some for piece in slab.pieces(format, tile, start, stop))
            memory = device.fill(size, pieces)
            yield Stream(memory, first.type, format, here, start, first.columns, bias, tile, table, at, len(some))


def _streams(
    device: Device, run: _Run, order: Order, bias: NDArray[np.float32] | None, tile: Tile, rows: int | None = None
) -> list[Stream]:
    first = run.parts[0]
    count = len(order) if rows is None else rows
    tile_bytes, tiles = _binding(device, first, tile, bias is not None)
    most = tiles * tile.height
    format = device.launch.format(first.type)
    table = points(device, format)
    streams = []
    for start in range(0, count, most):
        here = min(most, count - start)
        end = min(start + most, len(order))
        part_bias = None if bias is None else bias[start:end]
        pieces = _pieces(format, run, order[start:end], part_bias, tile)
        memory = device.fill(-(-here // tile.height) * tile_bytes, pieces)
        biased = bias is not None
        streams.append(Stream(memory, first.type, format, here, run.row0 + start, first.columns, biased, tile, table))
    return streams


def points(device: Device, format: Format) -> Buffer | None:
    """The codebook of a format on the device, made once; None where it has none."""
    if format.table is not None and format.name not in device.tables:
        words = format.table()
        device.tables[format.name] = device.buffer(words.nbytes, UNIFORM)
        device.write(device.tables[format.name], words)
    return device.tables.get(format.name)


def _binding(device: Device, matrix: Matrix, tile: Tile, bias: bool) -> tuple[int, int]:
    """(bytes of a tile, tiles that one binding takes at most, at least one)."""
    if matrix.type not in FORMATS:
        names = ", ".join(type.name for type in FORMATS)
        raise Unsupported(
            f"tensor {matrix.name} has type {matrix.type.name}, which WGSL does not unpack; it does {names}"
        )
    tile_bytes = 16 * tile_vectors(device.launch.format(matrix.type), matrix.columns, tile, bias)
    limit = device.binding
    if device.launch.textures:
        limit = min(limit, LINE * device.limits["max-texture-dimension-2d"])
    if limit < tile_bytes:
        raise OutOfMemory(f"tensor {matrix.name}: {tile.height} rows take {tile_bytes:,} bytes, a binding {limit:,}")
    return tile_bytes, limit // tile_bytes


def _pieces(
    format: Format, run: _Run, order: Order, bias: NDArray[np.float32] | None, tile: Tile
) -> Iterator[NDArray[np.uint8]]:
    """The packed bytes of the rows in `order`, some whole tiles at a time."""
    first = run.parts[0]
    step = max(1, PIECE // (first.row_bytes * tile.height)) * tile.height
    for start in range(0, len(order), step):
        piece_bias = None if bias is None else bias[start : start + step]
        words = pack(format, run.read(order[start : start + step]), first.columns, tile, piece_bias)
        yield words.reshape(-1).view(np.uint8)
