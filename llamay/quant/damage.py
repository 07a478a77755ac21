"""Damage that shows: elements, or scales of blocks, that are no finite numbers."""

import numpy as np
from numpy.typing import NDArray

from llamay.quant.codebooks import CODEBOOKS
from llamay.quant.layouts import LAYOUTS, TensorType

Bytes = NDArray[np.uint8]

_WHOLE: dict[TensorType, tuple[str, str, int]] = {  # every element: its word, signed, and the exponent's bits in that
    TensorType.F32: ("<u4", "<i4", 0x7F80_0000),
    TensorType.F16: ("<u2", "<i2", 0x7C00),
    TensorType.BF16: ("<u2", "<i2", 0x7F80),
}
_SCALES: dict[TensorType, tuple[tuple[int, int], ...]] = {  # in a block: high byte of a scale, exponent's bits in that
    TensorType.Q4_0: ((1, 0x7C),),
    TensorType.Q4_1: ((1, 0x7C), (3, 0x7C)),
    TensorType.Q5_0: ((1, 0x7C),),
    TensorType.Q5_1: ((1, 0x7C), (3, 0x7C)),
    TensorType.Q8_0: ((1, 0x7C),),
    TensorType.Q8_1: ((1, 0x7C),),  # its second half enters no value
    TensorType.Q2_K: ((81, 0x7C), (83, 0x7C)),
    TensorType.Q3_K: ((109, 0x7C),),
    TensorType.Q4_K: ((1, 0x7C), (3, 0x7C)),
    TensorType.Q5_K: ((1, 0x7C), (3, 0x7C)),
    TensorType.Q6_K: ((209, 0x7C),),
    TensorType.IQ4_NL: ((1, 0x7C),),
    TensorType.IQ4_XS: ((1, 0x7C),),
    **dict.fromkeys((type for type in CODEBOOKS if type is not TensorType.IQ1_M), ((1, 0x7C),)),
    TensorType.MXFP4: ((0, 0xFF),),
    TensorType.TQ1_0: ((53, 0x7C),),
    TensorType.TQ2_0: ((65, 0x7C),),
    TensorType.Q1_0: ((1, 0x7C),),
    TensorType.Q2_0: ((1, 0x7C),),
}


def damaged(type: TensorType, raw: Bytes) -> int | None:
    """The first row of `raw` [rows, row bytes] that holds what is no finite number, None where there is none.

    Looks at the exponents only: all bits set are infinity or not a number.
    """
    if type in _WHOLE:
        word, signed, exponent = _WHOLE[type]
        bits = np.ascontiguousarray(raw).view(word)
        sign = 1 << 8 * bits.itemsize - 1
        if not bits.size or (bits.view(signed).max() < exponent and bits.max() < sign + exponent):
            return None  # what most weights are, in two passes that make nothing
        return _first(bits & exponent == exponent)
    blocks = raw.reshape(len(raw), -1, LAYOUTS[type].bytes)
    if type is TensorType.Q8_K:  # the one with a float32 for a scale, whose exponent lies in two bytes
        return _first(np.ascontiguousarray(blocks[:, :, :4]).view("<u4")[..., 0] & 0x7F80_0000 == 0x7F80_0000)
    if type is TensorType.IQ1_M:  # whose half float lies in nibbles: the exponent is in the last two
        return _first((blocks[:, :, 55] & 0x70 == 0x70) & (blocks[:, :, 53] & 0xC0 == 0xC0))
    found = [_first(blocks[:, :, at] & bits == bits) for at, bits in _SCALES.get(type, ())]
    return min((row for row in found if row is not None), default=None)


def _first(wrong: NDArray[np.bool_]) -> int | None:
    """The first row with a True."""
    return int(wrong.any(axis=1).argmax()) if wrong.any() else None
