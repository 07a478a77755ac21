"""The exact repacking of each tensor type's blocks: a file's rows taken apart into the planes that `formats` lays.

Every function takes raw rows [rows, row bytes] and gives the planes its Format names: words [rows, units, words], or
halves [rows, units]; those of a head have a superblock in place of a unit.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from llamay.quant import LAYOUTS, TensorType
from llamay.quant.low import nvfp4_codes, small_floats, threes

Raw = NDArray[np.uint8]
Words = NDArray[np.uint32]
Halves = NDArray[np.uint16]
Planes = dict[str, Words | Halves]

UNIT = 32  # elements of one inner step


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


def float_split(itemsize: int) -> Callable[[Raw], Planes]:
    def split(raw: Raw) -> Planes:
        columns = raw.shape[1] // itemsize
        padding = -columns % UNIT * itemsize
        if padding:
            raw = np.pad(raw, ((0, 0), (0, padding)))
        words = np.ascontiguousarray(raw).view(np.uint32)
        return {"q": words.reshape(raw.shape[0], -1, UNIT * itemsize // 4)}

    return split


def q4_0(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.Q4_0)
    return {"d": _half(b, 0), "q": _words(b, 2, 4)}


def q4_1(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.Q4_1)
    return {"dm": _words(b, 0, 1), "q": _words(b, 4, 4)}


def q5_0(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.Q5_0)
    return {"d": _half(b, 0), "h": _words(b, 2, 1), "q": _words(b, 6, 4)}


def q5_1(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.Q5_1)
    return {"dm": _words(b, 0, 1), "h": _words(b, 4, 1), "q": _words(b, 8, 4)}


def q8_0(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.Q8_0)
    return {"d": _half(b, 0), "q": _words(b, 2, 8)}


def q8_1(raw: Raw) -> Planes:
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


def q2_k(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.Q2_K)
    return {"dm": _words(b, 80, 1), "s": _pairs(b[:, :, :16]), "q": _pack_bits(_units_of(_two_bits(b, 16)), 2)}


def q3_k(raw: Raw) -> Planes:
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


def q4_k(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.Q4_K)
    return {"dm": _words(b, 0, 1), "s": _six_bit_scales(b[:, :, 4:16]), "q": _pack_nibbles(_nibble_units(b[:, :, 16:]))}


def q5_k(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.Q5_K)
    high = (b[:, :, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & np.uint8(1)
    return {
        "dm": _words(b, 0, 1),
        "s": _six_bit_scales(b[:, :, 4:16]),
        "q": _pack_nibbles(_nibble_units(b[:, :, 48:])),
        "h": _pack_bits(_units_of(high), 1),
    }


def q6_k(raw: Raw) -> Planes:
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


def q8_k(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.Q8_K)
    return {"d": _words(b, 0, 1), "q": _words(b, 4, 64).reshape(b.shape[0], -1, 8)}


def iq4_nl(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.IQ4_NL)
    return {"d": _half(b, 0), "q": _words(b, 2, 4)}


def iq4_xs(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.IQ4_XS)
    return {"dh": _words(b, 0, 1), "s": _words(b, 4, 1), "q": _words(b, 8, 32).reshape(b.shape[0], -1, 4)}


def mxfp4(raw: Raw) -> Planes:
    """The exponents of two units make a half."""
    b = _blocks(raw, TensorType.MXFP4)
    exponents = np.pad(b[:, :, 0], ((0, 0), (0, b.shape[1] % 2)))
    codes = _rising(np.concatenate([b[:, :, 1:] & 15, b[:, :, 1:] >> 4], -1))
    return {"s": np.ascontiguousarray(exponents).view(np.uint16), "q": _even(_pack_nibbles(codes))}


def _rising(codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Codes of sign and size as codes that rise with their values: nibbles of two's complement from -7 to 7."""
    return np.where(codes < 8, codes, (np.uint8(24) - codes) & np.uint8(15))


def _even(words: Words) -> Words:
    """[rows, units, words], with a unit of zeros where their number is odd."""
    return np.pad(words, ((0, 0), (0, words.shape[1] % 2), (0, 0)))


def nvfp4(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.NVFP4)
    codes = nvfp4_codes(b.reshape(-1, b.shape[-1])).reshape(b.shape[0], -1, UNIT)
    scales = _floats_of_a_byte()[b[:, :, :4]].view(np.uint16).reshape(b.shape[0], -1)
    return {"s": scales, "q": _pack_nibbles(_rising(codes))}


@cache
def _floats_of_a_byte() -> NDArray[np.uint8]:
    """NVFP4's scales by their code as what their f32 has above bit 20, the exponent less 116: none is below the normal ones."""
    words = small_floats(np.arange(256, dtype=np.uint8)).view(np.uint32) >> 20
    return np.where(words > 0, words - np.uint32(116 << 3), words).astype(np.uint8)


def q1_0(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.Q1_0)
    return {"d": _half(b, 0), "q": _words(b, 2, 4).reshape(b.shape[0], -1, 1)}


def q2_0(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.Q2_0)
    return {"d": _half(b, 0), "q": _words(b, 2, 4).reshape(b.shape[0], -1, 2)}


def tq2_0(raw: Raw) -> Planes:
    b = _blocks(raw, TensorType.TQ2_0)
    return {"d": _half(b, 64), "q": _pack_bits(_units_of(_two_bits(b, 0)), 2)}


def tq1_0(raw: Raw) -> Planes:
    """Three times ten of a unit's elements are a fraction of 16 bits in base 3; the last two have two bits each."""
    b = _blocks(raw, TensorType.TQ1_0)
    q = threes(b.reshape(-1, b.shape[-1])).reshape(b.shape[0], -1, UNIT)
    digits = q[..., :30].reshape(*q.shape[:2], 3, 10).astype(np.uint32)
    whole = (digits * np.uint32(3) ** np.arange(9, -1, -1, dtype=np.uint32)).sum(-1, dtype=np.uint32)
    fractions = ((whole * np.uint32(1 << 16) + np.uint32(3**10 - 1)) // np.uint32(3**10)).astype(np.uint16)
    first = np.ascontiguousarray(fractions[..., :2]).view(np.uint32)
    rest = q[..., 30:].reshape(b.shape[0], -1, 16).astype(np.uint32) << np.arange(0, 32, 2, dtype=np.uint32)
    return {"d": _half(b, 52), "q": first, "h": fractions[..., 2], "r": np.bitwise_or.reduce(rest, -1)[..., None]}
