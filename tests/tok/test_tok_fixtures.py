"""Every case of the tiny vocabularies equals the reference: llama.cpp, and a second one that agrees with it."""

from typing import Any

from llamay.tok import Tokenizer


def differing(expected: list[Any], found: list[Any], sources: list[Any]) -> list[Any]:
    return [case for case in zip(sources, found, expected, strict=True) if case[1] != case[2]]


def test_plain_text(tiny: Tokenizer, cases: Any, strings: Any) -> None:
    texts = [string["text"] for string in strings["strings"]]
    assert len(texts) > 150
    assert differing(cases["ids"], [tiny.encode(text) for text in texts], texts) == []


def test_round_trip_is_byte_exact(tiny: Tokenizer, cases: Any, strings: Any) -> None:
    """Also where the reference's own detokenizer cleans spaces away, which it does for some BPE files by default."""
    texts = [string["text"] for string in strings["strings"]]
    decoded = [tiny.decode(ids) for ids in cases["ids"]]
    assert decoded == [text.encode() for text in texts]
    cleaned = differing([bytes.fromhex(text) for text in cases["detokenized_hex"]], decoded, texts)
    assert len(cleaned) <= 3 and all(len(expected) < len(found) for _, found, expected in cleaned)


def test_special_text_parsed(tiny: Tokenizer, cases: Any, strings: Any) -> None:
    found = [tiny.encode(text, parse_special=True) for text in strings["special"]]
    assert differing(cases["special_parsed"], found, strings["special"]) == []
    assert found != cases["special_as_text"]


def test_special_text_as_text(tiny: Tokenizer, cases: Any, strings: Any) -> None:
    found = [tiny.encode(text) for text in strings["special"]]
    assert differing(cases["special_as_text"], found, strings["special"]) == []
    marked = [tiny.encode(text, parse_special=True, plain=((0, len(text)),)) for text in strings["special"]]
    assert differing(cases["special_as_text"], marked, strings["special"]) == []


def test_bytes_that_are_not_utf8(tiny: Tokenizer, cases: Any, strings: Any) -> None:
    raw = [bytes.fromhex(text) for text in strings["invalid_utf8_hex"]]
    assert differing(cases["invalid_utf8"], [tiny.encode(text) for text in raw], raw) == []


def test_added_tokens(tiny: Tokenizer, cases: Any) -> None:
    texts, expected = list(cases["with_add_special"]), list(cases["with_add_special"].values())
    assert len(texts) == 4
    assert differing(expected, [tiny.encode(text, add_special=True) for text in texts], texts) == []
    for text in texts:
        assert tiny.decode(tiny.encode(text, add_special=True)) == text.encode()
