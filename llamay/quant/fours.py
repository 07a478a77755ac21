"""Formats of four bits whose values lie on no straight line: a code names one of sixteen.

As in `simple`: a `read_*` fills float32 `out` [blocks, elements], a `write_*` gives the nearest codes; ggml's own
quantisers search longer for the scales.
"""

import numpy as np
from numpy.typing import NDArray

from llamay.quant.codec import Bytes, Codec, Floats
from llamay.quant.k import four_bits
from llamay.quant.layouts import TensorType
from llamay.quant.simple import half_bytes, halves, inverse, nibbles

# what the codes of IQ4_NL and IQ4_XS mean: denser about zero, where weights are
CURVE = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
# and of MXFP4: twice a float of two bits of exponent and one of fraction, the sign its highest bit
FLOATS = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.float32)


def powers(exponents: Bytes) -> Floats:
    """2 ** (e - 128): what an exponent byte says, halved for the doubled floats."""
    wide = exponents.astype(np.uint32)
    bits = np.where(wide < 2, np.uint32(0x0020_0000) << wide, (wide - np.uint32(1)) << np.uint32(23))
    return bits.astype(np.uint32).view(np.float32)


def nearest(scaled: Floats, values: Floats) -> Bytes:
    """The code of the value nearest to each element."""
    order = np.argsort(values, kind="stable")
    rising = values[order]
    place = np.searchsorted((rising[1:] + rising[:-1]) / 2, scaled)
    codes: NDArray[np.uint8] = order[place].astype(np.uint8)
    return codes


def _packed(codes: Bytes) -> Bytes:
    """[groups, 32] codes -> [groups, 16]: the low nibbles are the first half."""
    return (codes[:, :16] | codes[:, 16:] << 4).view(np.uint8)


def _largest(values: Floats) -> Floats:
    """The element largest in size of each row, [rows, 1]."""
    return np.take_along_axis(values, np.abs(values).argmax(axis=1, keepdims=True), axis=1)


def read_iq4_nl(blocks: Bytes, out: Floats) -> None:
    np.take(CURVE, nibbles(blocks[:, 2:]), out=out)
    out *= halves(blocks, 0)


def write_iq4_nl(values: Floats) -> Bytes:
    scale = _largest(values) / CURVE[0]
    codes = nearest(values * inverse(scale), CURVE)
    return np.concatenate([half_bytes(scale), _packed(codes)], axis=1)


def read_iq4_xs(blocks: Bytes, out: Floats) -> None:
    low = blocks[:, 4:8, None] >> np.array([0, 4], np.uint8) & 15
    high = blocks[:, 2:4].view("<u2") >> np.arange(0, 16, 2, dtype=np.uint16) & 3
    scales = (low.reshape(-1, 8) | high.astype(np.uint8) << 4).view(np.int8) - np.int8(32)
    np.take(CURVE, four_bits(blocks[:, 8:], 16), out=out)
    grouped = out.reshape(-1, 8, 32)
    grouped *= (halves(blocks, 0) * scales)[:, :, None]


def write_iq4_xs(values: Floats) -> Bytes:
    wanted = _largest(values.reshape(-1, 32)).reshape(-1, 8) / CURVE[0]
    scale = (_largest(wanted) / np.float32(-32)).astype(np.float16).astype(np.float32)
    steps = np.clip(np.rint(wanted * inverse(scale)), -32, 31)
    codes = nearest(values.reshape(-1, 32) * inverse((scale * steps).reshape(-1, 1)), CURVE)
    raised = (steps + 32).astype(np.uint8)
    low = raised[:, ::2] & 15 | (raised[:, 1::2] & 15) << 4
    high = np.bitwise_or.reduce((raised >> 4).astype(np.uint16) << np.arange(0, 16, 2, dtype=np.uint16), axis=1)
    packed = _packed(codes).reshape(len(values), -1)
    return np.concatenate([half_bytes(scale), high[:, None].astype("<u2").view(np.uint8), low, packed], axis=1)


def read_mxfp4(blocks: Bytes, out: Floats) -> None:
    np.take(FLOATS, nibbles(blocks[:, 1:]), out=out)
    out *= powers(blocks[:, :1])


def write_mxfp4(values: Floats) -> Bytes:
    """The exponent puts the largest element between 4 and 8 (of 6), where it is cut off."""
    _, exponent = np.frexp(np.abs(values).max(axis=1, keepdims=True))
    exponents = np.clip(exponent + 124, 0, 253).astype(np.uint8)
    codes = nearest(values * inverse(powers(exponents)), FLOATS)
    return np.concatenate([exponents, _packed(codes)], axis=1)


CODECS = {
    TensorType.IQ4_NL: Codec(read_iq4_nl, write_iq4_nl),
    TensorType.IQ4_XS: Codec(read_iq4_xs, write_iq4_xs),
    TensorType.MXFP4: Codec(read_mxfp4, write_mxfp4),
}
