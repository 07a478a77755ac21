"""The GGUF file format: read by position with every length checked, and written."""

from llamay.gguf.file import File, Metadata, open
from llamay.gguf.tensor import Tensor
from llamay.gguf.values import Array, Typed, Value, ValueType
from llamay.gguf.write import write, write_split

__all__ = ["Array", "File", "Metadata", "Tensor", "Typed", "Value", "ValueType", "open", "write", "write_split"]
