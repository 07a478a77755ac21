"""The table of pre-tokenizers: how words are cut, and what happens to a name nobody knows."""

import re
import time
from typing import Any

import pytest

from llamay.tok import Tokenizer, Vocabulary, load
from llamay.tok.bpe import LETTERS
from llamay.tok.pretokenizers import PRETOKENIZERS
from llamay.tok.split import Splitter
from llamay.tok.vocabulary import CONTROL, NORMAL

TEXT = "I'll see 12345 naïve x²-y HelloWORLDfoo  \n\n  tab\tend... नमस्ते 世界abc!!\r\n 1,234 DON'T  "

WORDS = [
    ("gpt-2", "I'll 123 a!", ["I", "'ll", " 123", " a", "!"]),
    ("smollm", "a 123", ["a", " ", "1", "2", "3"]),
    ("llama-bpe", "DON'T 12345\n\n x", ["DON", "'T", " ", "123", "45", "\n\n", " x"]),
    ("qwen2", "a123  b", ["a", "1", "2", "3", " ", " b"]),
    ("gpt-4o", "HelloWORLD DON'T x 1234", ["Hello", "WORLD", " DON'T", " x", " ", "123", "4"]),
    ("gpt-4o", "नमस्ते", ["नमस्ते"]),
    ("qwen2", "नमस्ते", ["नमस", "्त", "े"]),
    ("tekken", "HelloWORLD 12", ["Hello", "WORLD", " ", "1", "2"]),
    ("deepseek-v3", "世界abc12345", ["世界", "abc", "123", "45"]),
    ("tiny_aya", "1234567 12a", ["1", "234", "567", " ", "12", "a"]),
    ("afmoe", "x1234567", ["x", "1", "234", "567"]),
    ("superbpe", "a1234567b", ["a", "1", "234", "567", "b"]),
    ("kimi-k2", "世界abc世DEf", ["世界", "abc", "世", "DEf"]),
    ("gemma4", "a b\n\nc", ["a b", "\n\n", "c"]),
    ("default", "a12345", ["a", "123", "45"]),
]


@pytest.mark.parametrize("name", ["tiny_aya", "afmoe", "superbpe"])
def test_a_long_number_is_not_slow(name: str) -> None:
    """One that a letter ends is no run of digits for some, and is not looked at again from each of its digits."""
    start = time.process_time()
    words = Splitter(PRETOKENIZERS[name]).words("1" * 60_000 + "x")
    assert "".join(words) == "1" * 60_000 + "x"
    assert time.process_time() - start < 4


@pytest.mark.parametrize(("name", "text", "words"), WORDS)
def test_words(name: str, text: str, words: list[str]) -> None:
    assert Splitter(PRETOKENIZERS[name]).words(text) == words


@pytest.mark.parametrize("name", PRETOKENIZERS)
def test_every_row_compiles_and_loses_nothing(name: str) -> None:
    words = Splitter(PRETOKENIZERS[name]).words(TEXT)
    assert "".join(words) == TEXT and "" not in words and len(words) > 1


def test_the_table_has_every_name_the_reference_knows() -> None:
    assert len(PRETOKENIZERS) >= 91
    needed = ("gpt-2", "smollm", "llama-bpe", "qwen2", "gpt-4o", "llama4", "tekken", "falcon", "deepseek-v3", "command-r")
    assert PRETOKENIZERS.keys() >= set(needed)


def vocabulary(pre: str | None, pieces: list[str], merges: list[str], special: tuple[str, ...] = ()) -> Vocabulary:
    tokens = (*LETTERS, *pieces, *special)
    types = bytes([NORMAL]) * (256 + len(pieces)) + bytes([CONTROL]) * len(special)
    return Vocabulary("gpt2", tokens, types, pre=pre, merges=tuple(merges))


def test_o200k() -> None:
    """A hand-made vocabulary in the manner of gpt-oss: merges reach only as far as its words do."""
    merges = ["H e", "l l", "He ll", "Hell o", "W O", "R L", "WO RL", "WORL D", "o W", "' T", "N 'T", "1 2", "12 3", "123 4"]
    pieces = ["".join(merge.split(" ")) for merge in merges]
    special = ("<|start|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>")
    tokenizer = Tokenizer(vocabulary("gpt-4o", pieces, merges, special))
    shown = [tokenizer.token_bytes(id).decode() for id in tokenizer.encode("HelloWORLD DON'T 1234")]
    assert shown == ["Hello", "WORLD", " ", "D", "O", "N'T", " ", "123", "4"]
    assert tokenizer.guessed is None and tokenizer.pre == "gpt-4o"
    assert {tokenizer.vocabulary.tokens[id] for id in tokenizer.end_tokens} == {"<|return|>", "<|call|>"}
    ids = tokenizer.encode("<|start|>user<|message|>Hello<|end|>", parse_special=True)
    assert tokenizer.text(ids, special=True) == "<|start|>user<|message|>Hello<|end|>"
    assert [id for id in ids if id >= 256 + len(pieces)] == [tokenizer.ids[text] for text in special[:3]]


@pytest.mark.parametrize(
    ("pre", "special", "name", "reason"),
    [
        (None, (), "default", "tokenizer.ggml.pre is missing"),
        ("brand-new", ("<|start_header_id|>",), "llama-bpe", "'brand-new' is unknown.*its token <|start_header_id|>"),
        ("brand-new", ("<|return|>",), "gpt-4o", "its token <|return|>"),
        ("brand-new", (), "gpt-2", "its 257 tokens"),
    ],
)
def test_an_unknown_name_is_guessed_and_said(pre: str | None, special: tuple[str, ...], name: str, reason: str) -> None:
    tokenizer = Tokenizer(vocabulary(pre, ["ab"], ["a b"], special))
    assert tokenizer.pre == name and tokenizer.guessed is not None
    assert re.search(reason.replace("|", r"\|"), tokenizer.guessed)
    assert tokenizer.decode(tokenizer.encode(TEXT)) == TEXT.encode()


def test_ignore_merges_takes_whole_words() -> None:
    """A word that is a token is taken although no merges lead to it."""
    whole = Tokenizer(vocabulary("llama-bpe", ["hello"], []))
    merged = Tokenizer(vocabulary("qwen2", ["hello"], []))
    assert whole.encode("hello") == [256] and len(merged.encode("hello")) == 5


def test_raw_pieces_spell_unknown_characters_in_bytes() -> None:
    tokens = (*(f"<0x{byte:02X}>" for byte in range(256)), "▁", "a", "b", "▁a", "\n")
    types = bytes([6]) * 256 + bytes([NORMAL]) * 5
    tokenizer = Tokenizer(Vocabulary("gemma4", tokens, types, merges=("▁ a",)))
    assert tokenizer.encode("a a\né") == [257, 259, 260, 0xC3, 0xA9]
    assert tokenizer.text([257, 259, 260, 0xC3, 0xA9]) == "a a\né"
    assert tokenizer.kind == "BPE" and tokenizer.guessed is None


def test_bytes_without_a_token_are_announced() -> None:
    tokens = tuple(letter for letter in LETTERS if letter != "!")
    tokenizer = Tokenizer(Vocabulary("gpt2", tokens, bytes([NORMAL]) * 255, pre="gpt-2"))
    assert "1 of the bytes (0x21)" in tokenizer.notes[0]
    assert tokenizer.decode(tokenizer.encode("a!b")) == b"ab"


REPEATED = (
    *("a", "A", "aA", "1", "1,", " ", "x ", "x  ", "\n", "\n ", " \r\n ", "\t", "\0", "\xa0", ".", ". ", "'", "'s", "<", "<|im"),
    *("\u0301", "a\u0301", "\ufffd", "\u2581", "世", "ᄀ", "👩\u200d", "\ud83d", "IMGIMG", "<sentinel:1", " " * 50 + "x"),
)
ENDED = (" " * 39_999 + "x", "1" * 39_999 + "x", "a" * 39_999 + " ")


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", sorted({pre: name for name, pre in sorted(PRETOKENIZERS.items(), reverse=True)}.values()))
def test_no_text_is_slow(name: str, metadata: Any) -> None:
    """40,000 characters of anything that is repeated take well below a second: time grows with the length, not its square."""
    tokenizer = load({**metadata("tiny-bpe-gpt2"), "tokenizer.ggml.pre": name})
    for text in (*((part * 40_000)[:40_000] for part in REPEATED), *ENDED):
        start = time.process_time()
        tokenizer.encode(text)
        assert time.process_time() - start < 3, text[:20]
