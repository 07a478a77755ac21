"""The unfilled end of a page: what lies there is some earlier owner's, and goes nowhere."""

from math import gcd

import numpy as np
from numpy.typing import NDArray

from llamay.errors import UsageError
from llamay.tensor.batch import PAGE
from llamay.tensor.cache import cache_format
from llamay.tensor.executor import Executor
from llamay.tensor.program import Scan, ShortConv

Bytes = NDArray[np.uint8]


def clear_tail(executor: Executor, group: int, page: Bytes, filled: int) -> None:
    """Zeroes, in a page [page_bytes] that `read_pages` gave, the positions from `filled` (1 to 16) on.

    The layout is that of wgsl/include/pages.wgsl, which both executors speak: of each kv head the
    keys [hd / 4, 16, 4] or the values [16, hd], then the 16 scales where there are some.  A state space
    has its state, then B [16, groups * states]; and [16, kept] values, then how many tokens the state is after.
    A state of tokens beyond is of no use to who has fewer, so it goes too.  A convolution has [16, channels].
    """
    windowed = executor.program.windowed if executor.window_pages else frozenset[int]()
    layers = [op for op in executor.program.layers if (op.layer in windowed) == bool(group)]
    format = cache_format(executor.kv)
    parts = [(op, keys, format.sizes(op)[not keys]) for keys in (True, False) for op in layers]
    total = sum(size for _, _, size in parts)
    if len(page) != total:
        raise UsageError(f"a page of {len(page)} bytes; {executor.kv} pages of this model have {total}")
    at = 0
    for op, keys, size in parts:
        part = page[at : at + size]
        if isinstance(op, Scan):
            _clear_space(part, 4 * op.inner * op.states if keys else 0, 0 if keys else 16, filled)
        elif isinstance(op, ShortConv):
            part.reshape(PAGE, -1)[filled:] = 0
        elif size:
            _clear(part.reshape(op.kv_heads, -1), keys, op.head_dim, (format.keys if keys else format.values) == "q8", filled)
        at += size


def _clear_space(part: Bytes, before: int, behind: int, filled: int) -> None:
    """Of a state space's part of a page, with so many bytes that are no token's."""
    end = len(part) - behind
    part[:before] = part[end:] = 0
    part[before:end].reshape(PAGE, -1)[filled:] = 0


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
