"""Reads the pages of a saved context, each checked against its checksum, a few megabytes ahead of the caller."""

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llamay.errors import ContextFileError, MalformedContext
from llamay.kv.snapshots import page
from llamay.kv.snapshots.folder import Folder
from llamay.kv.snapshots.manifest import Manifest
from llamay.kv.snapshots.writer import AT_ONCE, THREADS
from llamay.kv.table import sized

Bytes = NDArray[np.uint8]

CHUNK = 6 << 20  # bytes handed out at a time, or one page


@dataclass(frozen=True, slots=True, eq=False)
class Chunk:
    """Pages of one group that follow each other, all of them sound."""

    group: int
    first: int  # number of the first in the sequence's table
    pages: Bytes  # [pages, page_bytes]


def chunks(folder: Folder, manifest: Manifest, tokens: int) -> Iterator[Chunk]:
    """The pages that going on from the first `tokens` tokens needs, by group and in order.

    At most two chunks are in memory.  MalformedContext for a page that is missing or not what
    its checksum says; what came before it was sound, and is of no use.
    """
    with ThreadPoolExecutor(THREADS, "restore") as threads:
        ahead: tuple[Chunk, list[Future[None]]] | None = None
        for group, first, digests in _pieces(manifest, tokens):
            pages = np.empty((len(digests), manifest.origin.groups[group].page_bytes), np.uint8)
            coming = Chunk(group, first, pages), _start(threads, folder, digests, pages)
            if ahead is not None:
                yield _finished(*ahead)
            ahead = coming
        if ahead is not None:
            yield _finished(*ahead)


def verify(folder: Folder, manifest: Manifest, tokens: int | None = None) -> None:
    """Reads every page of the first `tokens` tokens (default: of all), and keeps none."""
    for _ in chunks(folder, manifest, manifest.held if tokens is None else tokens):
        pass


def _pieces(manifest: Manifest, tokens: int) -> Iterator[tuple[int, int, tuple[str, ...]]]:
    """Group, first page and digests of each chunk."""
    for group, (shape, run) in enumerate(zip(manifest.origin.groups, manifest.runs, strict=True)):
        step = max(1, CHUNK // max(1, shape.page_bytes))
        end = sized(tokens)
        for first in range(shape.first(tokens), end, step):
            yield group, first, run.pages[first - run.first : min(first + step, end) - run.first]


def _start(threads: ThreadPoolExecutor, folder: Folder, digests: tuple[str, ...], pages: Bytes) -> list[Future[None]]:
    step = max(1, AT_ONCE // pages[0].nbytes)
    starts = range(0, len(digests), step)
    return [threads.submit(_load, folder, digests[at : at + step], pages[at : at + step]) for at in starts]


def _load(folder: Folder, digests: tuple[str, ...], pages: Bytes) -> None:
    """In a thread: the pages of these digests into bytes [pages, page_bytes]."""
    for digest, row in zip(digests, pages, strict=True):
        try:
            page.load(folder.page(digest), digest, memoryview(row))
        except FileNotFoundError:
            raise MalformedContext(
                f"page {digest} is missing from {folder.pages}: the context was removed meanwhile, or files of it were"
            ) from None
        except OSError as error:
            raise ContextFileError(f"{folder.page(digest)} cannot be read: {error.strerror}") from error


def _finished(chunk: Chunk, loading: list[Future[None]]) -> Chunk:
    for future in loading:
        future.result()
    return chunk
