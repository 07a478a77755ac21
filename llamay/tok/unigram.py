"""Unigram, the tokenizer of T5 and XLM-R: the likeliest of all ways to cut a text into pieces (Kudo, arXiv 1804.10959)."""

import re
from functools import cached_property
from itertools import groupby

from llamay.tok.bpe import SPACE, byte_of, replaced
from llamay.tok.cache import WordCache
from llamay.tok.charsmap import Charsmap
from llamay.tok.pieces import Pieces
from llamay.tok.sentencepiece import segments
from llamay.tok.vocabulary import BYTE, NORMAL, UNUSED, USER_DEFINED, Vocabulary

PENALTY = 10.0  # of a character without a piece, below the worst score of a piece
LONGEST = 512  # characters of a piece that is looked for: real ones have 16, but for what users defined
CUTTABLE = (NORMAL, USER_DEFINED, UNUSED)  # kinds of tokens that text may become


class Unigram:
    """The encoder of model `t5`."""

    def __init__(self, vocabulary: Vocabulary, never: frozenset[int] = frozenset()) -> None:
        """`never`: the tokens that plain text must not become."""
        self.vocabulary, self._never = vocabulary, never
        self._cache = WordCache(self._likeliest)
        self._charsmap = Charsmap(vocabulary.charsmap) if vocabulary.charsmap else None

    @cached_property
    def _pieces(self) -> Pieces:
        types, tokens = self.vocabulary.types, self.vocabulary.tokens
        fitting = [id for id in range(len(tokens)) if types[id] in CUTTABLE and id not in self._never]
        return Pieces({tokens[id]: id for id in reversed(fitting) if len(tokens[id]) <= LONGEST})

    def overlong(self) -> int:
        """How many pieces are longer than LONGEST, and so not looked for."""
        tokens, types = self.vocabulary.tokens, self.vocabulary.types
        return sum(len(text) > LONGEST and types[id] in CUTTABLE for id, text in enumerate(tokens))

    @cached_property
    def _scores(self) -> tuple[float, ...]:
        types = self.vocabulary.types
        return tuple(
            0.0 if types[id] == USER_DEFINED else score for id, score in enumerate(self.vocabulary.scores)
        )

    @cached_property
    def _unknown_score(self) -> float:
        normal = (score for score, type in zip(self.vocabulary.scores, self.vocabulary.types, strict=True) if type == NORMAL)
        return min(normal, default=0.0) - PENALTY

    @cached_property
    def _words(self) -> re.Pattern[str]:
        """Parts that no piece spans, whose likeliest cuts together are that of the whole."""
        return segments(tuple(self._pieces.texts))

    def normal(self, text: str) -> str:
        """The text as it is cut: characters replaced as the file says, runs of spaces one U+2581, none at the end."""
        if self._charsmap is not None:
            text = self._charsmap.replace(text)
        text = replaced(text)  # only now: a map may take U+FFFD away
        if self.vocabulary.squeeze is not False:
            text = re.sub("  +", " ", text).rstrip(" ")
        return text.replace(" ", SPACE)

    def encode(self, text: str) -> list[int]:
        """Ids of plain text (spaces still spaces); bytes that are not UTF-8 come as surrogate escapes."""
        ids = self._cache.ids(self._words.findall(self.normal(text)))
        unknown = self.vocabulary.special.get("unknown")
        if unknown not in ids:
            return ids
        return [id for id, run in groupby(ids) for _ in ([id] if id == unknown else run)]  # one for a run of them

    def _likeliest(self, word: str) -> tuple[int, ...]:
        """Viterbi: `best[at]` is the score, the token and the start of what ends the best cut of the first `at` characters.

        Of equal scores the longer last piece stays.  A character that is no piece may be unknown; where the vocabulary
        has no token for that it is left out.
        """
        unknown = self.vocabulary.special.get("unknown", -1)
        matches, scores = self._pieces.matches, self._scores
        best: list[tuple[float, int, int] | None] = [None] * (len(word) + 1)
        best[0] = (0.0, -1, 0)
        for at in range(len(word)):
            here = best[at]
            if here is None:
                continue
            whole = here[0]
            alone = False
            for end, id in matches(word, at):
                alone = alone or end == at + 1
                score = whole + scores[id]
                known = best[end]
                if known is None or score > known[0]:
                    best[end] = (score, id, at)
            if not alone:
                score = whole + self._unknown_score
                known = best[at + 1]
                if known is None or score > known[0]:
                    best[at + 1] = (score, unknown, at)
        found = []
        end = len(word)
        while end:
            _, id, start = best[end] or (0.0, -1, end - 1)
            if id >= 0:
                found.append(id)
            end = start
        return tuple(reversed(found))

    def unspellable(self) -> list[int]:
        """No byte is said to be lost: what has no piece is the unknown token."""
        return []

    def piece(self, id: int) -> bytes:
        """The bytes a token stands for."""
        text = self.vocabulary.tokens[id]
        if self.vocabulary.types[id] == BYTE and (byte := byte_of(text)) is not None:
            return byte
        return text.replace(SPACE, " ").encode("utf-8", "surrogateescape")
