"""Reading the K formats: blocks of 256 elements in groups of 16 or 32 with scales of their own.

Every `read_*` fills float32 `out` [blocks, 256] from uint8 `blocks` [blocks, bytes].
Products are taken in ggml's order (block scale times group scale, times the quant,
minus the group's minimum), so the values are the same bit for bit.
"""

import numpy as np

from llamay.quant import k_write
from llamay.quant.codec import Bytes, Codec, Floats
from llamay.quant.layouts import TensorType
from llamay.quant.simple import halves


def scales_and_minima(packed: Bytes) -> tuple[Bytes, Bytes]:
    """12 bytes a block -> 8 six-bit scales and 8 six-bit minima, each uint8 [blocks, 8]."""
    first, second, third = packed[:, :4], packed[:, 4:8], packed[:, 8:]
    scales = np.concatenate([first & 63, third & 15 | first >> 6 << 4], axis=1)
    minima = np.concatenate([second & 63, third >> 4 | second >> 6 << 4], axis=1)
    return scales, minima


def two_bits(packed: Bytes) -> Bytes:
    """uint8 [blocks, 64] -> [blocks, 256]: in each half, byte l holds elements l, l+32, l+64, l+96."""
    packed = np.ascontiguousarray(packed).reshape(-1, 2, 32)
    q = np.empty((packed.shape[0], 2, 4, 32), np.uint8)
    for j in range(4):
        np.right_shift(packed, 2 * j, out=q[:, :, j])
    q &= 3
    return q.reshape(-1, 256)


def four_bits(packed: Bytes, run: int) -> Bytes:
    """uint8 [blocks, 128] -> [blocks, 256]: each `run` bytes hold `run` low nibbles, then as many high ones."""
    packed = np.ascontiguousarray(packed).reshape(-1, 128 // run, run)
    q = np.empty((packed.shape[0], 128 // run, 2, run), np.uint8)
    np.bitwise_and(packed, 15, out=q[:, :, 0])
    np.right_shift(packed, 4, out=q[:, :, 1])
    return q.reshape(-1, 256)


def bit_planes(packed: Bytes) -> Bytes:
    """uint8 [blocks, 32] -> 0 or 1 [blocks, 256]: bit j of byte l belongs to element 32 j + l."""
    packed = np.ascontiguousarray(packed)
    q = np.empty((packed.shape[0], 8, 32), np.uint8)
    for j in range(8):
        np.right_shift(packed, j, out=q[:, j])
    q &= 1
    return q.reshape(-1, 256)


def _affine(q: Bytes, out: Floats, scale: Floats, minimum: Floats) -> None:
    """out = scale * q - minimum, with scale and minimum [blocks, groups]."""
    out[...] = q
    grouped = out.reshape(*scale.shape, -1)
    grouped *= scale[:, :, None]
    grouped -= minimum[:, :, None]


def _scaled(q: Bytes, out: Floats, scale: Floats) -> None:
    """out = scale * q as int8, with scale [blocks, groups]."""
    out[...] = q.view(np.int8)
    grouped = out.reshape(*scale.shape, -1)
    grouped *= scale[:, :, None]


def read_q2_k(blocks: Bytes, out: Floats) -> None:
    scales = blocks[:, :16]
    _affine(two_bits(blocks[:, 16:80]), out, halves(blocks, 80) * (scales & 15), halves(blocks, 82) * (scales >> 4))


def read_q3_k(blocks: Bytes, out: Floats) -> None:
    packed = blocks[:, 96:108]
    low = np.concatenate([packed[:, :8] & 15, packed[:, :8] >> 4], axis=1)
    high = np.concatenate([packed[:, 8:] >> shift & 3 for shift in (0, 2, 4, 6)], axis=1)
    scales = (low | high << 4).view(np.int8) - np.int8(32)
    high_bit = bit_planes(blocks[:, :32])
    high_bit <<= 2
    q = two_bits(blocks[:, 32:96])
    q |= high_bit
    q -= 4
    _scaled(q, out, halves(blocks, 108) * scales)


def read_q4_k(blocks: Bytes, out: Floats) -> None:
    scales, minima = scales_and_minima(blocks[:, 4:16])
    _affine(four_bits(blocks[:, 16:], 32), out, halves(blocks, 0) * scales, halves(blocks, 2) * minima)


def read_q5_k(blocks: Bytes, out: Floats) -> None:
    scales, minima = scales_and_minima(blocks[:, 4:16])
    high = bit_planes(blocks[:, 16:48])
    high <<= 4
    q = four_bits(blocks[:, 48:], 32)
    q |= high
    _affine(q, out, halves(blocks, 0) * scales, halves(blocks, 2) * minima)


def read_q6_k(blocks: Bytes, out: Floats) -> None:
    high = two_bits(blocks[:, 128:192])
    high <<= 4
    q = four_bits(blocks[:, :128], 64)
    q |= high
    q -= 32
    _scaled(q, out, halves(blocks, 208) * blocks[:, 192:208].view(np.int8))


def read_q8_k(blocks: Bytes, out: Floats) -> None:
    """The sums of 16 at the end are an aid for dot products: they do not enter the values."""
    np.multiply(blocks[:, 4:260].view(np.int8), blocks[:, :4].view("<f4"), out=out)


CODECS = {
    TensorType.Q2_K: Codec(read_q2_k, k_write.write_q2_k),
    TensorType.Q3_K: Codec(read_q3_k, k_write.write_q3_k),
    TensorType.Q4_K: Codec(read_q4_k, k_write.write_q4_k),
    TensorType.Q5_K: Codec(read_q5_k, k_write.write_q5_k),
    TensorType.Q6_K: Codec(read_q6_k, k_write.write_q6_k),
    TensorType.Q8_K: Codec(read_q8_k, k_write.write_q8_k),
}
