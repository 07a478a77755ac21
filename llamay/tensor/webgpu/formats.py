"""How each tensor type lies on the device: its planes of words, and the exact repacking of a file's blocks.

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

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llamay.quant import LAYOUTS, TensorType

Raw = NDArray[np.uint8]
Words = NDArray[np.uint32]
Halves = NDArray[np.uint16]
Planes = dict[str, Words | Halves]

UNIT = 32  # elements of one inner step


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


def _words(raw: Raw, start: int, count: int) -> Words:
    """Bytes [start, start + 4 * count) of each block as u32, from raw [rows, blocks, bytes]."""
    return np.ascontiguousarray(raw[:, :, start : start + 4 * count]).view(np.uint32)


def _half(raw: Raw, start: int) -> Halves:
    return np.ascontiguousarray(raw[:, :, start : start + 2]).view(np.uint16)[..., 0]


def _pack_bits(values: NDArray[np.uint8], bits: int) -> Words:
    """[rows, units, 32] values of `bits` bits -> words; element k at bit (k % (32 / bits)) * bits of word k // (32 / bits)."""
    per_word = 32 // bits
    shaped = values.reshape(*values.shape[:-1], UNIT // per_word, per_word).astype(np.uint32)
    shifts = (np.arange(per_word, dtype=np.uint32) * np.uint32(bits)).astype(np.uint32)
    packed: Words = np.bitwise_or.reduce(shaped << shifts, axis=-1)
    return packed


def _pack_nibbles(values: NDArray[np.uint8]) -> Words:
    """[rows, units, 32] nibbles -> 4 words; byte b holds element b low and element b + 16 high."""
    joined = values[..., :16] | (values[..., 16:] << 4)
    return np.ascontiguousarray(joined).view(np.uint32)


def _blocks(raw: Raw, type: TensorType) -> Raw:
    size = LAYOUTS[type].bytes
    return raw.reshape(raw.shape[0], raw.shape[1] // size, size)


def _float_split(itemsize: int) -> Callable[[Raw], Planes]:
    def split(raw: Raw) -> Planes:
        columns = raw.shape[1] // itemsize
        padding = -columns % UNIT * itemsize
        if padding:
            raw = np.pad(raw, ((0, 0), (0, padding)))
        words = np.ascontiguousarray(raw).view(np.uint32)
        return {"q": words.reshape(raw.shape[0], -1, UNIT * itemsize // 4)}

    return split


def _q4_0(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.Q4_0)
    return {"d": _half(b, 0), "q": _words(b, 2, 4)}


def _q4_1(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.Q4_1)
    return {"dm": _words(b, 0, 1), "q": _words(b, 4, 4)}


def _q5_0(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.Q5_0)
    return {"d": _half(b, 0), "h": _words(b, 2, 1), "q": _words(b, 6, 4)}


def _q5_1(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.Q5_1)
    return {"dm": _words(b, 0, 1), "h": _words(b, 4, 1), "q": _words(b, 8, 4)}


def _q8_0(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.Q8_0)
    return {"d": _half(b, 0), "q": _words(b, 2, 8)}


def _q8_1(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.Q8_1)
    return {"d": _half(b, 0), "q": _words(b, 4, 8)}


def _units_of(values: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """[rows, blocks, 8, 32] -> [rows, blocks * 8, 32]."""
    return values.reshape(values.shape[0], -1, UNIT)


def _two_bits(b: Raw, start: int) -> NDArray[np.uint8]:
    """The 2-bit quants of Q2_K and Q3_K: bytes [n * 32 + l], shift 2j is unit 4n + j."""
    qs = b[:, :, start : start + 64].reshape(*b.shape[:2], 2, 1, 32)
    shifts = np.array([0, 2, 4, 6], np.uint8)[:, None]
    values: NDArray[np.uint8] = (qs >> shifts) & np.uint8(3)
    return values.reshape(*b.shape[:2], 8, 32)


def _pairs(scales: NDArray[np.uint8]) -> Halves:
    """[rows, blocks, 16] bytes -> [rows, blocks * 8] halves, the unit's first scale in the low byte."""
    return np.ascontiguousarray(scales).view(np.uint16).reshape(scales.shape[0], -1)


def _q2_k(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.Q2_K)
    return {"dm": _words(b, 80, 1), "s": _pairs(b[:, :, :16]), "q": _pack_bits(_units_of(_two_bits(b, 16)), 2)}


def _q3_k(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.Q3_K)
    bits = np.arange(8, dtype=np.uint8)[:, None]
    high = (b[:, :, None, :32] >> bits) & np.uint8(1)  # [rows, blocks, 8, 32]
    packed = b[:, :, 96:108]
    low = np.concatenate([packed[:, :, :8] & 15, packed[:, :, :8] >> 4], -1)
    two = (packed[:, :, None, 8:] >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & np.uint8(3)
    scales = (low | (two.reshape(*low.shape) << 4)) - np.uint8(32)  # as i8
    return {
        "d": _half(b, 108),
        "s": _pairs(scales),
        "q": _pack_bits(_units_of(_two_bits(b, 32)), 2),
        "h": _pack_bits(_units_of(high), 1),
    }


def _six_bit_scales(s: Raw) -> Halves:
    """The 12 bytes of Q4_K and Q5_K -> [rows, blocks * 8] halves: scale in the low byte, minimum in the high."""
    scale = np.concatenate([s[..., 0:4] & 63, (s[..., 8:12] & 15) | ((s[..., 0:4] >> 6) << 4)], -1)
    least = np.concatenate([s[..., 4:8] & 63, (s[..., 8:12] >> 4) | ((s[..., 4:8] >> 6) << 4)], -1)
    return np.ascontiguousarray(np.stack([scale, least], -1)).view(np.uint16).reshape(s.shape[0], -1)


def _nibble_units(qs: Raw) -> NDArray[np.uint8]:
    """Q4_K's and Q5_K's 128 bytes: chunk c of 32 bytes holds unit 2c low and unit 2c + 1 high."""
    chunks = qs.reshape(*qs.shape[:2], 4, 32)
    return _units_of(np.stack([chunks & 15, chunks >> 4], 3))


def _q4_k(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.Q4_K)
    return {"dm": _words(b, 0, 1), "s": _six_bit_scales(b[:, :, 4:16]), "q": _pack_nibbles(_nibble_units(b[:, :, 16:]))}


def _q5_k(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.Q5_K)
    high = (b[:, :, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & np.uint8(1)
    return {
        "dm": _words(b, 0, 1),
        "s": _six_bit_scales(b[:, :, 4:16]),
        "q": _pack_nibbles(_nibble_units(b[:, :, 48:])),
        "h": _pack_bits(_units_of(high), 1),
    }


def _q6_k(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.Q6_K)
    ql = b[:, :, :128].reshape(*b.shape[:2], 2, 2, 32)  # [.., half n, 0/1, l]
    low = np.stack([ql & 15, ql >> 4], 3).reshape(*b.shape[:2], 8, 32)  # unit 4n + 2 * high + (0/1)
    qh = b[:, :, 128:192].reshape(*b.shape[:2], 2, 1, 32)
    high = ((qh >> np.array([0, 2, 4, 6], np.uint8)[:, None]) & np.uint8(3)).reshape(*b.shape[:2], 8, 32)
    return {
        "d": _half(b, 208),
        "s": _pairs(b[:, :, 192:208]),
        "q": _pack_nibbles(_units_of(low)),
        "h": _pack_bits(_units_of(high), 2),
    }


def _q8_k(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.Q8_K)
    return {"d": _words(b, 0, 1), "q": _words(b, 4, 64).reshape(b.shape[0], -1, 8)}


_D, _DM, _S, _Q4, _Q8 = Plane("d", 0), Plane("dm", 1), Plane("s", 0), Plane("q", 4), Plane("q", 8)

FORMATS: dict[TensorType, Format] = {
    TensorType.F32: Format("f32", _float_split(4), unit=(Plane("q", 32),)),
    TensorType.F16: Format("f16", _float_split(2), unit=(Plane("q", 16),)),
    TensorType.BF16: Format("bf16", _float_split(2), unit=(Plane("q", 16),)),
    TensorType.Q4_0: Format("q4_0", _q4_0, unit=(_Q4, _D), sums=True),
    TensorType.Q4_1: Format("q4_1", _q4_1, unit=(_Q4, _DM), sums=True),
    TensorType.Q5_0: Format("q5_0", _q5_0, unit=(_Q4, Plane("h", 1), _D), sums=True),
    TensorType.Q5_1: Format("q5_1", _q5_1, unit=(_Q4, Plane("h", 1), _DM), sums=True),
    TensorType.Q8_0: Format("q8_0", _q8_0, unit=(_Q8, _D)),
    TensorType.Q8_1: Format("q8_1", _q8_1, unit=(_Q8, _D)),
    TensorType.Q2_K: Format("q2_k", _q2_k, (Plane("q", 2), _S), (_DM,), units=8, group=16, sums=True),
    TensorType.Q3_K: Format("q3_k", _q3_k, (Plane("q", 2), Plane("h", 1), _S), (_D,), units=8, group=16, sums=True),
    TensorType.Q4_K: Format("q4_k", _q4_k, (_Q4, _S), (_DM,), units=8, sums=True),
    TensorType.Q5_K: Format("q5_k", _q5_k, (_Q4, Plane("h", 1), _S), (_DM,), units=8, sums=True),
    TensorType.Q6_K: Format("q6_k", _q6_k, (_Q4, Plane("h", 2), _S), (_D,), units=8, group=16, sums=True),
    TensorType.Q8_K: Format("q8_k", _q8_k, (_Q8,), (Plane("d", 1),), units=8),
}


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


def pack(type: TensorType, raw: Raw, columns: int, tile: Tile, bias: NDArray[np.float32] | None = None) -> Words:
    """File blocks [rows, row bytes] -> the device stream [tiles, words of a tile], exactly, still quantised.

    Rows past the end are zero blocks.  With a bias, each tile opens with its rows' f32.
    """
    format = FORMATS[type]
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
