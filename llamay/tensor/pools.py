"""The NumPy executor's page pools: keys and values of each layer in a cache format, and pages as bytes."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamay.errors import UsageError
from llamay.tensor.batch import PAGE
from llamay.tensor.cache import CacheFormat
from llamay.tensor.convs import ConvPages
from llamay.tensor.program import Latent, Qkv
from llamay.tensor.scans import ScanPages
from llamay.tensor.twins.linear import Real

Bytes = NDArray[np.uint8]
Scales = NDArray[np.float32]
Slots = slice | NDArray[np.int64]  # page * 16 + position % 16


@dataclass(frozen=True, slots=True, eq=False)
class Kept:
    """Keys [kv_heads, hd, S] and values [kv_heads, S, hd] to compute with; where there are scales they multiply them."""

    keys: Real
    values: Real
    key_scales: Scales | None  # [kv_heads, S]
    value_scales: Scales | None  # [kv_heads, S]


class LayerPages:
    """One layer's pages, laid out for products; `read` and `write` speak the bytes that a device holds of a page.

    Those are, as wgsl/include/pages.wgsl has them, for each kv head the keys [hd / 4, 16, 4] or
    the values [16, hd], followed by the 16 scales of bytes.  The values of latents are part of the keys.
    """

    def __init__(self, op: Qkv | Latent, pages: int, cache: CacheFormat, dtype: type[np.floating[Any]]) -> None:
        heads, slots = op.kv_heads, pages * PAGE
        self.pages, self._dtype = pages, dtype
        self._inside = op.turned if isinstance(op, Latent) else 0  # where values begin in the keys
        kinds = {"f32": dtype, "f16": np.float16, "q8": np.int8}
        self.keys: NDArray[Any] = np.zeros((heads, op.head_dim, slots), kinds[cache.keys])
        self.values: NDArray[Any] = np.zeros((heads, slots, op.value_dim), kinds[cache.values])
        self.key_scales = np.zeros((heads, slots), np.float32) if cache.keys == "q8" else None
        self.value_scales = np.zeros((heads, slots), np.float32) if cache.values == "q8" and op.value_dim else None
        self.key_bytes = _page_bytes(self.keys, self.key_scales, pages)
        self.value_bytes = _page_bytes(self.values, self.value_scales, pages)

    def look(self, slots: Slots, length: int, first: int = 0) -> Kept:
        """What the slots keep, at `first` and beyond of `length` positions; zeros elsewhere."""
        keys = _spread(_taken(self.keys, slots, 2), length, first, 2, self._dtype)
        scales = _scales(self.key_scales, slots, length, first)
        if self._inside:
            return Kept(keys, np.ascontiguousarray(keys[:, self._inside :].transpose(0, 2, 1)), scales, scales)
        values = _spread(_taken(self.values, slots, 1), length, first, 1, self._dtype)
        return Kept(keys, values, scales, _scales(self.value_scales, slots, length, first))

    def copy(self, sources: Sequence[int], targets: Sequence[int]) -> None:
        """Copies pages over pages."""
        taken, given = (
            np.add.outer(np.array(pages) * PAGE, np.arange(PAGE)).reshape(-1) for pages in (sources, targets)
        )
        for array, axis in self._arrays():
            slots_first = np.moveaxis(array, axis, 0)
            slots_first[given] = slots_first[taken]

    def read_keys(self, pages: Sequence[int]) -> Bytes:
        """Bytes [pages, key_bytes]."""
        heads, dim, _ = self.keys.shape
        four = gcd(4, dim)
        cut = self.keys.reshape(heads, dim // four, four, self.pages, PAGE)[:, :, :, list(pages)]
        return _packed(cut.transpose(3, 0, 1, 4, 2), self.key_scales, pages)

    def read_values(self, pages: Sequence[int]) -> Bytes:
        """Bytes [pages, value_bytes]."""
        heads, _, dim = self.values.shape
        cut = self.values.reshape(heads, self.pages, PAGE, dim)[:, list(pages)]
        return _packed(cut.transpose(1, 0, 2, 3), self.value_scales, pages)

    def write_keys(self, pages: Sequence[int], data: Bytes) -> None:
        """Takes bytes [pages, key_bytes]."""
        heads, dim, _ = self.keys.shape
        four = gcd(4, dim)
        kept = _unpacked(data, self.keys, self.key_scales, pages).reshape(-1, heads, dim // four, PAGE, four)
        cut = self.keys.reshape(heads, dim // four, four, self.pages, PAGE)
        cut[:, :, :, list(pages)] = kept.transpose(1, 2, 4, 0, 3)

    def write_values(self, pages: Sequence[int], data: Bytes) -> None:
        """Takes bytes [pages, value_bytes]."""
        heads, _, dim = self.values.shape
        kept = _unpacked(data, self.values, self.value_scales, pages).reshape(-1, heads, PAGE, dim)
        self.values.reshape(heads, self.pages, PAGE, dim)[:, list(pages)] = kept.transpose(1, 0, 2, 3)

    def _arrays(self) -> list[tuple[NDArray[Any], int]]:
        """Everything kept, and the axis of its slots."""
        found: list[tuple[NDArray[Any], int]] = [(self.keys, 2), (self.values, 1)]
        return found + [(scales, 1) for scales in (self.key_scales, self.value_scales) if scales is not None]


Paged = LayerPages | ScanPages | ConvPages


class PagePool:
    """The pages of one group of layers (0: full attention, 1: sliding windows), moved all layers at once.

    A page is bytes [page_bytes]: the keys of its layers, then their values.
    """

    def __init__(self, layers: Sequence[Paged], pages: int) -> None:
        self.layers, self.pages = layers, pages
        self.page_bytes = sum(layer.key_bytes + layer.value_bytes for layer in layers)

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies page a over page b for each (a, b); no b may also be an a."""
        sources, targets = [a for a, _ in pairs], [b for _, b in pairs]
        self._check([*sources, *targets])
        if set(sources) & set(targets) or len(set(targets)) < len(targets):
            raise UsageError("a page is both copied and written over in one call, or written over twice")
        if pairs:
            for layer in self.layers:
                layer.copy(sources, targets)

    def read(self, pages: Sequence[int]) -> Bytes:
        """Bytes [pages, page_bytes]."""
        self._check(pages)
        if not len(pages) or not self.layers:
            return np.empty((len(pages), self.page_bytes), np.uint8)
        pieces = [layer.read_keys(pages) for layer in self.layers]
        pieces += [layer.read_values(pages) for layer in self.layers if layer.value_bytes]
        return np.concatenate(pieces, axis=1)

    def write(self, pages: Sequence[int], data: Bytes) -> None:
        """Fills the pages with bytes [pages, page_bytes]."""
        self._check(pages)
        if data.shape != (len(pages), self.page_bytes):
            raise UsageError(f"{len(pages)} pages hold bytes {(len(pages), self.page_bytes)}, got {data.shape}")
        if not len(pages):
            return
        at = 0
        for layer in self.layers:
            layer.write_keys(pages, data[:, at : at + layer.key_bytes])
            at += layer.key_bytes
        for layer in (layer for layer in self.layers if layer.value_bytes):
            layer.write_values(pages, data[:, at : at + layer.value_bytes])
            at += layer.value_bytes

    def _check(self, pages: Sequence[int]) -> None:
        if len(pages) and not 0 <= min(pages) <= max(pages) < self.pages:
            raise UsageError(f"pages {min(pages)} to {max(pages)} were named; the pool has {self.pages}")


def _page_bytes(array: NDArray[Any], scales: Scales | None, pages: int) -> int:
    return (array.nbytes + (0 if scales is None else scales.nbytes)) // max(pages, 1)


def _taken(array: NDArray[Any], slots: Slots, axis: int) -> NDArray[Any]:
    if isinstance(slots, slice):
        return array[(*(slice(None),) * axis, slots)]
    return array.take(slots, axis=axis)


def _spread(array: NDArray[Any], length: int, first: int, axis: int, dtype: type[np.floating[Any]]) -> Real:
    """The array as `dtype`, from `first` on of `length` along an axis; itself where that changes nothing."""
    count = array.shape[axis]
    if count == length:
        return array.astype(dtype, copy=False)
    full = np.zeros((*array.shape[:axis], length, *array.shape[axis + 1 :]), dtype)
    full[(*(slice(None),) * axis, slice(first, first + count))] = array
    return full


def _scales(scales: Scales | None, slots: Slots, length: int, first: int) -> Scales | None:
    return None if scales is None else _spread(_taken(scales, slots, 1), length, first, 1, np.float32)


def _packed(cut: NDArray[Any], scales: Scales | None, pages: Sequence[int]) -> Bytes:
    """Bytes [pages, ...] of an array [pages, kv_heads, ...], each head followed by its scales."""
    count, heads = cut.shape[:2]
    data = np.ascontiguousarray(cut).view(np.uint8).reshape(count, heads, -1)
    if scales is not None:
        own = scales.reshape(heads, -1, PAGE)[:, list(pages)].transpose(1, 0, 2)
        data = np.concatenate([data, np.ascontiguousarray(own).view(np.uint8)], axis=2)
    return data.reshape(count, -1)


def _unpacked(data: Bytes, array: NDArray[Any], scales: Scales | None, pages: Sequence[int]) -> NDArray[Any]:
    """The other way round: [pages, kv_heads, ...] in the array's type; the scales go to theirs."""
    heads = len(array)
    cut = data.reshape(len(pages), heads, -1)
    if scales is not None:
        own = np.ascontiguousarray(cut[:, :, -4 * PAGE :]).view(np.float32)
        scales.reshape(heads, -1, PAGE)[:, list(pages)] = own.transpose(1, 0, 2)
        cut = cut[:, :, : -4 * PAGE]
    return np.ascontiguousarray(cut).view(array.dtype)
