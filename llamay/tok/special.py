"""Which tokens are special: their kind, which of them end a generation, and how they are found in text."""

import re
import sys
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from operator import itemgetter

from llamay.tok.pieces import Pieces
from llamay.tok.vocabulary import CONTROL, NORMAL, Vocabulary

# Tokens known by their text, because files often mark them wrongly or not at all (the lists of llama.cpp).
TURN_ENDS = (
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
)
MESSAGE_END = "<|eom_id|>"
ENDS = (
    *TURN_ENDS,
    MESSAGE_END,
    *("<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "</s>", "[EOS]", "<eos>", "<turn|>", "<|tool_response>"),
    "[e~[",
)
FILL_IN_ENDS = {  # a model that fills in the middle stops at these too
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}
FILL_IN = (
    ("<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>", "<|prefix|>"),
    ("<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>", "<|suffix|>"),
    ("<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>", "<|middle|>"),
)
NO_ENDS = (  # text, tokens that tell the family, its kind there: harmony and solar go on after <|end|>
    ("<|end|>", ("<|return|>", "<|call|>"), CONTROL),
    ("<|end|>", ("<|flush|>", "<|calls|>"), CONTROL),
    ("</s>", ("<|tool_response>",), NORMAL),
)


@dataclass(frozen=True, slots=True)
class Roles:
    """What the special tokens of a vocabulary are for: `types` with the wrong ones corrected."""

    types: bytes
    end_tokens: frozenset[int]
    eot: int | None
    eom: int | None


def roles(vocabulary: Vocabulary, ids: dict[str, int]) -> Roles:
    """Decide the kinds and the end-of-generation tokens by metadata and by text."""
    special, types = vocabulary.special, bytearray(vocabulary.types)
    eot = special.get("eot", _first(TURN_ENDS, ids))
    eom = special.get("eom", ids.get(MESSAGE_END))
    fill_in = [special.get(name, _first(texts, ids)) for name, texts in FILL_IN_ENDS.items()]
    ends = {ids[text] for text in ENDS if text in ids} | {id for id in (eot, eom, *fill_in) if id is not None}
    ends |= {special[name] for name in ("eos",) if name in special}
    for id in (*(ids[text] for text in ENDS if text in ids), *fill_in, *(_first(texts, ids) for texts in FILL_IN)):
        if id is not None:
            types[id] = CONTROL
    for text, signs, type in NO_ENDS:
        if text in ids and all(sign in ids for sign in signs):
            ends.discard(ids[text])
            types[ids[text]] = type
    return Roles(bytes(types), frozenset(ends), eot, eom)


def _first(texts: Iterable[str], ids: dict[str, int]) -> int | None:
    return next((ids[text] for text in texts if text in ids), None)


def strips_after(vocabulary: Vocabulary, special: Iterable[int]) -> frozenset[int]:
    """Special tokens that swallow the white space after them; files do not say it, the family is known by name."""
    if not re.search("phi-?3", vocabulary.name.lower()):
        return frozenset()
    keep = {"<unk>", "<s>", "<|endoftext|>"}
    return frozenset(id for id in special if vocabulary.tokens[id] not in keep)


Spans = tuple[tuple[int, int], ...]


class Finder:
    """Finds the texts of some tokens in a text: leftmost first, and the longest of those that start there."""

    def __init__(self, texts: dict[str, int], restricted: frozenset[int] = frozenset()) -> None:
        """`restricted` ids are not found where they touch a plain span."""
        self._pieces, self._restricted = Pieces(texts), restricted
        starts = sorted({text[:2] for text in texts}, key=len, reverse=True)
        self._starts = re.compile("|".join(map(re.escape, starts))) if starts else None

    def search(self, text: str, at: int, plain: Spans = ()) -> tuple[int, int, int] | None:
        """(start, end, id) of the first token from `at` on; `plain` spans are in order and do not overlap."""
        while self._starts is not None and (match := self._starts.search(text, at)):
            start = match.start()
            if found := self._longest(text, start, plain):
                return start, *found
            at = start + 1
        return None

    def _longest(self, text: str, start: int, plain: Spans) -> tuple[int, int] | None:
        limit: int | None = None  # where the plain span that is next, or that holds `start`, begins
        for end, id in self._pieces.matches(text, start):
            if plain and id in self._restricted:
                limit = _limit(plain, start) if limit is None else limit
                if end > limit:
                    continue
            return end, id
        return None


def _limit(plain: Spans, start: int) -> int:
    at = bisect_right(plain, start, key=itemgetter(1))
    return plain[at][0] if at < len(plain) else sys.maxsize
