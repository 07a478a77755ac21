"""Dequantising and quantising rows of any supported type, a cache-sized piece at a time."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from llamay.errors import Unsupported, UsageError
from llamay.quant import codebooks, fours, k, k_write, low, simple
from llamay.quant.layouts import LAYOUTS, Layout, TensorType

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]

_PIECE = 1 << 16  # elements worked on at a time: temporaries stay in the cache

_READ: dict[TensorType, Callable[[Bytes, Floats], None]] = {
    TensorType.F32: simple.read_f32,
    TensorType.F16: simple.read_f16,
    TensorType.BF16: simple.read_bf16,
    TensorType.Q4_0: simple.read_q4_0,
    TensorType.Q4_1: simple.read_q4_1,
    TensorType.Q5_0: simple.read_q5_0,
    TensorType.Q5_1: simple.read_q5_1,
    TensorType.Q8_0: simple.read_q8_0,
    TensorType.Q8_1: simple.read_q8_1,
    TensorType.Q2_K: k.read_q2_k,
    TensorType.Q3_K: k.read_q3_k,
    TensorType.Q4_K: k.read_q4_k,
    TensorType.Q5_K: k.read_q5_k,
    TensorType.Q6_K: k.read_q6_k,
    TensorType.Q8_K: k.read_q8_k,
    TensorType.IQ4_NL: fours.read_iq4_nl,
    TensorType.IQ4_XS: fours.read_iq4_xs,
    TensorType.MXFP4: fours.read_mxfp4,
    TensorType.TQ1_0: low.read_tq1_0,
    TensorType.TQ2_0: low.read_tq2_0,
    TensorType.NVFP4: low.read_nvfp4,
    TensorType.Q1_0: low.read_q1_0,
    TensorType.Q2_0: low.read_q2_0,
    **{type: codebooks.reader(type) for type in codebooks.CODEBOOKS},
}

_WRITE: dict[TensorType, Callable[[Floats], Bytes]] = {
    TensorType.F32: simple.write_f32,
    TensorType.F16: simple.write_f16,
    TensorType.BF16: simple.write_bf16,
    TensorType.Q4_0: simple.write_q4_0,
    TensorType.Q4_1: simple.write_q4_1,
    TensorType.Q5_0: simple.write_q5_0,
    TensorType.Q5_1: simple.write_q5_1,
    TensorType.Q8_0: simple.write_q8_0,
    TensorType.Q8_1: simple.write_q8_1,
    TensorType.Q2_K: k_write.write_q2_k,
    TensorType.Q3_K: k_write.write_q3_k,
    TensorType.Q4_K: k_write.write_q4_k,
    TensorType.Q5_K: k_write.write_q5_k,
    TensorType.Q6_K: k_write.write_q6_k,
    TensorType.Q8_K: k_write.write_q8_k,
    TensorType.IQ4_NL: fours.write_iq4_nl,
    TensorType.IQ4_XS: fours.write_iq4_xs,
    TensorType.MXFP4: fours.write_mxfp4,
    TensorType.TQ1_0: low.write_tq1_0,
    TensorType.TQ2_0: low.write_tq2_0,
    TensorType.NVFP4: low.write_nvfp4,
    TensorType.Q1_0: low.write_q1_0,
    TensorType.Q2_0: low.write_q2_0,
    **{type: codebooks.writer(type) for type in codebooks.CODEBOOKS},
}


def supported(type: TensorType) -> bool:
    """Whether tensors of this type can be read."""
    return type in _READ


def type_named(name: str) -> TensorType:
    """The supported type of this name in any case ("q4_k"); UsageError lists the names there are."""
    type = TensorType.__members__.get(name.upper())
    if type is None or not supported(type):
        known = ", ".join(t.name.lower() for t in LAYOUTS)
        raise UsageError(f"no tensor type {name!r} that llamay reads; there are {known}")
    return type


def _layout(type: TensorType) -> Layout:
    if not supported(type):
        raise Unsupported(f"tensor type {type.name} is not read here; supported are {', '.join(t.name for t in _READ)}")
    return LAYOUTS[type]


def dequantize(type: TensorType, raw: Bytes, out: Floats | None = None) -> Floats:
    """uint8 `raw` [rows, row_bytes] -> float32 [rows, columns], bit-equal to ggml's reference.

    With `out` (float32, C-contiguous, [rows, columns]) the values are written there and it is returned.
    Unsupported for a type without a reader, UsageError for shapes that do not fit it.
    """
    layout = _layout(type)
    if raw.dtype != np.uint8 or raw.ndim != 2 or raw.shape[1] % layout.bytes:
        raise UsageError(f"{type.name} rows are uint8 [rows, n * {layout.bytes}], not {raw.dtype} {list(raw.shape)}")
    rows, columns = raw.shape[0], raw.shape[1] // layout.bytes * layout.elements
    if out is None:
        out = np.empty((rows, columns), np.float32)
    elif out.shape != (rows, columns) or out.dtype != np.float32 or not out.flags.c_contiguous:
        raise UsageError(f"out must be contiguous float32 [{rows}, {columns}], not {out.dtype} {list(out.shape)}")
    blocks = np.ascontiguousarray(raw).reshape(-1, layout.bytes)
    flat = out.reshape(-1, layout.elements)
    read, step = _READ[type], _PIECE // layout.elements
    with np.errstate(over="ignore", invalid="ignore"):  # a scale that is inf or NaN gives what it gives
        for start in range(0, len(blocks), step):
            read(blocks[start : start + step], flat[start : start + step])
    return out


def quantize(type: TensorType, values: Floats) -> Bytes:
    """float32 `values` [rows, columns] -> uint8 [rows, row_bytes].

    The formats with one scale a block give ggml's reference bytes; the K formats search scales by least squares.
    Unsupported for a type without a writer; UsageError for columns that are not whole blocks, and for values that
    are not finite in a format of blocks.
    """
    layout = _layout(type)
    if values.dtype != np.float32 or values.ndim != 2 or values.shape[1] % layout.elements:
        expected = f"float32 [rows, n * {layout.elements}]"
        raise UsageError(f"{type.name} is made of {expected}, not {values.dtype} {list(values.shape)}")
    if layout.elements > 1 and not np.isfinite(values).all():
        raise UsageError(f"{type.name} holds finite values; {np.sum(~np.isfinite(values)):,} are not")
    rows, row_bytes = values.shape[0], layout.row_bytes(values.shape[1])
    raw = np.empty((rows, row_bytes), np.uint8)
    flat, blocks = np.ascontiguousarray(values).reshape(-1, layout.elements), raw.reshape(-1, layout.bytes)
    write, step = _WRITE[type], _PIECE // layout.elements
    for start in range(0, len(flat), step):
        blocks[start : start + step] = write(flat[start : start + step])
    return raw
