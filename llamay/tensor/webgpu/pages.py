"""KV pages as bytes: copied on the device, read for snapshots, written on restore."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import wgpu
from numpy.typing import NDArray

from llamay.errors import UsageError
from llamay.tensor.webgpu.device import Device
from llamay.tensor.webgpu.memory import Memory
from llamay.tensor.webgpu.storage import Buffer, Rows, copy_in, copy_out

STAGING = 64 << 20  # bytes read back at a time

Words = NDArray[np.uint32]


class PageMover:
    """Moves pages of one group (0: full attention, 1: sliding windows) between places of its pool and the host.

    A page is one array of words [buffers of the group, words of a page in each]: the keys of
    its layers, then their values.  Everything is ordered with the steps that were submitted.
    """

    def __init__(self, device: Device, memory: Memory, group: int) -> None:
        self.device = device
        layers = [n for n in range(len(memory.keys)) if (n in memory.windowed) == bool(group)]
        beside = [n for n in layers if memory.value_bytes[n]]
        self.buffers: list[Rows] = [memory.keys[n] for n in layers] + [memory.values[n] for n in beside]
        self._bytes = [memory.key_bytes[n] for n in layers] + [memory.value_bytes[n] for n in beside]
        self.page_bytes = sum(self._bytes)
        self.pages = self.buffers[0].size // self._bytes[0] - 1 if self.buffers else 0  # but for that of padding rows
        self._between = device.buffer(max(self._bytes, default=4))  # WebGPU copies no buffer onto itself

    def copy(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies page a over page b for each (a, b); no b may also be an a."""
        sources, targets = {a for a, _ in pairs}, [b for _, b in pairs]
        self._check([*sources, *targets])
        if sources & set(targets) or len(set(targets)) < len(targets):
            raise UsageError("a page is both copied and written over in one call, or written over twice")
        if not pairs:
            return
        encoder = self.device.handle.create_command_encoder()
        for buffer, size in zip(self.buffers, self._bytes, strict=True):
            for source, target in pairs:
                copy_out(encoder, buffer, source * size, self._between, 0, size)
                copy_in(encoder, self._between, 0, buffer, target * size, size)
        self.device.submit(encoder)

    def read(self, pages: Sequence[int]) -> Words:
        """The pages' words [pages, page_bytes / 4], after everything submitted so far."""
        self._check(pages)
        out = np.empty((len(pages), self.page_bytes // 4), np.uint32)
        if not out.size:
            return out
        at_once = max(1, STAGING // self.page_bytes)
        usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
        staging = self.device.buffer(min(len(pages), at_once) * self.page_bytes, usage)
        try:
            for start in range(0, len(pages), at_once):
                self._read(pages[start : start + at_once], staging, out[start : start + at_once])
        finally:
            self.device.release([staging])
        return out

    def write(self, pages: Sequence[int], words: Words) -> None:
        """Fills the pages with words [pages, page_bytes / 4]."""
        self._check(pages)
        if words.shape != (len(pages), self.page_bytes // 4):
            raise UsageError(f"{len(pages)} pages hold words {(len(pages), self.page_bytes // 4)}, got {words.shape}")
        column = 0
        for buffer, size in zip(self.buffers, self._bytes, strict=True):
            for start, end in _runs(pages):
                piece = words[start:end, column : column + size // 4]
                self.device.write(buffer, piece, pages[start] * size)
            column += size // 4

    def _check(self, pages: Sequence[int]) -> None:
        if self.buffers and len(pages) and not 0 <= min(pages) <= max(pages) < self.pages:
            raise UsageError(f"pages {min(pages)} to {max(pages)} were named; the pool has {self.pages}")

    def _read(self, pages: Sequence[int], staging: Buffer, out: Words) -> None:
        encoder = self.device.handle.create_command_encoder()
        at = 0
        for buffer, size in zip(self.buffers, self._bytes, strict=True):
            for start, end in _runs(pages):
                count = (end - start) * size
                copy_out(encoder, buffer, pages[start] * size, staging, at, count)
                at += count
        self.device.watch.wait(self.device.submit(encoder, staging.handle))
        words = np.frombuffer(staging.handle.read_mapped(copy=False), np.uint32)
        at = column = 0
        for size in self._bytes:
            block = words[at : at + len(pages) * size // 4]
            out[:, column : column + size // 4] = block.reshape(len(pages), size // 4)
            at += len(pages) * size // 4
            column += size // 4
        del words, block
        staging.handle.unmap()


def _runs(pages: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Index ranges [start, end) within which page numbers follow each other."""
    if len(pages):
        breaks = [0, *(i + 1 for i, (a, b) in enumerate(pairwise(pages)) if b != a + 1), len(pages)]
        yield from pairwise(breaks)
