"""The formats whose codes name points of a codebook: their exact repacking, and the codebook as kernels read it.

A lookup is cheap on a GPU and a loop over lanes on a processor, so for adapters that compute there IQ3 lies otherwise: the
signs of IQ3_XXS are looked up with the sizes, and IQ3_S is looked up here.

A unit's signs are a word: element k of its eight number l has bit 4 * (2 * (k % 4) + k // 4) + l, so that the signs of
four neighbours lie a byte apart.  Where seven signs tell the eighth, the highest nibble, theirs, holds something else.
"""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamay.quant import LAYOUTS, TensorType
from llamay.quant.codebooks import CODEBOOKS, Fields
from llamay.tensor.webgpu.splits import Halves, Planes, Raw, Words

RAISED = 64  # what a kernel's elements are larger by than the point's, so that none is negative


@cache
def table(type: TensorType, *, signed: bool = False) -> Words:
    """The codebook, a word a point: four bytes of size, or eight nibbles, in the order of codes.

    `signed`: of four elements with each choice of signs, which are four bits above the code.

    A nibble of IQ2 is the bits 0, 1, 4 and 5 of a raised size, of which the others are the same for all three; the
    first four elements have these bits of the bytes, the last four those two above.
    """
    grid = CODEBOOKS[type].grid
    if grid.width == 4:
        negative = np.arange(16 if signed else 1)[:, None, None] >> np.arange(4) & 1
        sizes = grid.points.astype(np.int16)
        raised = RAISED + np.where(negative, -sizes, sizes)
        return raised.astype(np.uint8).view(np.uint32).reshape(-1)
    if min(grid.levels) < 0:
        return _fields(grid.digits, 4)
    bits = grid.points.astype(np.uint8) & np.uint8(0x33)
    return np.ascontiguousarray(bits[:, :4] | bits[:, 4:] << 2).view(np.uint32)[:, 0]


def _fields(values: NDArray[np.integer[Any]], bits: int) -> Words:
    """[..., count] fields of `bits` bits -> [...] words, the first lowest."""
    shifts = (np.arange(values.shape[-1]) * bits).astype(np.uint32)
    words: Words = np.bitwise_or.reduce(values.astype(np.uint32) << shifts, axis=-1)
    return words


def _taken(type: TensorType, raw: Raw) -> tuple[Raw, Fields]:
    """Raw rows as blocks [n, bytes], n counting those of all rows, and what they hold."""
    blocks = raw.reshape(-1, LAYOUTS[type].bytes)
    return blocks, CODEBOOKS[type].fields(blocks)


def _planes(raw: Raw, d: NDArray[np.uint8], **units: Words | Halves) -> Planes:
    """Planes by row: `d` are the bytes of each block's half float, the others [n, units or words] of it."""
    rows = len(raw)
    planes: Planes = {"d": np.ascontiguousarray(d).view(np.uint16).reshape(rows, -1)}
    for name, values in units.items():
        planes[name] = values.reshape(rows, -1) if values.dtype == np.uint16 else values.reshape(rows, -1, values.shape[-1])
    return planes


def _signs(fields: Fields) -> Words:
    """[n, 8]: the word of each unit."""
    bits = np.unpackbits(fields.signs.reshape(-1, 8, 4, 1), axis=-1, bitorder="little")  # [n, unit, eight, element]
    ordered = bits.reshape(-1, 8, 4, 2, 4).transpose(0, 1, 4, 3, 2)  # [.., element % 4, element // 4, eight]
    return np.packbits(ordered.reshape(-1, 8, 32), axis=-1, bitorder="little").view(np.uint32)[..., 0]


def _below(signs: Words, highest: NDArray[np.uint8] | Words) -> Words:
    """Seven signs of each eight, and what the highest nibble holds instead of the others."""
    return signs & np.uint32(0x0FFF_FFFF) | highest.astype(np.uint32) << np.uint32(28)


def _codes(fields: Fields, per_unit: int) -> tuple[Words, NDArray[np.integer[Any]]]:
    """The low bytes of a unit's codes, [n, 8, words]; and the rest of each, [n, 8, codes]."""
    codes = fields.codes.reshape(-1, 8, per_unit)
    return np.ascontiguousarray(codes.astype(np.uint8)).view(np.uint32), codes >> 8


def iq2_xxs(raw: Raw) -> Planes:
    """`s`: seven signs of each eight, and the step."""
    blocks, fields = _taken(TensorType.IQ2_XXS, raw)
    low, _ = _codes(fields, 4)
    return _planes(raw, blocks[:, :2], q=low, s=_below(_signs(fields), fields.steps)[..., None])


def iq2_xs(raw: Raw) -> Planes:
    """`s`: seven signs of each eight, and the ninth bits of the codes.  `t`: a superblock's steps."""
    blocks, fields = _taken(TensorType.IQ2_XS, raw)
    low, ninth = _codes(fields, 4)
    steps = _fields(fields.steps.reshape(-1, 2, 8), 4)
    return _planes(raw, blocks[:, :2], q=low, s=_below(_signs(fields), _fields(ninth, 1))[..., None], t=steps[:, None])


def iq2_s(raw: Raw) -> Planes:
    """`h`: two high bits of each code, and two steps."""
    blocks, fields = _taken(TensorType.IQ2_S, raw)
    low, high = _codes(fields, 4)
    halves = _fields(high, 2) | _fields(fields.steps.reshape(-1, 8, 2), 4) << np.uint32(8)
    return _planes(raw, blocks[:, :2], q=low, s=_signs(fields)[..., None], h=halves.astype(np.uint16))


def iq3_xxs(raw: Raw) -> Planes:
    """`s`: seven signs of each eight, and the step."""
    blocks, fields = _taken(TensorType.IQ3_XXS, raw)
    low, _ = _codes(fields, 8)
    return _planes(raw, blocks[:, :2], q=low, s=_below(_signs(fields), fields.steps)[..., None])


def iq3_xxs_signed(raw: Raw) -> Planes:
    """Each word of `q` has two codes with their signs, twelve bits each, and above them a byte of the last two codes.

    `s`: a superblock's steps.
    """
    blocks, fields = _taken(TensorType.IQ3_XXS, raw)
    signs = np.stack([fields.signs & 15, fields.signs >> 4], -1)
    codes = fields.codes.reshape(-1, 8, 8) | signs.reshape(-1, 8, 8).astype(np.uint32) << np.uint32(8)
    last = codes[..., 6:]
    above = np.concatenate([last & np.uint32(255), _fields(last >> np.uint32(8), 4)[..., None]], -1)
    words = _fields(codes[..., :6].reshape(-1, 8, 3, 2), 20) | above << np.uint32(12)
    return _planes(raw, blocks[:, :2], q=words, s=_steps(fields))


def _steps(fields: Fields) -> Words:
    """[n, 1, 1]: a superblock's eight nibbles."""
    return _fields(fields.steps.reshape(-1, 1, 1, 8), 4)


def iq3_s(raw: Raw) -> Planes:
    """Each word of `q` has three codes of nine bits, and above them what is low of the seventh and of the eighth.

    `h`: four high bits of these two, and the step.
    """
    blocks, fields = _taken(TensorType.IQ3_S, raw)
    codes = fields.codes.reshape(-1, 8, 8).astype(np.uint32)  # [n, unit, code]
    last = codes[..., 6:]
    words = _fields(codes[..., :6].reshape(-1, 8, 2, 3), 9) | last << np.uint32(27)
    halves = _fields(last >> np.uint32(5), 4) | fields.steps.astype(np.uint32) << np.uint32(8)
    return _planes(raw, blocks[:, :2], q=words, s=_signs(fields)[..., None], h=halves.astype(np.uint16))


def iq3_s_nibbles(raw: Raw) -> Planes:
    """What the codes mean: of the sixteen odd numbers from -15 to 15 the place, a nibble.  `s`: a superblock's steps."""
    blocks, fields = _taken(TensorType.IQ3_S, raw)
    upper = CODEBOOKS[TensorType.IQ3_S].grid.digits[fields.codes].reshape(-1, 8, 32) + np.uint8(8)
    negative = np.unpackbits(fields.signs, axis=-1, bitorder="little").reshape(upper.shape)
    nibbles = upper ^ negative * np.uint8(15)
    q = np.ascontiguousarray(nibbles[..., :16] | nibbles[..., 16:] << 4).view(np.uint32)
    return _planes(raw, blocks[:, :2], q=q, s=_steps(fields))


def iq1_s(raw: Raw) -> Planes:
    """`h`: three high bits of each code, the step, and whether elements are shifted down."""
    blocks, fields = _taken(TensorType.IQ1_S, raw)
    low, high = _codes(fields, 4)
    halves = _fields(high, 3) | fields.steps.astype(np.uint32) << np.uint32(12)
    halves |= fields.signs[:, ::4].astype(np.uint32) << np.uint32(15)
    return _planes(raw, blocks[:, :2], q=low, h=halves.astype(np.uint16))


def iq1_m(raw: Raw) -> Planes:
    """`h`: a nibble for each code, its high bits and the shift; `s`: four bits of a unit's two steps, `dt` beside d the other two."""
    blocks, fields = _taken(TensorType.IQ1_M, raw)
    low, high = _codes(fields, 4)
    halves = _fields(high | fields.signs.reshape(-1, 8, 4).astype(np.uint16) << 3, 4).astype(np.uint16)
    pairs = _fields(fields.steps.reshape(-1, 8, 2), 3)
    nibbles = np.ascontiguousarray(blocks[:, 48:]).view("<u2") >> 12
    d = _fields(nibbles, 4) | _fields(pairs >> 4, 2) << np.uint32(16)
    rows = len(raw)
    return {
        "q": low.reshape(rows, -1, 1), "h": halves.reshape(rows, -1), "s": _fields(pairs & 15, 4).reshape(rows, -1, 1),
        "dt": d.reshape(rows, -1, 1),
    }  # fmt: skip
