"""Dequantising and quantising rows of any supported type, a cache-sized piece at a time."""

import numpy as np

from llamay.errors import Unsupported, UsageError
from llamay.quant import codebooks, fours, k, low, simple
from llamay.quant.codec import Bytes, Floats
from llamay.quant.layouts import LAYOUTS, Layout, TensorType

_PIECE = 1 << 16  # elements worked on at a time: temporaries stay in the cache

CODECS = simple.CODECS | k.CODECS | fours.CODECS | low.CODECS | codebooks.CODECS


def supported(type: TensorType) -> bool:
    """Whether tensors of this type can be read."""
    return type in CODECS


def type_named(name: str) -> TensorType:
    """The supported type of this name in any case ("q4_k"); UsageError lists the names there are."""
    type = TensorType.__members__.get(name.upper())
    if type is None or not supported(type):
        known = ", ".join(t.name.lower() for t in LAYOUTS)
        raise UsageError(f"no tensor type {name!r} that llamay reads; there are {known}")
    return type


def _layout(type: TensorType) -> Layout:
    if not supported(type):
        known = ", ".join(t.name for t in CODECS)
        raise Unsupported(f"tensor type {type.name} is not read here; supported are {known}")
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
    read, step = CODECS[type].read, _PIECE // layout.elements
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
    write, step = CODECS[type].write, _PIECE // layout.elements
    for start in range(0, len(flat), step):
        blocks[start : start + step] = write(flat[start : start + step])
    return raw
