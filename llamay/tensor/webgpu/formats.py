"""How each tensor type lies on the device: its planes of words, and how they make a stream.

A matrix becomes one stream of vec4<u32>, read by tiles.  A tile is `lanes x rows` rows
of the matrix; its inner axis is cut into units of 32 elements, eight of them to a
superblock for the K types.  Each type splits a row's unit into planes: whole 32-bit
words (`words`) or one 16-bit half (`words == 0`).  For row j of a lane, word i of a
plane is flat index f = j * words + i of that lane; four at a time they form vec4s that
lie `[vec4][row lane]`, so that neighbouring lanes read neighbouring memory.  A superblock
of all the tile's rows is one piece, whatever the number of k-lanes: they change no layout,
and a row ends with its last superblock.
The WGSL side of a type is `wgsl/quant/<name>.wgsl`.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from llamay.errors import Unsupported
from llamay.quant import TensorType
from llamay.tensor.webgpu import pointed, splits
from llamay.tensor.webgpu.splits import Halves, Planes, Raw, Words

UNIT = splits.UNIT


def check_multiples(what: str, sizes: Iterable[tuple[str, int, int]]) -> None:
    """Raises Unsupported where a size of (name, size, unit) is not what kernels take at a time."""
    for name, size, unit in sizes:
        if size % unit:
            raise Unsupported(f"{what} has {size} {name}; in WGSL they are a multiple of {unit}, -device numpy takes any number")


def padded(columns: int) -> int:
    """Floats from one token's row to the next: whole units."""
    return -(-columns // UNIT) * UNIT


@dataclass(frozen=True, slots=True)
class Plane:
    """A field each row has for every unit (or superblock): `words` u32, or one u16 when words is 0."""

    name: str
    words: int

    def per_lane(self, rows: int) -> int:
        """u32 words a lane of `rows` rows holds of this plane."""
        return self.words * rows if self.words else rows // 2


@dataclass(frozen=True, slots=True)
class Format:
    """The device layout of one tensor type.

    `group` elements of a unit share one scale; `sums` says that its fold needs the sum
    of x over the group (types with an offset).
    """

    name: str
    split: Callable[[Raw], Planes]
    unit: tuple[Plane, ...]
    head: tuple[Plane, ...] = ()
    units: int = 1  # units in a superblock
    group: int = UNIT
    sums: bool = False
    ragged: bool = False  # a row may end within a superblock
    table: Callable[[], Words] | None = None  # the codebook, a word for each point that a code names

    @property
    def points(self) -> int:
        """Words of the codebook, 0 where there is none."""
        return 0 if self.table is None else len(self.table())


@dataclass(frozen=True, slots=True)
class Tile:
    """The shape of a tile: `lanes` = k_lanes * row_lanes invocations, `rows` rows for each row lane."""

    lanes: int
    row_lanes: int
    rows: int

    @property
    def k_lanes(self) -> int:
        return self.lanes // self.row_lanes

    @property
    def height(self) -> int:
        """Rows of the matrix in one tile."""
        return self.row_lanes * self.rows


_D, _DM, _S, _S1, _H = Plane("d", 0), Plane("dm", 1), Plane("s", 0), Plane("s", 1), Plane("h", 0)
_Q1, _Q2, _Q4, _Q8 = Plane("q", 1), Plane("q", 2), Plane("q", 4), Plane("q", 8)


def _book(type: TensorType, *, signed: bool = False) -> Callable[[], Words]:
    return partial(pointed.table, type, signed=signed)


FORMATS: dict[TensorType, Format] = {
    TensorType.F32: Format("f32", splits.float_split(4), unit=(Plane("q", 32),)),
    TensorType.F16: Format("f16", splits.float_split(2), unit=(Plane("q", 16),)),
    TensorType.BF16: Format("bf16", splits.float_split(2), unit=(Plane("q", 16),)),
    TensorType.Q4_0: Format("q4_0", splits.q4_0, unit=(_Q4, _D), sums=True),
    TensorType.Q4_1: Format("q4_1", splits.q4_1, unit=(_Q4, _DM), sums=True),
    TensorType.Q5_0: Format("q5_0", splits.q5_0, unit=(_Q4, Plane("h", 1), _D), sums=True),
    TensorType.Q5_1: Format("q5_1", splits.q5_1, unit=(_Q4, Plane("h", 1), _DM), sums=True),
    TensorType.Q8_0: Format("q8_0", splits.q8_0, unit=(_Q8, _D)),
    TensorType.Q8_1: Format("q8_1", splits.q8_1, unit=(_Q8, _D)),
    TensorType.Q2_K: Format("q2_k", splits.q2_k, (Plane("q", 2), _S), (_DM,), units=8, group=16, sums=True),
    TensorType.Q3_K: Format("q3_k", splits.q3_k, (Plane("q", 2), Plane("h", 1), _S), (_D,), units=8, group=16, sums=True),
    TensorType.Q4_K: Format("q4_k", splits.q4_k, (_Q4, _S), (_DM,), units=8, sums=True),
    TensorType.Q5_K: Format("q5_k", splits.q5_k, (_Q4, Plane("h", 1), _S), (_DM,), units=8, sums=True),
    TensorType.Q6_K: Format("q6_k", splits.q6_k, (_Q4, Plane("h", 2), _S), (_D,), units=8, group=16, sums=True),
    TensorType.Q8_K: Format("q8_k", splits.q8_k, (_Q8,), (Plane("d", 1),), units=8),
    TensorType.IQ4_NL: Format("iq4_nl", splits.iq4_nl, (_Q4, _D)),
    TensorType.IQ4_XS: Format("iq4_xs", splits.iq4_xs, (_Q4,), (_S1, Plane("dh", 1)), units=8),
    TensorType.IQ3_XXS: Format("iq3_xxs", pointed.iq3_xxs, (_Q2, _S1), (_D,), 8, sums=True, table=_book(TensorType.IQ3_XXS)),
    TensorType.IQ3_S: Format("iq3_s", pointed.iq3_s, (_Q2, _S1, _H), (_D,), 8, sums=True, table=_book(TensorType.IQ3_S)),
    TensorType.IQ2_XXS: Format("iq2_xxs", pointed.iq2_xxs, (_Q1, _S1), (_D,), 8, sums=True, table=_book(TensorType.IQ2_XXS)),
    TensorType.IQ2_XS: Format(
        "iq2_xs", pointed.iq2_xs, (_Q1, _S1), (Plane("t", 2), _D), 8, group=16, sums=True, table=_book(TensorType.IQ2_XS)
    ),
    TensorType.IQ2_S: Format(
        "iq2_s", pointed.iq2_s, (_Q1, _S1, _H), (_D,), 8, group=16, sums=True, table=_book(TensorType.IQ2_S)
    ),
    TensorType.IQ1_S: Format("iq1_s", pointed.iq1_s, (_Q1, _H), (_D,), 8, sums=True, table=_book(TensorType.IQ1_S)),
    TensorType.IQ1_M: Format(
        "iq1_m", pointed.iq1_m, (_Q1, _H), (_S1, Plane("dt", 1)), 8, group=8, sums=True, table=_book(TensorType.IQ1_M)
    ),
    TensorType.MXFP4: Format("mxfp4", splits.mxfp4, (_Q4,), (_S,), units=2, ragged=True),
    TensorType.TQ1_0: Format(
        "tq1_0", splits.tq1_0, (Plane("q", 1), Plane("h", 0)), (Plane("r", 1), _D), units=8, sums=True
    ),
    TensorType.TQ2_0: Format("tq2_0", splits.tq2_0, (Plane("q", 2),), (_D,), units=8, sums=True),
    TensorType.NVFP4: Format("nvfp4", splits.nvfp4, (_Q4, _S), group=16),
    TensorType.Q1_0: Format("q1_0", splits.q1_0, (Plane("q", 1),), (_D,), units=4, sums=True),
    TensorType.Q2_0: Format("q2_0", splits.q2_0, (Plane("q", 2),), (_D,), units=2, sums=True),
}


# what lies otherwise where the processor computes and a lookup costs it as much as the sums of the four elements
RECAST: dict[TensorType, Format] = {
    TensorType.IQ3_XXS: Format(
        "iq3_xxs_signed", pointed.iq3_xxs_signed, (Plane("q", 3),), (_S1, _D), 8, sums=True,
        table=_book(TensorType.IQ3_XXS, signed=True),
    ),
    TensorType.IQ3_S: Format("iq3_s_nibbles", pointed.iq3_s_nibbles, (_Q4,), (_S1, _D), 8, sums=True),
}  # fmt: skip


def plane_vectors(planes: tuple[Plane, ...], tile: Tile) -> int:
    """vec4s that one unit (or superblock head) of a tile takes for these planes."""
    return sum(plane.per_lane(tile.rows) for plane in planes) * tile.row_lanes // 4


def block_vectors(format: Format, tile: Tile) -> int:
    """vec4s of one superblock of a tile."""
    return plane_vectors(format.head, tile) + format.units * plane_vectors(format.unit, tile)


def blocks(format: Format, columns: int) -> int:
    """Superblocks of rows of `columns` elements."""
    return -(-columns // (UNIT * format.units))


def steps(format: Format, columns: int, tile: Tile) -> int:
    """Steps of the inner loop, in each of which every k-lane does a superblock (or, at the end, some have none)."""
    return -(-blocks(format, columns) // tile.k_lanes)


def tile_vectors(format: Format, columns: int, tile: Tile, bias: bool) -> int:
    """vec4s of one whole tile."""
    return (tile.height // 4 if bias else 0) + blocks(format, columns) * block_vectors(format, tile)


def _lay(plane: Plane, values: Words | Halves, tile: Tile, per: int, count: int) -> Words:
    """One plane of [rows, n, words] -> [tiles, superblocks, per, vec4s of the plane * 4] words.

    `per` is how many times the plane comes a superblock; `count` the number of superblocks.
    """
    rows = values.shape[0]
    tiles = -(-rows // tile.height)
    width = max(plane.words, 1)
    full = np.zeros((tiles * tile.height, count * per, width), values.dtype)
    full[:rows] = values.reshape(rows, count * per, width)
    shaped = full.reshape(tiles, tile.row_lanes, tile.rows, count, per, width)
    lanes = shaped.transpose(0, 3, 4, 1, 2, 5).reshape(tiles, count, per, tile.row_lanes, tile.rows * width)
    words = np.ascontiguousarray(lanes).view(np.uint32)
    per_lane = plane.per_lane(tile.rows)
    if per_lane % 4 == 0:
        words = words.reshape(tiles, count, per, tile.row_lanes, per_lane // 4, 4).transpose(0, 1, 2, 4, 3, 5)
    return np.ascontiguousarray(words).reshape(tiles, count, per, -1)


def pack(format: Format, raw: Raw, columns: int, tile: Tile, bias: NDArray[np.float32] | None = None) -> Words:
    """File blocks [rows, row bytes] -> the device stream [tiles, words of a tile], exactly, still quantised.

    Rows past the end are zero blocks.  With a bias, each tile opens with its rows' f32.
    """
    split = format.split(raw)
    count = blocks(format, columns)
    head = [_lay(plane, split[plane.name], tile, 1, count) for plane in format.head]
    unit = [_lay(plane, split[plane.name], tile, format.units, count) for plane in format.unit]
    units = np.concatenate(unit, -1)
    body = units.reshape(*units.shape[:2], -1)
    if head:
        body = np.concatenate([plane[:, :, 0] for plane in head] + [body], -1)
    stream = body.reshape(body.shape[0], -1)
    if bias is not None:
        padded = np.zeros(stream.shape[0] * tile.height, np.float32)
        padded[: len(bias)] = bias
        stream = np.concatenate([padded.view(np.uint32).reshape(stream.shape[0], -1), stream], -1)
    return np.ascontiguousarray(stream)
