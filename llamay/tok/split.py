"""Cutting text into words as one row of the pre-tokenizer table says."""

from itertools import pairwise
from typing import Any

import regex

from llamay.tok.pretokenizers import Pre


class Splitter:
    """The compiled patterns of one way to cut."""

    def __init__(self, pre: Pre) -> None:
        self._digits: Any = regex.compile(pre.digits) if pre.digits else None
        self._patterns: list[Any] = [regex.compile(pattern) for pattern in pre.patterns]

    def words(self, text: str) -> list[str]:
        """The words of `text`, in order; together they are the text."""
        fragments = self._threes(text) if self._digits else [text]
        for pattern in self._patterns:
            fragments = [word for fragment in fragments for word in _cut(pattern, fragment)]
        return fragments

    def _threes(self, text: str) -> list[str]:
        """Every run of digits cut into threes from its right end, and what lies between the runs."""
        found, at = [], 0
        for match in self._digits.finditer(text):
            start, end = match.span()
            if start > at:
                found.append(text[at:start])
            first = start + (end - start) % 3
            stops = [start, *range(first, end + 1, 3)] if first > start else range(start, end + 1, 3)
            found += [text[a:b] for a, b in pairwise(stops)]
            at = end
        return [*found, text[at:]] if at < len(text) else found


def _cut(pattern: Any, text: str) -> list[str]:
    """The matches of a pattern and the gaps between them."""
    words: list[str] = pattern.findall(text)
    if sum(map(len, words)) == len(text):
        return words
    words, at = [], 0
    for match in pattern.finditer(text):
        start, end = match.span()
        if start > at:
            words.append(text[at:start])
        if end > start:
            words.append(text[start:end])
        at = end
    return [*words, text[at:]] if at < len(text) else words
