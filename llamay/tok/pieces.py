"""The pieces that text may be cut into, and those of them that begin at a place."""

from array import array
from bisect import bisect_right
from collections.abc import Iterator, Mapping


class Pieces:
    """Pieces in the order of their text, and of each the longest other one that it begins with."""

    def __init__(self, ids: Mapping[str, int]) -> None:
        texts = sorted(ids)
        self.texts = texts = texts[1:] if texts[:1] == [""] else texts
        self._ids = array("q", map(ids.__getitem__, texts))
        self._most = max(map(len, texts), default=0)
        within: list[int] = []
        last, before = -1, ""  # the piece that stands before, and within it the longest that this one begins with
        for place, text in enumerate(texts):
            while before and not text.startswith(before):
                last = within[last]
                before = texts[last] if last >= 0 else ""
            within.append(last)
            last, before = place, text
        self._within = array("q", within)

    def matches(self, text: str, at: int) -> Iterator[tuple[int, int]]:
        """(end, id) of each piece that starts at `at`, the longest first.

        All stand within the last piece that is no greater than the text from there on, so this takes the logarithm of the
        number of pieces, and a step for each that one begins with, however many lengths there are.
        """
        texts, within = self.texts, self._within
        place = bisect_right(texts, text[at : at + self._most]) - 1
        while place >= 0 and not text.startswith(texts[place], at):
            place = within[place]
        while place >= 0:
            yield at + len(texts[place]), self._ids[place]
            place = within[place]

    def longest(self, text: str, at: int) -> tuple[int, int] | None:
        """(end, id) of the longest piece that starts at `at`."""
        return next(self.matches(text, at), None)
