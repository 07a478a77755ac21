"""Making the K formats: blocks of 256 elements in groups of 16 or 32 with scales of their own.

Every `write_*` returns uint8 [blocks, bytes] of float32 `values` [blocks, 256]; the packing
is the inverse of that in `k`.
"""

import numpy as np

from llamay.quant import search
from llamay.quant.codec import Bytes, Floats
from llamay.quant.simple import half_bytes, inverse


def _pack_two_bits(q: Bytes) -> Bytes:
    a, b, c, d = np.moveaxis(q.reshape(-1, 2, 4, 32) & 3, 2, 0)
    packed: Bytes = a | b << 2 | c << 4 | d << 6
    return packed.reshape(-1, 64)


def _pack_four_bits(q: Bytes, run: int) -> Bytes:
    low, high = np.moveaxis(q.reshape(-1, 128 // run, 2, run) & 15, 2, 0)
    packed: Bytes = low | high << 4
    return packed.reshape(-1, 128)


def _pack_bit(q: Bytes, bit: int) -> Bytes:
    """One bit of q: that of element 32 j + l becomes bit j of byte l."""
    shifts = np.arange(8, dtype=np.uint8)[:, None]
    packed: Bytes = np.bitwise_or.reduce((q.reshape(-1, 8, 32) >> bit & 1) << shifts, axis=1)
    return packed


def _pack_scales_and_minima(scales: Bytes, minima: Bytes) -> Bytes:
    first = scales[:, :4] | scales[:, 4:] >> 4 << 6
    second = minima[:, :4] | minima[:, 4:] >> 4 << 6
    third = scales[:, 4:] & 15 | minima[:, 4:] << 4
    return np.concatenate([first, second, third], axis=1)


def _ranged(values: Floats, groups: int, top: int, code_top: int) -> tuple[Floats, Floats, Bytes, Bytes, Bytes]:
    """d, dmin [blocks, 1], the codes of scales and minima [blocks, groups], and q [blocks, 256]."""
    x = values.reshape(len(values), groups, -1)
    scales, minima = search.ranged_scales(x, top)
    d, scale_codes = search.codes(scales, 0, code_top)
    e, low_codes = search.codes(minima, 0, code_top)
    d, e = search.refit_ranged(x, d * scale_codes, e * low_codes, top, scale_codes, low_codes)
    q = search.ranged_quants(x, d * scale_codes, e * low_codes, top)
    return d, e, scale_codes.astype(np.uint8), low_codes.astype(np.uint8), q


def _signed(values: Floats, half: int, code_half: int) -> tuple[Floats, search.Signs, Bytes]:
    """d [blocks, 1], the codes of the 16 scales [blocks, 16], and q + half [blocks, 256]."""
    x = values.reshape(len(values), 16, 16)
    d, codes = search.codes(search.signed_scales(x, half), -code_half, code_half - 1)
    d = search.refit_signed(x, d * codes, half, codes)
    q = search.signed_quants(x, d * codes, half)
    return d, codes.astype(np.int8), (q + np.int8(half)).view(np.uint8)


def write_q2_k(values: Floats) -> Bytes:
    d, e, scales, minima, q = _ranged(values, 16, 3, 15)
    return np.concatenate([scales | minima << 4, _pack_two_bits(q), half_bytes(d), half_bytes(e)], axis=1)


def write_q3_k(values: Floats) -> Bytes:
    d, codes, q = _signed(values, 4, 32)
    six = (codes + np.int8(32)).view(np.uint8)
    low = six[:, :8] & 15 | six[:, 8:] << 4
    fours = (six >> 4).reshape(-1, 4, 4)
    high = fours[:, 0] | fours[:, 1] << 2 | fours[:, 2] << 4 | fours[:, 3] << 6
    return np.concatenate([_pack_bit(q, 2), _pack_two_bits(q), low, high, half_bytes(d)], axis=1)


def write_q4_k(values: Floats) -> Bytes:
    d, e, scales, minima, q = _ranged(values, 8, 15, 63)
    head = [half_bytes(d), half_bytes(e), _pack_scales_and_minima(scales, minima)]
    return np.concatenate([*head, _pack_four_bits(q, 32)], axis=1)


def write_q5_k(values: Floats) -> Bytes:
    d, e, scales, minima, q = _ranged(values, 8, 31, 63)
    head = [half_bytes(d), half_bytes(e), _pack_scales_and_minima(scales, minima)]
    return np.concatenate([*head, _pack_bit(q, 4), _pack_four_bits(q, 32)], axis=1)


def write_q6_k(values: Floats) -> Bytes:
    d, codes, q = _signed(values, 32, 128)
    return np.concatenate(
        [_pack_four_bits(q, 64), _pack_two_bits((q >> 4).view(np.uint8)), codes.view(np.uint8), half_bytes(d)], axis=1
    )


def write_q8_k(values: Floats) -> Bytes:
    """The value largest in size becomes -127 or 127; sums of 16 quants follow the quants."""
    largest = np.take_along_axis(values, np.abs(values).argmax(axis=1, keepdims=True), axis=1)
    unit = inverse(largest / np.float32(-127))
    q = np.minimum(np.rint(values * unit), 127).astype(np.int8)
    sums = q.reshape(-1, 16, 16).sum(axis=2, dtype=np.int16)
    scale = np.ascontiguousarray(inverse(unit), dtype="<f4")
    return np.concatenate([scale.view(np.uint8), q.view(np.uint8), sums.astype("<i2").view(np.uint8)], axis=1)
