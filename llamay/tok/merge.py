"""Merging neighbours until none may merge: the loop that both kinds of byte-pair encoding share."""

from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import pairwise

NEVER = float("inf")
LONG = 48  # symbols from which the heap beats rescanning a list

Rank = Callable[[str, str], float]


def merge(symbols: list[str], rank: Rank) -> list[str]:
    """Merge the pair of lowest rank, leftmost first, until every neighbouring pair ranks NEVER.

    `rank(left, right)` must depend on its arguments alone. Takes O(n log n) calls at worst.
    """
    if len(symbols) >= LONG:
        return _merge_long(symbols, rank)
    symbols = list(symbols)
    ranks = [rank(left, right) for left, right in pairwise(symbols)]
    while ranks and (best := min(ranks)) != NEVER:
        at = ranks.index(best)
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
        del ranks[at]
        if at:
            ranks[at - 1] = rank(symbols[at - 1], symbols[at])
        if at < len(ranks):
            ranks[at] = rank(symbols[at], symbols[at + 1])
    return symbols


def _merge_long(symbols: list[str], rank: Rank) -> list[str]:
    """The same with a heap over a linked list; a heap entry whose pair has changed since is stale."""
    size = len(symbols)
    text: list[str | None] = list(symbols)
    after, before = list(range(1, size + 1)), list(range(-1, size - 1))
    heap = [(rank(symbols[i], symbols[i + 1]), i, symbols[i], symbols[i + 1]) for i in range(size - 1)]
    heap = [entry for entry in heap if entry[0] != NEVER]
    heapify(heap)
    while heap:
        _, at, left, right = heappop(heap)
        other = after[at]
        if other >= size or text[at] != left or text[other] != right:
            continue
        merged = left + right
        text[at], text[other] = merged, None
        after[at] = following = after[other]
        if following < size:
            before[following] = at
            _push(heap, rank, at, merged, text[following])
        if (previous := before[at]) >= 0:
            _push(heap, rank, previous, text[previous], merged)
    return [piece for piece in text if piece is not None]


def _push(heap: list[tuple[float, int, str, str]], rank: Rank, at: int, left: str | None, right: str | None) -> None:
    if left is not None and right is not None and (value := rank(left, right)) != NEVER:
        heappush(heap, (value, at, left, right))
