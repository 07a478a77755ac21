"""The unfilled end of a page: what lies there is some earlier owner's, and goes nowhere."""

from math import gcd

import numpy as np
from numpy.typing import NDArray

from llamay.errors import UsageError
from llamay.tensor.batch import PAGE
from llamay.tensor.cache import cache_format
from llamay.tensor.executor import Executor

Bytes = NDArray[np.uint8]


def clear_tail(executor: Executor, group: int, page: Bytes, filled: int) -> None:
    """Zeroes, in a page [page_bytes] that `read_pages` gave, the positions from `filled` (1 to 16) on.

    The layout is that of wgsl/include/pages.wgsl, which both executors speak: of each kv head the
    keys [hd / 4, 16, 4] or the values [16, hd], then the 16 scales where there are some.
    """
    windowed = executor.program.windowed if executor.window_pages else frozenset[int]()
    layers = [op for op in executor.program.layers if (op.layer in windowed) == bool(group)]
    format = cache_format(executor.kv)
    parts = [(op, True, format.key_bytes(op.head_dim)) for op in layers]
    parts += [(op, False, format.value_bytes(op.head_dim)) for op in layers]
    total = sum(op.kv_heads * size for op, _, size in parts)
    if len(page) != total:
        raise UsageError(f"a page of {len(page)} bytes; {executor.kv} pages of this model have {total}")
    at = 0
    for op, keys, size in parts:
        heads = page[at : at + op.kv_heads * size].reshape(op.kv_heads, size)
        _clear(heads, keys, op.head_dim, (format.keys if keys else format.values) == "q8", filled)
        at += op.kv_heads * size


def _clear(heads: Bytes, keys: bool, dim: int, scaled: bool, filled: int) -> None:
    """Of keys or values [kv_heads, bytes]."""
    end = heads.shape[1] - (4 * PAGE if scaled else 0)
    elements = heads[:, :end]
    if keys:
        elements.reshape(len(heads), dim // gcd(4, dim), PAGE, -1)[:, :, filled:] = 0
    else:
        elements.reshape(len(heads), PAGE, -1)[:, filled:] = 0
    if scaled:
        heads[:, end:].reshape(len(heads), PAGE, 4)[:, filled:] = 0
