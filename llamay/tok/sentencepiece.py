"""SentencePiece BPE: merges by score, spaces written U+2581, unknown characters spelt in bytes."""

import re
from functools import cached_property

from llamay.errors import UsageError
from llamay.tok.bpe import SPACE, byte_of
from llamay.tok.cache import WordCache
from llamay.tok.merge import NEVER, merge
from llamay.tok.vocabulary import BYTE, Vocabulary


class SentencePiece:
    """The encoder of model `llama`."""

    def __init__(self, vocabulary: Vocabulary, ids: dict[str, int], never: frozenset[int] = frozenset()) -> None:
        """`never`: the tokens that plain text must not become, even where merges lead to them."""
        self.vocabulary, self.ids, self._never = vocabulary, ids, never
        self._cache = WordCache(lambda word: self._symbols(list(word)))

    @cached_property
    def _ranks(self) -> dict[str, int]:
        """The place of a piece's score among all, the highest first; of equal pieces the first counts."""
        tokens, scores = self.vocabulary.tokens, self.vocabulary.scores
        places = {score: place for place, score in enumerate(sorted(set(scores), reverse=True))}
        return {piece: places[score] for piece, score in zip(reversed(tokens), reversed(scores), strict=True)}

    @cached_property
    def words(self) -> re.Pattern[str]:
        """The pattern of independent segments: see `segments`."""
        return segments(self.vocabulary.tokens)

    def encode(self, text: str) -> list[int]:
        """Ids of plain text (spaces still spaces); bytes that are not UTF-8 come as surrogate escapes."""
        text = text.replace(" ", SPACE)
        try:
            text.encode()
        except UnicodeEncodeError:
            return list(self._symbols(irregular(text)))
        return self._cache.ids(self.words.findall(text))

    def _symbols(self, symbols: list[str]) -> tuple[int, ...]:
        ranks = self._ranks.get
        found: list[int] = []
        for piece in merge(symbols, lambda left, right: ranks(left + right, NEVER)):
            id = self.ids.get(piece)
            if id is None or id in self._never:
                found += map(self._byte, piece.encode("utf-8", "surrogateescape"))
            else:
                found.append(id)
        return tuple(found)

    def _byte(self, byte: int) -> int:
        for name in (f"<0x{byte:02X}>", chr(byte) if byte < 128 else None):
            if name is not None and (id := self.ids.get(name)) is not None:
                return id
        if (unknown := self.vocabulary.special.get("unknown")) is None:
            raise UsageError(f"the vocabulary has no token for byte 0x{byte:02X} and no unknown token")
        return unknown

    def unspellable(self) -> list[int]:
        """The bytes that no token stands for; none when there is an unknown token for them."""
        if "unknown" in self.vocabulary.special:
            return []
        return [byte for byte in range(256) if f"<0x{byte:02X}>" not in self.ids]

    def piece(self, id: int) -> bytes:
        """The bytes a normal or byte token stands for."""
        text = self.vocabulary.tokens[id]
        if self.vocabulary.types[id] == BYTE and (byte := byte_of(text)) is not None:
            return byte
        return text.replace(SPACE, " ").encode("utf-8", "surrogateescape")


def segments(tokens: tuple[str, ...]) -> re.Pattern[str]:
    """A pattern whose matches can be encoded apart from each other, by analysis of the pieces.

    Merges make pieces of the vocabulary only, so a merge across a cut between characters a and b needs a piece with
    a directly before b. Text is cut before each run of U+2581 whose previous character never stands before U+2581 in a
    piece, and around each run of newlines when no piece has a newline next to anything else.
    """
    joined = "\0".join(tokens)
    before_space = "".join(sorted(set(re.findall(rf"([^\0{SPACE}]){SPACE}", joined))))
    lines = not re.search(r"[^\0\n]\n|\n[^\0\n]", joined)
    other = rf"[^{SPACE}\n]" if lines else f"[^{SPACE}]"
    word = rf"{SPACE}*{other}+"
    if before_space:
        word += rf"(?:(?<=[{re.escape(before_space)}]){SPACE}+{other}*)*"
    return re.compile(rf"{word}|{SPACE}+|\n+" if lines else rf"{word}|{SPACE}+")


def irregular(text: str) -> list[str]:
    """Symbols of text with bytes that are not UTF-8 in it: a lead byte takes as many bytes as it announces.

    This is how the reference reads such text, so an incomplete character swallows what follows it.
    """
    raw, symbols, at = text.encode("utf-8", "surrogateescape"), [], 0
    while at < len(raw):
        size = (1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4)[raw[at] >> 4]
        symbols.append(raw[at : at + size].decode("utf-8", "surrogateescape"))
        at += size
    return symbols
