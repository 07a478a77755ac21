"""WordPiece: every case as llama.cpp has it, and as BERT's own tokenizer has it where those two differ."""

import time
import unicodedata
from typing import Any

import pytest

from llamay import tok
from llamay.tok import Tokenizer, Vocabulary
from llamay.tok.vocabulary import CONTROL, NORMAL

TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁un", "aff", "able", "▁a", "▁e", "▁!", "▁中", "▁A", "▁é", "▁σ", "▁", "b")
SPECIAL = {"padding": 0, "unknown": 1, "bos": 2, "seperator": 3}


def make(**flags: Any) -> Tokenizer:
    types = bytes([CONTROL] * 4 + [NORMAL] * (len(TOKENS) - 4))
    return Tokenizer(Vocabulary("bert", TOKENS, types, special=SPECIAL, **flags))


def test_every_case(load: Any, made: Any, strings: Any) -> None:
    tokenizer, cases = load("tiny-wp"), made("tiny-wp")
    expected = [cases["vendor"].get(str(at), ids) for at, ids in enumerate(cases["ids"])]
    texts = [one["text"] for one in strings["strings"]]
    found = [tokenizer.encode(text) for text in texts]
    assert [case for case in zip(texts, found, expected, strict=True) if case[1] != case[2]] == []
    assert len(cases["vendor"]) == 4
    raw = [bytes.fromhex(text) for text in strings["invalid_utf8_hex"]]
    assert [tokenizer.encode(text) for text in raw] == cases["invalid_utf8"]
    assert [tokenizer.encode(text, parse_special=True) for text in strings["special"]] == cases["special_parsed"]
    for text, ids in cases["with_add_special"].items():
        assert tokenizer.encode(text, add_special=True) == ids


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("unaffable", ["▁un", "aff", "able"]),
        ("UNAFFABLE!", ["▁un", "aff", "able", "▁!"]),
        ("a\x85b", ["▁a", "b"]),  # U+0085 is a control character, and goes
        ("a\u00a0é\u3000a", ["▁a", "▁e", "▁a"]),
        ("a\u0301\u200b", ["▁a"]),
        ("中中a", ["▁中", "▁中", "▁a"]),
        ("Σ ς", ["▁σ", "[UNK]"]),  # no final sigma
        ("affable", ["[UNK]"]),
        ("a▁a", ["[UNK]"]),  # nor does the mark of a word's beginning begin one inside
        ("a" + "b" * 99, ["▁a"] + ["b"] * 99),
        ("a" + "b" * 100, ["[UNK]"]),
        ("[CLS] [MASK]", ["[UNK]"] * 6),
        ("\0\ufffd", []),
    ],
)
def test_words(text: str, pieces: list[str]) -> None:
    assert [TOKENS[id] for id in make().encode(text)] == pieces


def test_a_cased_model_keeps_letters_and_accents() -> None:
    assert [TOKENS[id] for id in make(lowercase=False).encode("A é e\u0301")] == ["▁A", "▁é", "[UNK]"]
    assert [TOKENS[id] for id in make(lowercase=False, strip_accents=True).encode("A é")] == ["▁A", "▁e"]


def test_pairs_are_parted_by_a_separator_and_told_apart() -> None:
    ids, kinds = make().pair(make().encode("a"), make().encode("un a"))
    assert [TOKENS[id] for id in ids] == ["[CLS]", "▁a", "[SEP]", "▁un", "▁a", "[SEP]"]
    assert kinds == [0, 0, 0, 1, 1, 1]


def test_text_comes_back_with_its_words_apart() -> None:
    tokenizer = make()
    assert tokenizer.kind == "WordPiece" and tokenizer.least("x" * 999) == 0
    assert tokenizer.text(tokenizer.encode("Unaffable  a!", add_special=True)) == "unaffable a !"


def test_without_an_unknown_token_such_words_drop_out() -> None:
    types = bytes([NORMAL] * len(TOKENS))
    assert Tokenizer(Vocabulary("bert", TOKENS, types)).encode("xyz a") == [7]


def test_every_character_folds_as_the_definition_says(load: Any) -> None:
    """The table by character equals decomposing the whole text, which is how BERT's definition puts it."""
    folding = load("tiny-wp")._encoder._folding
    text = "".join(chr(point) for point in range(0x20, 0x3000) if unicodedata.category(chr(point)) not in ("Cn", "Cc", "Cf"))
    plain = "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")
    assert "".join(text.translate(folding).split()) == "".join("".join(c.lower() for c in plain).split())


@pytest.mark.parametrize("text", ["a" * 300_000, "a " * 150_000, "\u0301\u0316" * 100_000, "中" * 200_000, "!é" * 100_000])
def test_no_text_is_slow(text: str, metadata: Any) -> None:
    start = time.process_time()
    tok.load(metadata("tiny-wp")).encode(text)
    assert time.process_time() - start < 3
