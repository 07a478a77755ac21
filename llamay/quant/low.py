"""Formats of one bit, of three values and of four, and NVFP4, whose groups of 16 have small floats for scales.

As in `simple`: a `read_*` fills float32 `out` [blocks, elements], a `write_*` makes blocks by least squares or nearly so.
"""

import numpy as np

from llamay.quant.codec import Bytes, Codec, Floats
from llamay.quant.fours import FLOATS, nearest
from llamay.quant.k import two_bits
from llamay.quant.layouts import TensorType
from llamay.quant.simple import half_bytes, halves, inverse

_POWERS = np.array([1, 3, 9, 27, 81], np.uint8)


def read_q1_0(blocks: Bytes, out: Floats) -> None:
    bits = np.unpackbits(np.ascontiguousarray(blocks[:, 2:]), axis=1, bitorder="little")
    np.multiply((2 * bits).view(np.int8) - np.int8(1), halves(blocks, 0), out=out)


def write_q1_0(values: Floats) -> Bytes:
    scale = np.abs(values).mean(axis=1, keepdims=True)
    return np.concatenate([half_bytes(scale), np.packbits(values >= 0, axis=1, bitorder="little")], axis=1)


def read_q2_0(blocks: Bytes, out: Floats) -> None:
    q = blocks[:, 2:, None] >> np.arange(0, 8, 2, dtype=np.uint8) & 3
    np.multiply(q.reshape(len(blocks), -1).view(np.int8) - np.int8(1), halves(blocks, 0), out=out)


def write_q2_0(values: Floats) -> Bytes:
    scale, q = _three(values)
    packed = np.bitwise_or.reduce(q.reshape(len(q), -1, 4) << np.arange(0, 8, 2, dtype=np.uint8), axis=2)
    return np.concatenate([half_bytes(scale), packed], axis=1)


def read_tq2_0(blocks: Bytes, out: Floats) -> None:
    np.multiply(two_bits(blocks[:, :64]).view(np.int8) - np.int8(1), halves(blocks, 64), out=out)


def write_tq2_0(values: Floats) -> Bytes:
    scale, q = _three(values)
    shifts = np.arange(0, 8, 2, dtype=np.uint8)[:, None]
    packed = np.bitwise_or.reduce(q.reshape(-1, 2, 4, 32) << shifts, axis=2)
    return np.concatenate([packed.reshape(len(q), 64), half_bytes(scale)], axis=1)


def threes(blocks: Bytes) -> Bytes:
    """0, 1 or 2 for each element of TQ1_0 blocks, [blocks, 256]: five to a byte, by its fraction in base 3."""
    parts = []
    for start, stop, count in ((0, 32, 5), (32, 48, 5), (48, 52, 4)):
        fractions = blocks[:, None, start:stop] * _POWERS[:count, None]
        parts.append((fractions.astype(np.uint16) * np.uint16(3) >> 8).astype(np.uint8).reshape(len(blocks), -1))
    return np.concatenate(parts, axis=1)


def read_tq1_0(blocks: Bytes, out: Floats) -> None:
    np.multiply(threes(blocks).view(np.int8) - np.int8(1), halves(blocks, 52), out=out)


def write_tq1_0(values: Floats) -> Bytes:
    scale, q = _three(values)
    parts = []
    for start, stop, count in ((0, 160, 5), (160, 240, 5), (240, 256, 4)):
        digits = q[:, start:stop].reshape(len(q), count, -1).astype(np.uint16)
        whole = (digits * np.array([81, 27, 9, 3, 1], np.uint16)[:count, None]).sum(axis=1)
        parts.append(((whole * 256 + 242) // 243).astype(np.uint8))
    return np.concatenate([*parts, half_bytes(scale)], axis=1)


def _three(values: Floats) -> tuple[Floats, Bytes]:
    """d [blocks, 1] and q of 0, 1, 2 with values ~ d * (q - 1): what is small becomes nothing."""
    size = np.abs(values)
    kept = size > 0.6 * np.sqrt(np.square(values, dtype=np.float64).mean(axis=1, keepdims=True))
    scale = (size * kept).sum(axis=1, keepdims=True) / np.maximum(kept.sum(axis=1, keepdims=True), 1)
    return scale.astype(np.float32), (1 + np.sign(values) * kept).astype(np.uint8)


def small_floats(codes: Bytes) -> Floats:
    """Half of what a byte of four bits of exponent and three of fraction says; 0x7f, no number, is nothing."""
    exponent, fraction = (codes >> 3 & 15).astype(np.int32), (codes & 7).astype(np.float32)
    found = np.ldexp(fraction + np.where(exponent > 0, np.float32(8), np.float32(0)), np.maximum(exponent, 1) - 11)
    return np.where(codes == 0x7F, np.float32(0), found).astype(np.float32)


_SMALL = small_floats(np.arange(127, dtype=np.uint8))


def nvfp4_codes(blocks: Bytes) -> Bytes:
    """[blocks, 64] codes: eight bytes for sixteen elements, the low nibbles first."""
    packed = blocks[:, 4:].reshape(-1, 4, 8)
    return np.concatenate([packed & 15, packed >> 4], axis=2).reshape(-1, 64)


def read_nvfp4(blocks: Bytes, out: Floats) -> None:
    np.take(FLOATS, nvfp4_codes(blocks), out=out)
    grouped = out.reshape(-1, 4, 16)
    grouped *= small_floats(blocks[:, :4])[:, :, None]


def write_nvfp4(values: Floats) -> Bytes:
    groups = values.reshape(-1, 16)
    scales = nearest(np.abs(groups).max(axis=1, keepdims=True) / np.float32(12), _SMALL)
    codes = nearest(groups * inverse(_SMALL[scales]), FLOATS)
    packed = (codes[:, :8] | codes[:, 8:] << 4).view(np.uint8)
    return np.concatenate([scales.reshape(-1, 4), packed.reshape(len(values), -1)], axis=1)


CODECS = {
    TensorType.TQ1_0: Codec(read_tq1_0, write_tq1_0),
    TensorType.TQ2_0: Codec(read_tq2_0, write_tq2_0),
    TensorType.NVFP4: Codec(read_nvfp4, write_nvfp4),
    TensorType.Q1_0: Codec(read_q1_0, write_q1_0),
    TensorType.Q2_0: Codec(read_q2_0, write_q2_0),
}
