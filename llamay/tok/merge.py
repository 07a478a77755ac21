"""Merging neighbours until none may merge: the loop that both kinds of byte-pair encoding share."""

from array import array
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import pairwise

NEVER = 1 << 62
PLACE = 40  # bits of a place in a word
PLACES = (1 << PLACE) - 1
LONG = 48  # symbols from which the heap beats rescanning a list

Rank = Callable[[str, str], int]


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
    """The same with a heap over a linked list.

    An entry of the heap is one number, rank and place, which takes a third of a tuple's memory; one whose pair has
    changed since is stale, and told by its rank.
    """
    size = len(symbols)
    text: list[str | None] = list(symbols)
    after, before = array("q", range(1, size + 1)), array("q", range(-1, size - 1))
    known: dict[str, str] = {}  # equal pieces are one object
    heap: list[int] = []
    for at, (left, right) in enumerate(pairwise(symbols)):
        if (value := rank(left, right)) != NEVER:
            heap.append(value << PLACE | at)
    heapify(heap)
    while heap:
        entry = heappop(heap)
        at = entry & PLACES
        other = after[at]
        first, second = text[at], text[other] if other < size else None
        if first is None or second is None or rank(first, second) != entry >> PLACE:
            continue
        merged = first + second
        merged = known.setdefault(merged, merged)
        text[at], text[other] = merged, None
        after[at] = following = after[other]
        if following < size:
            before[following] = at
            _push(heap, rank, at, merged, text[following])
        if (previous := before[at]) >= 0:
            _push(heap, rank, previous, text[previous], merged)
    return [piece for piece in text if piece is not None]


def _push(heap: list[int], rank: Rank, place: int, left: str | None, right: str | None) -> None:
    if left is not None and right is not None and (value := rank(left, right)) != NEVER:
        heappush(heap, value << PLACE | place)
