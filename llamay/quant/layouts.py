"""The table of GGUF tensor types: id, elements a block, bytes a block, and the floats among these."""

from dataclasses import dataclass
from enum import IntEnum


class TensorType(IntEnum):
    """GGML type numbers as the file stores them."""

    F32 = 0
    F16 = 1
    Q4_0 = 2
    Q4_1 = 3
    Q5_0 = 6
    Q5_1 = 7
    Q8_0 = 8
    Q8_1 = 9
    Q2_K = 10
    Q3_K = 11
    Q4_K = 12
    Q5_K = 13
    Q6_K = 14
    Q8_K = 15
    IQ2_XXS = 16
    IQ2_XS = 17
    IQ3_XXS = 18
    IQ1_S = 19
    IQ4_NL = 20
    IQ3_S = 21
    IQ2_S = 22
    IQ4_XS = 23
    I8 = 24
    I16 = 25
    I32 = 26
    I64 = 27
    F64 = 28
    IQ1_M = 29
    BF16 = 30
    TQ1_0 = 34
    TQ2_0 = 35
    MXFP4 = 39
    NVFP4 = 40
    Q1_0 = 41
    Q2_0 = 42


@dataclass(frozen=True, slots=True)
class Number:
    """A float of a block: where its word starts, the word's bytes, and its exponent's bits, which infinity and NaN set."""

    start: int
    bytes: int
    exponent: int


@dataclass(frozen=True, slots=True)
class Layout:
    """How many elements one block holds, how many bytes it takes, and the floats in it that its values are made of."""

    elements: int
    bytes: int
    numbers: tuple[Number, ...] = ()

    def row_bytes(self, columns: int) -> int:
        """Bytes of one row of `columns` elements; columns must be a multiple of `elements`."""
        return columns // self.elements * self.bytes


def _halves(*starts: int) -> tuple[Number, ...]:
    return tuple(Number(start, 2, 0x7C00) for start in starts)


_SINGLE = (Number(0, 4, 0x7F80_0000),)

LAYOUTS: dict[TensorType, Layout] = {
    TensorType.F32: Layout(1, 4, _SINGLE),
    TensorType.F16: Layout(1, 2, _halves(0)),
    TensorType.BF16: Layout(1, 2, (Number(0, 2, 0x7F80),)),
    TensorType.Q4_0: Layout(32, 18, _halves(0)),
    TensorType.Q4_1: Layout(32, 20, _halves(0, 2)),
    TensorType.Q5_0: Layout(32, 22, _halves(0)),
    TensorType.Q5_1: Layout(32, 24, _halves(0, 2)),
    TensorType.Q8_0: Layout(32, 34, _halves(0)),
    TensorType.Q8_1: Layout(32, 36, _halves(0)),  # the second half is an aid for dot products
    TensorType.Q2_K: Layout(256, 84, _halves(80, 82)),
    TensorType.Q3_K: Layout(256, 110, _halves(108)),
    TensorType.Q4_K: Layout(256, 144, _halves(0, 2)),
    TensorType.Q5_K: Layout(256, 176, _halves(0, 2)),
    TensorType.Q6_K: Layout(256, 210, _halves(208)),
    TensorType.Q8_K: Layout(256, 292, _SINGLE),
    TensorType.IQ1_S: Layout(256, 50, _halves(0)),
    TensorType.IQ1_M: Layout(256, 56, (Number(52, 4, 0x7000_C000),)),  # a half in four nibbles
    TensorType.IQ2_XXS: Layout(256, 66, _halves(0)),
    TensorType.IQ2_XS: Layout(256, 74, _halves(0)),
    TensorType.IQ2_S: Layout(256, 82, _halves(0)),
    TensorType.IQ3_XXS: Layout(256, 98, _halves(0)),
    TensorType.IQ3_S: Layout(256, 110, _halves(0)),
    TensorType.IQ4_NL: Layout(32, 18, _halves(0)),
    TensorType.IQ4_XS: Layout(256, 136, _halves(0)),
    TensorType.MXFP4: Layout(32, 17, (Number(0, 1, 0xFF),)),
    TensorType.TQ1_0: Layout(256, 54, _halves(52)),
    TensorType.TQ2_0: Layout(256, 66, _halves(64)),
    TensorType.NVFP4: Layout(64, 36),  # whose small floats know no infinity
    TensorType.Q1_0: Layout(128, 18, _halves(0)),
    TensorType.Q2_0: Layout(64, 18, _halves(0)),
}
