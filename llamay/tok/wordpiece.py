"""WordPiece, the tokenizer of BERT: text folded character by character, words from their longest known pieces."""

import unicodedata
from functools import cached_property

from llamay.tok.bpe import SPACE, replaced
from llamay.tok.cache import WordCache
from llamay.tok.pieces import Pieces
from llamay.tok.vocabulary import Vocabulary

LONGEST_WORD = 100  # characters; a longer word is unknown as a whole
LARGEST_TABLE = 1 << 16  # characters whose folding is remembered
SIGNS = frozenset("$+<=>^`|~")  # ASCII that counts as punctuation beside the categories P*
REMOVED = ("Cc", "Cf", "Co", "Cs")
IDEOGRAPHS = (
    range(0x3400, 0x4DC0),
    range(0x4E00, 0xA000),
    range(0xF900, 0xFB00),
    range(0x20000, 0x2A6E0),
    range(0x2A700, 0x2B820),
    range(0x2B820, 0x2CEB0),
    range(0x2F800, 0x2FA20),
)


class Folding(dict[int, str]):
    """For `str.translate`: what BERT makes of each character, worked out when it is first met.

    Control and format characters go, white space becomes one space, ideographs and punctuation stand alone.  `accents`
    are taken off (canonical decomposition without its nonspacing marks) and letters made small where asked for.
    """

    def __init__(self, *, lowercase: bool, strip_accents: bool) -> None:
        super().__init__()
        self._lowercase, self._strip_accents = lowercase, strip_accents

    def __missing__(self, point: int) -> str:
        if len(self) >= LARGEST_TABLE:
            self.clear()
        self[point] = folded = self._fold(chr(point))
        return folded

    def _fold(self, character: str) -> str:
        if character in "\t\n\r":
            return " "
        if character in "\0\ufffd" or unicodedata.category(character) in REMOVED:
            return ""
        if character.isspace():
            return " "
        alone = any(ord(character) in block for block in IDEOGRAPHS)
        if self._strip_accents:
            parts = unicodedata.normalize("NFD", character)
            character = "".join(part for part in parts if unicodedata.category(part) != "Mn")
        if self._lowercase:
            character = character.replace("Σ", "σ").lower()  # no final sigma: each character by itself
        folded = "".join(f" {part} " if _is_punctuation(part) else part for part in character)
        return f" {folded} " if alone else folded


class WordPiece:
    """The encoder of model `bert`: pieces that begin a word are written with U+2581 before them."""

    def __init__(self, vocabulary: Vocabulary, never: frozenset[int] = frozenset()) -> None:
        """`never`: the tokens that plain text must not become."""
        self.vocabulary, self._never = vocabulary, never
        self._cache = WordCache(self._word)
        lowercase = vocabulary.lowercase is not False
        strips = lowercase if vocabulary.strip_accents is None else vocabulary.strip_accents
        self._folding = Folding(lowercase=lowercase, strip_accents=strips)

    @cached_property
    def _tables(self) -> tuple[Pieces, Pieces]:
        """The pieces that begin a word, and those that go on with one."""
        first: dict[str, int] = {}
        later: dict[str, int] = {}
        for id, piece in enumerate(self.vocabulary.tokens):
            if id not in self._never:
                begins = piece.startswith(SPACE)
                (first if begins else later).setdefault(piece[begins:], id)
        return Pieces(first), Pieces(later)

    def words(self, text: str) -> list[str]:
        """The words of a text, as they are looked up."""
        return replaced(text).translate(self._folding).split()

    def encode(self, text: str) -> list[int]:
        """Ids of plain text; bytes that are not UTF-8 come as surrogate escapes, and are dropped."""
        return self._cache.ids(self.words(text))

    def _word(self, word: str) -> tuple[int, ...]:
        unknown = self.vocabulary.special.get("unknown")
        nothing = () if unknown is None else (unknown,)
        if len(word) > LONGEST_WORD:
            return nothing
        pieces, later = self._tables
        found: list[int] = []
        at = 0
        while at < len(word):
            match = pieces.longest(word, at)
            if match is None:
                return nothing
            at, id = match
            found.append(id)
            pieces = later
        return tuple(found)

    def unspellable(self) -> list[int]:
        """No byte is said to be lost: what has no piece is the unknown token."""
        return []

    def piece(self, id: int) -> bytes:
        """The bytes a piece stands for, with a space where it begins a word."""
        text = self.vocabulary.tokens[id]
        text = " " + text[1:] if text.startswith(SPACE) else text
        return text.encode("utf-8", "surrogateescape")


def _is_punctuation(character: str) -> bool:
    return character in SIGNS or unicodedata.category(character).startswith("P")
