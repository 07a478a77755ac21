"""The formats whose codes name points of a codebook: IQ1, IQ2 and IQ3, blocks of 256 elements.

A block comes apart into `Fields` and goes together again; a `Codebook` says how and what the fields mean.  A value is
d * step * (point's element), with a sign of its own or, in the IQ1 formats, shifted by an eighth.  Every product is
exact in float32.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamay.quant import grids
from llamay.quant.codec import Bytes, Codec, Floats
from llamay.quant.grids import Grid
from llamay.quant.layouts import TensorType
from llamay.quant.simple import half_bytes, halves, inverse

Codes = NDArray[np.uint16]
Integers = NDArray[np.integer[Any]]


@dataclass(frozen=True, slots=True)
class Fields:
    """What n blocks hold.  `signs` has a byte for eight elements: a bit for each, or 0 and 1 for a shift up or down."""

    d: Floats  # [n, 1]
    steps: Bytes  # [n, groups]
    codes: Codes  # [n, 256 / width]
    signs: Bytes  # [n, 32]


@dataclass(frozen=True, slots=True)
class Codebook:
    """A format: groups share a step of (first + k * more), k below 2 ** bits."""

    grid: Grid
    groups: int
    first: float
    more: float
    bits: int
    fields: Callable[[Bytes], Fields]
    blocks: Callable[[Fields], Bytes]
    signs: int = 8  # bits of sign for eight elements; of 7 the last follows from the others, of 0 there is a shift
    shared: int = 1  # eights of elements that share a shift


def even(signs: Bytes) -> Bytes:
    """Seven signs and the eighth that makes the number of set bits even."""
    known = signs & 127
    every: Bytes = (known | np.bitwise_count(known) << 7).astype(np.uint8)
    return every


def _spread(words: NDArray[np.uint32], count: int, bits: int) -> NDArray[np.uint32]:
    """[..., ] words -> [..., count] fields of `bits` bits, the lowest first."""
    shifts = (np.arange(count) * bits).astype(np.uint32)
    return words[..., None] >> shifts & np.uint32((1 << bits) - 1)


def _joined(values: Integers, bits: int) -> NDArray[np.uint32]:
    """The inverse: [..., count] fields -> [...] words."""
    shifts = (np.arange(values.shape[-1]) * bits).astype(np.uint32)
    words: NDArray[np.uint32] = np.bitwise_or.reduce(values.astype(np.uint32) << shifts, axis=-1)
    return words


def _nibbles(packed: Bytes) -> Bytes:
    """[n, bytes] -> [n, 2 * bytes], of each byte the low one first."""
    return np.stack([packed & 15, packed >> 4], axis=-1).reshape(len(packed), -1)


def _codes(low: Bytes, high: Integers) -> Codes:
    """Codes of a low byte and what stands above it."""
    return (low | high.astype(np.uint16) << 8).astype(np.uint16)


def _bytes(words: Integers) -> Bytes:
    """[n, words] -> [n, 4 * words]."""
    return np.ascontiguousarray(words, "<u4").view(np.uint8)


def _iq2_xxs(b: Bytes) -> Fields:
    """Two words for 32 elements: four codes; four times seven signs and the step."""
    words = np.ascontiguousarray(b[:, 2:]).view("<u4").reshape(len(b), 8, 2)
    codes = np.ascontiguousarray(words[..., :1]).view(np.uint8).reshape(len(b), 32)
    signs = _spread(words[..., 1], 4, 7).astype(np.uint8).reshape(len(b), 32)
    return Fields(halves(b, 0), (words[..., 1] >> 28).astype(np.uint8), codes.astype(np.uint16), even(signs))


def _iq2_xxs_blocks(f: Fields) -> Bytes:
    low = _joined(f.codes.reshape(-1, 8, 4), 8)
    high = _joined(f.signs.reshape(-1, 8, 4) & 127, 7) | f.steps.astype(np.uint32) << 28
    return np.concatenate([half_bytes(f.d), _bytes(np.stack([low, high], axis=-1).reshape(len(f.d), -1))], axis=1)


def _iq2_xs(b: Bytes) -> Fields:
    """A half word for 8 elements: nine bits of code, seven signs; a nibble for 16."""
    words = np.ascontiguousarray(b[:, 2:66]).view("<u2")
    return Fields(
        halves(b, 0), _nibbles(b[:, 66:]), (words & 511).astype(np.uint16), even((words >> 9).astype(np.uint8))
    )


def _iq2_xs_blocks(f: Fields) -> Bytes:
    words = f.codes | f.signs.astype(np.uint16) << 9
    steps = f.steps[:, ::2] | f.steps[:, 1::2] << 4
    return np.concatenate([half_bytes(f.d), words.astype("<u2").view(np.uint8), steps], axis=1)


def _iq2_s(b: Bytes) -> Fields:
    """A byte for the low bits of a code, a byte of signs, two bits for the code's high ones; a nibble for 16 elements."""
    high = _spread(b[:, 66:74].astype(np.uint32), 4, 2).reshape(len(b), 32)
    return Fields(halves(b, 0), _nibbles(b[:, 74:]), _codes(b[:, 2:34], high), b[:, 34:66])


def _iq2_s_blocks(f: Fields) -> Bytes:
    high = _joined(f.codes.reshape(-1, 8, 4) >> 8, 2).astype(np.uint8)
    steps = f.steps[:, ::2] | f.steps[:, 1::2] << 4
    return np.concatenate([half_bytes(f.d), f.codes.astype(np.uint8), f.signs, high, steps], axis=1)


def _iq3_xxs(b: Bytes) -> Fields:
    """Eight codes and a word for 32 elements: four times seven signs and the step."""
    words = np.ascontiguousarray(b[:, 66:]).view("<u4")
    signs = _spread(words, 4, 7).astype(np.uint8).reshape(len(b), 32)
    return Fields(halves(b, 0), (words >> 28).astype(np.uint8), b[:, 2:66].astype(np.uint16), even(signs))


def _iq3_xxs_blocks(f: Fields) -> Bytes:
    words = _joined(f.signs.reshape(-1, 8, 4) & 127, 7) | f.steps.astype(np.uint32) << 28
    return np.concatenate([half_bytes(f.d), f.codes.astype(np.uint8), _bytes(words)], axis=1)


def _iq3_s(b: Bytes) -> Fields:
    """Eight codes for 32 elements with their ninth bits in a byte, four bytes of signs, a nibble for the step."""
    ninth = np.unpackbits(np.ascontiguousarray(b[:, 66:74]), axis=1, bitorder="little")
    return Fields(halves(b, 0), _nibbles(b[:, 106:]), _codes(b[:, 2:66], ninth), b[:, 74:106])


def _iq3_s_blocks(f: Fields) -> Bytes:
    ninth = np.packbits((f.codes >> 8).astype(np.uint8), axis=1, bitorder="little")
    steps = f.steps[:, ::2] | f.steps[:, 1::2] << 4
    return np.concatenate([half_bytes(f.d), f.codes.astype(np.uint8), ninth, f.signs, steps], axis=1)


def _iq1_s(b: Bytes) -> Fields:
    """Four bytes and a half word for 32 elements: four times three high bits of a code, the step, the shift."""
    words = np.ascontiguousarray(b[:, 34:]).view("<u2")
    high = _spread(words.astype(np.uint32), 4, 3).reshape(len(b), 32)
    steps, down = (words >> 12 & 7).astype(np.uint8), (words >> 15).astype(np.uint8)
    return Fields(halves(b, 0), steps, _codes(b[:, 2:34], high), np.repeat(down, 4, axis=1))


def _iq1_s_blocks(f: Fields) -> Bytes:
    words = _joined(f.codes.reshape(-1, 8, 4) >> 8, 3).astype(np.uint16)
    words |= f.steps.astype(np.uint16) << 12 | f.signs[:, ::4].astype(np.uint16) << 15
    return np.concatenate([half_bytes(f.d), f.codes.astype(np.uint8), words.astype("<u2").view(np.uint8)], axis=1)


def _iq1_m(b: Bytes) -> Fields:
    """A nibble beside each code's byte: three high bits and the shift; four half words of four steps and a nibble of d."""
    nibbles = _nibbles(b[:, 32:48])
    words = np.ascontiguousarray(b[:, 48:]).view("<u2")
    d = _joined((words >> 12).astype(np.uint8), 4).astype(np.uint16).view(np.float16).astype(np.float32)
    steps = _spread(words.astype(np.uint32), 4, 3).reshape(len(b), 16).astype(np.uint8)
    return Fields(d[:, None], steps, _codes(b[:, :32], nibbles & 7), (nibbles >> 3).astype(np.uint8))


def _iq1_m_blocks(f: Fields) -> Bytes:
    nibbles = (f.codes >> 8).astype(np.uint8) | f.signs << 3
    words = _joined(f.steps.reshape(-1, 4, 4), 3).astype(np.uint16)
    words |= _spread(half_bytes(f.d).view("<u2")[:, 0].astype(np.uint32), 4, 4).astype(np.uint16) << 12
    return np.concatenate(
        [f.codes.astype(np.uint8), nibbles[:, ::2] | nibbles[:, 1::2] << 4, words.astype("<u2").view(np.uint8)], axis=1
    )


CODEBOOKS: dict[TensorType, Codebook] = {
    TensorType.IQ3_XXS: Codebook(grids.IQ3_XXS, 8, 0.25, 0.5, 4, _iq3_xxs, _iq3_xxs_blocks, signs=7),
    TensorType.IQ3_S: Codebook(grids.IQ3_S, 8, 1.0, 2.0, 4, _iq3_s, _iq3_s_blocks),
    TensorType.IQ2_XXS: Codebook(grids.IQ2_XXS, 8, 0.125, 0.25, 4, _iq2_xxs, _iq2_xxs_blocks, signs=7),
    TensorType.IQ2_XS: Codebook(grids.IQ2_XS, 16, 0.125, 0.25, 4, _iq2_xs, _iq2_xs_blocks, signs=7),
    TensorType.IQ2_S: Codebook(grids.IQ2_S, 16, 0.125, 0.25, 4, _iq2_s, _iq2_s_blocks),
    TensorType.IQ1_S: Codebook(grids.IQ1, 8, 1.0, 2.0, 3, _iq1_s, _iq1_s_blocks, signs=0, shared=4),
    TensorType.IQ1_M: Codebook(grids.IQ1, 16, 1.0, 2.0, 3, _iq1_m, _iq1_m_blocks, signs=0),
}

SHIFT = np.float32(0.125)  # of the elements of IQ1
_SIGNS = np.where(
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"), np.float32(-1), np.float32(1)
)


def _reader(book: Codebook) -> Callable[[Bytes, Floats], None]:
    """What fills float32 `out` [blocks, 256] from blocks of this format."""

    def read(blocks: Bytes, out: Floats) -> None:
        fields = book.fields(blocks)
        np.take(book.grid.points, fields.codes, axis=0, out=out.reshape(*fields.codes.shape, book.grid.width))
        eights = out.reshape(-1, 32, 8)
        if book.signs:
            eights *= _SIGNS[fields.signs]
        else:
            eights += (SHIFT - 2 * SHIFT * fields.signs)[:, :, None]
        grouped = out.reshape(len(blocks), book.groups, -1)
        grouped *= (fields.d * (np.float32(book.first) + np.float32(book.more) * fields.steps))[:, :, None]

    return read


_TRIALS = (0.7, 0.85, 1.0, 1.2)  # of the scale that puts a group's largest element on the codebook's largest level


def _writer(book: Codebook) -> Callable[[Floats], Bytes]:
    """What makes blocks of this format of float32 [blocks, 256]: each group tries some scales, each point the nearest."""
    top = float(max(book.grid.levels)) + (0.0 if book.signs else float(SHIFT))

    def write(values: Floats) -> Bytes:
        groups = values.reshape(-1, 256 // book.groups)
        base = np.abs(groups).max(axis=1, keepdims=True) / np.float32(top)
        wanted, least = base, np.full_like(base, np.inf)
        for trial in _TRIALS:
            scale = base * np.float32(trial)
            error = _chosen(book, groups, scale)[2]
            wanted, least = np.where(error < least, scale, wanted), np.minimum(error, least)
        wanted = wanted.reshape(len(values), -1)
        highest = np.float32(book.first + book.more * ((1 << book.bits) - 1))
        d = (wanted.max(axis=1, keepdims=True) / highest).astype(np.float16).astype(np.float32)
        steps = np.clip(
            np.rint((wanted * inverse(d) - np.float32(book.first)) / np.float32(book.more)), 0, (1 << book.bits) - 1
        )
        scale = d * (np.float32(book.first) + np.float32(book.more) * steps)
        codes, signs, _ = _chosen(book, groups, scale.reshape(-1, 1))
        return book.blocks(
            Fields(d, steps.astype(np.uint8), codes.reshape(len(values), -1), signs.reshape(len(values), 32))
        )

    return write


def _chosen(book: Codebook, groups: Floats, scale: Floats) -> tuple[Codes, Bytes, Floats]:
    """Codes, signs (or shifts) and the squared error of each group [n, elements] at its scale [n, 1]."""
    scaled = (groups * inverse(scale)).reshape(-1, 8)
    if book.signs:
        negative, size = scaled < 0, np.abs(scaled)
        if book.signs == 7:  # where their number is odd, the smallest element takes the wrong one
            odd = np.flatnonzero(negative.sum(axis=1) % 2)
            smallest = size[odd].argmin(axis=1)
            negative[odd, smallest] ^= True
            size[odd, smallest] *= -1
        codes, error = _nearest(book.grid, size)
        signs = np.packbits(negative, axis=1, bitorder="little")[:, 0]
    else:
        (above, error), (below, lower) = (_nearest(book.grid, scaled + by) for by in (-SHIFT, SHIFT))
        down = lower.reshape(-1, book.shared).sum(axis=1) < error.reshape(-1, book.shared).sum(axis=1)
        signs = np.repeat(down, book.shared).astype(np.uint8)
        codes, error = np.where(signs, below, above), np.where(signs, lower, error)
    return codes, signs, error.reshape(len(groups), -1).sum(axis=1, keepdims=True) * np.square(scale)


def _nearest(grid: Grid, elements: Floats) -> tuple[Codes, Floats]:
    """The codes of the points nearest to elements [n, 8], and the squared distances."""
    points = elements.reshape(-1, grid.width)
    codes, least = np.empty(len(points), np.uint16), np.square(points).sum(axis=1)
    sizes = np.square(grid.points).sum(axis=1, keepdims=True)
    plane = np.concatenate([grid.points, sizes], axis=1).T  # [width + 1, size]: |g|^2 - 2 x.g is one product
    wanted = np.concatenate([-2 * points, np.ones((len(points), 1), np.float32)], axis=1)
    for start in range(0, len(points), 256):
        distances = wanted[start : start + 256] @ plane
        codes[start : start + 256] = found = distances.argmin(axis=1)
        least[start : start + 256] += np.take_along_axis(distances, found[:, None], axis=1)[:, 0]
    return codes, least


CODECS = {type: Codec(_reader(book), _writer(book)) for type, book in CODEBOOKS.items()}
