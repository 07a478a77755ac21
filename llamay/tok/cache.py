"""A bounded memory of words already encoded: prose repeats itself."""

from collections.abc import Callable, Iterable

CAPACITY = 1 << 16
LONGEST = 64  # characters; longer words hardly come twice


class WordCache:
    """Ids of words by their text; `encode` is asked on a miss."""

    def __init__(self, encode: Callable[[str], tuple[int, ...]]) -> None:
        self._encode = encode
        self._known: dict[str, tuple[int, ...]] = {}

    def ids(self, words: Iterable[str]) -> list[int]:
        """The ids of all words, one after the other."""
        known = self._known
        found: list[int] = []
        for word in words:
            ids = known.get(word)
            if ids is None:
                ids = self._encode(word)
                if len(word) <= LONGEST:
                    if len(known) >= CAPACITY:
                        known.clear()
                    known[word] = ids
            found += ids
        return found
