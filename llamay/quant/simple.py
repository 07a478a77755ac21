"""Formats whose blocks have one scale: plain floats and the 32-element blocks.

Every `read_*` fills float32 `out` [blocks, elements] from uint8 `blocks` [blocks, bytes];
every `write_*` returns the blocks of float32 `values` [blocks, elements].  Rounding is
that of ggml's reference quantisers, so the bytes are the same.
"""

import numpy as np
from numpy.typing import NDArray

from llamay.quant.codec import Bytes, Codec, Floats
from llamay.quant.layouts import TensorType


def halves(blocks: Bytes, start: int) -> Floats:
    """The half floats at byte `start` of every block as float32 [blocks, 1]."""
    return blocks[:, start : start + 2].view("<f2").astype(np.float32)


def half_bytes(values: Floats) -> Bytes:
    """float32 [blocks, 1] -> little-endian half floats, uint8 [blocks, 2]; too large becomes inf."""
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(values, dtype="<f2").view(np.uint8)


def nibbles(packed: Bytes) -> Bytes:
    """uint8 [blocks, 16] -> [blocks, 32]: the low nibbles, then the high ones."""
    q = np.empty((packed.shape[0], 2, 16), np.uint8)
    packed = np.ascontiguousarray(packed)
    np.bitwise_and(packed, 15, out=q[:, 0])
    np.right_shift(packed, 4, out=q[:, 1])
    return q.reshape(-1, 32)


def five_bits(packed: Bytes, high: Bytes) -> Bytes:
    """Nibbles [blocks, 16] and fifth bits [blocks, 4] -> uint8 [blocks, 32] below 32."""
    q = nibbles(packed)
    fifth = np.unpackbits(np.ascontiguousarray(high), axis=1, bitorder="little")
    fifth <<= 4
    q |= fifth
    return q


def read_f32(blocks: Bytes, out: Floats) -> None:
    out[...] = blocks.view("<f4")


def read_f16(blocks: Bytes, out: Floats) -> None:
    """Exact for every half; a NaN turns quiet and keeps sign and payload on every processor."""
    half = blocks.view("<f2")
    out[...] = half
    size = blocks.view("<u2") & 0x7FFF
    if size.max() > 0x7C00:
        nan = size > 0x7C00
        bits = half[nan].view("<u2").astype(np.uint32)
        out[nan] = ((bits & 0x8000) << 16 | 0x7FC00000 | (bits & 0x3FF) << 13).view(np.float32)


def read_bf16(blocks: Bytes, out: Floats) -> None:
    bits = out.view(np.uint32)
    bits[...] = blocks.view("<u2")
    bits <<= 16


def read_q4_0(blocks: Bytes, out: Floats) -> None:
    q = nibbles(blocks[:, 2:])
    q -= 8
    out[...] = q.view(np.int8)
    out *= halves(blocks, 0)


def read_q4_1(blocks: Bytes, out: Floats) -> None:
    out[...] = nibbles(blocks[:, 4:])
    out *= halves(blocks, 0)
    out += halves(blocks, 2)


def read_q5_0(blocks: Bytes, out: Floats) -> None:
    q = five_bits(blocks[:, 6:], blocks[:, 2:6])
    q -= 16
    out[...] = q.view(np.int8)
    out *= halves(blocks, 0)


def read_q5_1(blocks: Bytes, out: Floats) -> None:
    out[...] = five_bits(blocks[:, 8:], blocks[:, 4:8])
    out *= halves(blocks, 0)
    out += halves(blocks, 2)


def read_q8_0(blocks: Bytes, out: Floats) -> None:
    np.multiply(blocks[:, 2:].view(np.int8), halves(blocks, 0), out=out)


def read_q8_1(blocks: Bytes, out: Floats) -> None:
    """The second half float is d * sum(q), an aid for dot products: it does not enter the values."""
    np.multiply(blocks[:, 4:].view(np.int8), halves(blocks, 0), out=out)


def write_f32(values: Floats) -> Bytes:
    return np.ascontiguousarray(values, dtype="<f4").view(np.uint8)


def write_f16(values: Floats) -> Bytes:
    return half_bytes(values)


def write_bf16(values: Floats) -> Bytes:
    """Round to nearest even; a NaN stays a NaN (made quiet)."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    rounded = (bits + (((bits >> 16) & 1) + 0x7FFF).astype(np.uint32)) >> 16
    nan = (bits & 0x7FFFFFFF) > 0x7F800000
    high: NDArray[np.uint32] = np.where(nan, bits >> 16 | 64, rounded)
    return high.astype(np.uint16).view(np.uint8)


def inverse(scale: Floats) -> Floats:
    """1 / scale, and 0 where the scale is 0."""
    with np.errstate(divide="ignore", over="ignore"):
        return np.where(scale == 0, np.float32(0), np.float32(1) / scale)


def _signed(values: Floats, bits: int) -> tuple[Floats, Bytes]:
    """d and q [blocks, 32] with values ~ d * (q - 2**(bits-1)); the value largest in size is met exactly."""
    largest = np.take_along_axis(values, np.abs(values).argmax(axis=1, keepdims=True), axis=1)
    half = 1 << (bits - 1)
    scale = largest / np.float32(-half)
    q = np.trunc(values * inverse(scale) + np.float32(half + 0.5))
    return scale, np.clip(q, 0, 2 * half - 1).astype(np.uint8)


def _ranged(values: Floats, bits: int) -> tuple[Floats, Floats, Bytes]:
    """d, m and q [blocks, 32] with values ~ d * q + m; both ends of the range are met."""
    low, high = values.min(axis=1, keepdims=True), values.max(axis=1, keepdims=True)
    top = (1 << bits) - 1
    scale = (high - low) / np.float32(top)
    q = np.trunc((values - low) * inverse(scale) + np.float32(0.5))
    return scale, low, np.clip(q, 0, top).astype(np.uint8)


def _pack_nibbles(q: Bytes) -> Bytes:
    return (q[:, :16] & 15 | q[:, 16:] << 4).view(np.uint8)


def _pack_fifth(q: Bytes) -> Bytes:
    return np.packbits(q >> 4, axis=1, bitorder="little")


def write_q4_0(values: Floats) -> Bytes:
    scale, q = _signed(values, 4)
    return np.concatenate([half_bytes(scale), _pack_nibbles(q)], axis=1)


def write_q4_1(values: Floats) -> Bytes:
    scale, low, q = _ranged(values, 4)
    return np.concatenate([half_bytes(scale), half_bytes(low), _pack_nibbles(q)], axis=1)


def write_q5_0(values: Floats) -> Bytes:
    scale, q = _signed(values, 5)
    return np.concatenate([half_bytes(scale), _pack_fifth(q), _pack_nibbles(q)], axis=1)


def write_q5_1(values: Floats) -> Bytes:
    scale, low, q = _ranged(values, 5)
    return np.concatenate([half_bytes(scale), half_bytes(low), _pack_fifth(q), _pack_nibbles(q)], axis=1)


def _eight_bits(values: Floats) -> tuple[Floats, NDArray[np.int8]]:
    scale = np.abs(values).max(axis=1, keepdims=True) / np.float32(127)
    scaled = values * inverse(scale)
    return scale, np.copysign(np.floor(np.abs(scaled) + np.float32(0.5)), scaled).astype(np.int8)


def write_q8_0(values: Floats) -> Bytes:
    scale, q = _eight_bits(values)
    return np.concatenate([half_bytes(scale), q.view(np.uint8)], axis=1)


def write_q8_1(values: Floats) -> Bytes:
    scale, q = _eight_bits(values)
    total = scale * q.sum(axis=1, keepdims=True, dtype=np.int32).astype(np.float32)
    return np.concatenate([half_bytes(scale), half_bytes(total), q.view(np.uint8)], axis=1)


CODECS = {
    TensorType.F32: Codec(read_f32, write_f32),
    TensorType.F16: Codec(read_f16, write_f16),
    TensorType.BF16: Codec(read_bf16, write_bf16),
    TensorType.Q4_0: Codec(read_q4_0, write_q4_0),
    TensorType.Q4_1: Codec(read_q4_1, write_q4_1),
    TensorType.Q5_0: Codec(read_q5_0, write_q5_0),
    TensorType.Q5_1: Codec(read_q5_1, write_q5_1),
    TensorType.Q8_0: Codec(read_q8_0, write_q8_0),
    TensorType.Q8_1: Codec(read_q8_1, write_q8_1),
}
