"""Damage that shows: elements, or scales of blocks, that are no finite numbers."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamay.quant.codec import Bytes
from llamay.quant.layouts import LAYOUTS, Number, TensorType

Words = NDArray[np.unsignedinteger[Any]]


def damaged(type: TensorType, raw: Bytes) -> int | None:
    """The first row of `raw` [rows, row bytes] that holds what is no finite number, None where there is none.

    Looks at the exponents only: all bits set are infinity or not a number.
    """
    layout, raw = LAYOUTS[type], np.ascontiguousarray(raw)
    if layout.elements == 1:
        (element,) = layout.numbers
        words, signed = raw.view(f"<u{element.bytes}"), raw.view(f"<i{element.bytes}")
        sign = 1 << 8 * element.bytes - 1
        if not words.size or (signed.max() < element.exponent and words.max() < sign + element.exponent):
            return None  # what most weights are, in two passes that make nothing
        return _first(words, element)
    blocks = raw.reshape(len(raw), -1, layout.bytes)
    found = [_first(_words(blocks, number), number) for number in layout.numbers]
    return min((row for row in found if row is not None), default=None)


def _words(blocks: Bytes, number: Number) -> Words:
    """The words of one number of each block, [rows, blocks]."""
    words: Words = blocks[..., number.start : number.start + number.bytes].view(f"<u{number.bytes}")[..., 0]
    return words


def _first(words: Words, number: Number) -> int | None:
    """The first row with a word whose exponent has all bits set."""
    wrong = words & number.exponent == number.exponent
    return int(wrong.any(axis=1).argmax()) if wrong.any() else None
