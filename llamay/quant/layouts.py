"""The table of GGUF tensor types: id, elements a block, bytes a block."""

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
class Layout:
    """How many elements one block holds and how many bytes it takes."""

    elements: int
    bytes: int

    def row_bytes(self, columns: int) -> int:
        """Bytes of one row of `columns` elements; columns must be a multiple of `elements`."""
        return columns // self.elements * self.bytes


LAYOUTS: dict[TensorType, Layout] = {
    TensorType.F32: Layout(1, 4),
    TensorType.F16: Layout(1, 2),
    TensorType.BF16: Layout(1, 2),
    TensorType.Q4_0: Layout(32, 18),
    TensorType.Q4_1: Layout(32, 20),
    TensorType.Q5_0: Layout(32, 22),
    TensorType.Q5_1: Layout(32, 24),
    TensorType.Q8_0: Layout(32, 34),
    TensorType.Q8_1: Layout(32, 36),
    TensorType.Q2_K: Layout(256, 84),
    TensorType.Q3_K: Layout(256, 110),
    TensorType.Q4_K: Layout(256, 144),
    TensorType.Q5_K: Layout(256, 176),
    TensorType.Q6_K: Layout(256, 210),
    TensorType.Q8_K: Layout(256, 292),
    TensorType.IQ1_S: Layout(256, 50),
    TensorType.IQ1_M: Layout(256, 56),
    TensorType.IQ2_XXS: Layout(256, 66),
    TensorType.IQ2_XS: Layout(256, 74),
    TensorType.IQ2_S: Layout(256, 82),
    TensorType.IQ3_XXS: Layout(256, 98),
    TensorType.IQ3_S: Layout(256, 110),
    TensorType.IQ4_NL: Layout(32, 18),
    TensorType.IQ4_XS: Layout(256, 136),
    TensorType.MXFP4: Layout(32, 17),
    TensorType.TQ1_0: Layout(256, 54),
    TensorType.TQ2_0: Layout(256, 66),
    TensorType.NVFP4: Layout(64, 36),
    TensorType.Q1_0: Layout(128, 18),
    TensorType.Q2_0: Layout(64, 18),
}
