"""Tensor types: one table of block layouts, and a NumPy dequantiser and quantiser for each."""

from llamay.quant.damage import damaged
from llamay.quant.layouts import LAYOUTS, Layout, TensorType
from llamay.quant.rows import dequantize, quantize, supported, type_named

__all__ = ["LAYOUTS", "Layout", "TensorType", "damaged", "dequantize", "quantize", "supported", "type_named"]
