"""Byte-level BPE: words of text to ids by ranked merges, and pieces back to bytes."""

import re
from functools import cached_property

from llamay.tok.cache import WordCache
from llamay.tok.merge import NEVER, merge
from llamay.tok.pretokenizers import Pre
from llamay.tok.split import Splitter
from llamay.tok.vocabulary import BYTE, Vocabulary

SPACE = "▁"


def _letters() -> str:
    """The letter GPT-2 writes for each byte: printable Latin-1 stands for itself, the rest from U+0100 on."""
    plain = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    spare = iter(range(0x100, 0x200))
    return "".join(chr(byte) if byte in plain else chr(next(spare)) for byte in range(256))


LETTERS = _letters()
BYTES = {letter: byte for byte, letter in enumerate(LETTERS)}


class BytePairs:
    """The encoder of models `gpt2` (pieces in byte letters) and `gemma4` (raw pieces, bytes as <0xXX>)."""

    def __init__(self, vocabulary: Vocabulary, pre: Pre, ids: dict[str, int], never: frozenset[int]) -> None:
        """`never`: the tokens that plain text must not become, even where merges lead to them."""
        self.vocabulary, self.pre, self.ids, self._never = vocabulary, pre, ids, never
        self._cache = WordCache(self._word)

    @cached_property
    def _splitter(self) -> Splitter:
        return Splitter(self.pre)

    @cached_property
    def _ranks(self) -> dict[str, int]:
        """Rank by the two pieces with a space between; the first of equal lines counts."""
        merges = self.vocabulary.merges
        return dict(zip(reversed(merges), range(len(merges) - 1, -1, -1), strict=True))

    def encode(self, text: str) -> list[int]:
        """Ids of plain text: nothing in it is special; bytes that are not UTF-8 come as surrogate escapes."""
        text = replaced(text)
        if self.pre.escape_spaces:
            text = text.replace(" ", SPACE)
        return self._cache.ids(self._splitter.words(text))

    def _word(self, word: str) -> tuple[int, ...]:
        symbols = word if self.pre.raw else word.encode("utf-8", "surrogatepass").decode("latin-1").translate(LETTERS)
        if self.pre.ignore_merges and (id := self.ids.get(symbols)) is not None and id not in self._never:
            return (id,)
        ranks = self._ranks.get
        found: list[int] = []
        for piece in merge(list(symbols), lambda left, right: ranks(f"{left} {right}", NEVER)):
            id = self.ids.get(piece)
            if id is None or id in self._never:  # spelt in bytes; those without a token drop out: see `unspellable`
                found += [self.ids[part] for part in self._parts(piece) if part in self.ids]
            else:
                found.append(id)
        return tuple(found)

    def _parts(self, piece: str) -> list[str]:
        """What a piece without a token is spelt with: its letters, or byte tokens."""
        if not self.pre.raw:
            return list(piece)
        return [f"<0x{byte:02X}>" for byte in piece.encode("utf-8", "surrogatepass")]

    def unspellable(self) -> list[int]:
        """The bytes that text may hold and no token stands for."""
        parts = [f"<0x{byte:02X}>" for byte in range(256)] if self.pre.raw else list(LETTERS)
        never = {0xC0, 0xC1, *range(0xF5, 0x100)}  # not in UTF-8
        return [byte for byte, part in enumerate(parts) if part not in self.ids and byte not in never]

    def piece(self, id: int) -> bytes:
        """The bytes a normal or byte token stands for; what has no byte letter is kept as text."""
        text = self.vocabulary.tokens[id]
        if self.pre.raw:
            if self.vocabulary.types[id] == BYTE and (byte := byte_of(text)) is not None:
                return byte
            return text.replace(SPACE, " ").encode("utf-8", "surrogateescape")
        try:
            return bytes([BYTES[letter] for letter in text])
        except KeyError:
            return text.encode("utf-8", "surrogateescape")


_ENCODED_SURROGATE = re.compile("\udced[\udca0-\udcbf][\udc80-\udcbf]")
_ESCAPE = re.compile("[\udc80-\udcff]")


def replaced(text: str) -> str:
    """Text with U+FFFD for each byte that is not UTF-8; surrogates encoded as three bytes stay, as in the reference."""
    if not _ESCAPE.search(text):
        return text
    parts, at = [], 0
    for match in _ENCODED_SURROGATE.finditer(text):
        three = match.group().encode("utf-8", "surrogateescape")
        parts += [_ESCAPE.sub("\ufffd", text[at : match.start()]), three.decode("utf-8", "surrogatepass")]
        at = match.end()
    return "".join([*parts, _ESCAPE.sub("\ufffd", text[at:])])


def byte_of(text: str) -> bytes | None:
    """The byte that a piece spelt <0xXX> means."""
    if len(text) == 6 and text.startswith("<0x") and text.endswith(">"):
        try:
            return bytes([int(text[3:5], 16)])
        except ValueError:
            return None
    return None
