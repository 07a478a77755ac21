"""Special tokens: kinds, ends of a generation, and how they are found in text."""

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamay.tok import Tokenizer, Vocabulary
from llamay.tok.bpe import LETTERS
from llamay.tok.pieces import Pieces
from llamay.tok.special import Finder
from llamay.tok.vocabulary import CONTROL, NORMAL, UNUSED, USER_DEFINED


def bpe(extra: dict[str, int], **fields: Any) -> Tokenizer:
    """All single bytes, then the given tokens with their types, from id 256 on."""
    types = bytes([NORMAL]) * 256 + bytes(extra.values())
    return Tokenizer(Vocabulary("gpt2", (*LETTERS, *extra), types, pre="gpt-2", **fields))


def test_user_defined_tokens_are_found_in_plain_text_longest_first() -> None:
    tokenizer = bpe({"<a>": USER_DEFINED, "<a><b>": USER_DEFINED, "  ": USER_DEFINED, "<c>": CONTROL})
    assert tokenizer.encode("x<a><b><a>") == [LETTERS.index("x"), 257, 256]
    assert tokenizer.encode("     ") == [258, 258, LETTERS.index("Ġ")]
    assert 259 not in tokenizer.encode("<c>") and tokenizer.encode("<c>", parse_special=True) == [259]
    assert tokenizer.decode(tokenizer.encode("x<a><b> <c>", parse_special=True)) == b"x<a><b> "
    assert tokenizer.decode([259], special=True) == b"<c>"


def test_no_control_token_touches_a_plain_span() -> None:
    tokenizer = bpe({"<c>": CONTROL, "<u>": USER_DEFINED})
    text = "<c><u><c>"
    everything = [256, 257, 256]
    assert tokenizer.encode(text, parse_special=True) == everything
    for start in range(len(text)):
        for end in range(start + 1, len(text) + 1):
            ids = tokenizer.encode(text, parse_special=True, plain=((start, end),))
            assert ids.count(256) == (start >= 3 or end <= 0) + (end <= 6)
            assert ids.count(257) == 1
            assert tokenizer.decode(ids, special=True) == text.encode()


@given(st.lists(st.text("ab", min_size=1, max_size=3), min_size=1, max_size=5, unique=True), st.text("abc", max_size=20))
def test_the_finder_takes_the_leftmost_and_of_those_the_longest(texts: list[str], text: str) -> None:
    finder = Finder({piece: at for at, piece in enumerate(texts)})
    at = 0
    while found := finder.search(text, at):
        start, end, id = found
        assert text[start:end] == texts[id]
        assert not any(text.startswith(piece, place) for place in range(at, start) for piece in texts)
        assert not any(text.startswith(piece, start) for piece in texts if len(piece) > end - start)
        at = end
    assert not any(piece in text[at:] for piece in texts)


@given(st.lists(st.text("ab", min_size=1, max_size=4), max_size=9, unique=True), st.text("abc", min_size=1, max_size=9))
def test_all_pieces_that_begin_at_a_place(texts: list[str], text: str) -> None:
    pieces = Pieces({piece: at for at, piece in enumerate(texts)})
    for at in range(len(text)):
        found = [texts.index(piece) for piece in sorted(texts, key=len, reverse=True) if text.startswith(piece, at)]
        assert list(pieces.matches(text, at)) == [(at + len(texts[id]), id) for id in found]


def test_tokens_that_are_nearly_there_are_not_slow() -> None:
    """User-defined tokens of 2,000 lengths, all of which every place of the text may begin, and none does."""
    finder = Finder({"a" * length + "b": length for length in range(1, 2001)})
    start = time.process_time()
    assert finder.search("a" * 20_000, 0) is None
    assert time.process_time() - start < 3


def test_half_a_pair_is_no_character(load: Any) -> None:
    for name in ("tiny-bpe-llama3", "tiny-spm", "tiny-ugm", "tiny-wp"):
        tokenizer = load(name)
        assert tokenizer.encode("a\ud83d b\udc80") == tokenizer.encode("a\ufffd b\ufffd"), name
        assert tokenizer.least("\ud83d" * 9) <= len(tokenizer.encode("\ud83d" * 9)) or tokenizer.folds


@pytest.mark.parametrize(
    ("tokens", "ends"),
    [
        (["<|im_end|>", "<|endoftext|>", "<|im_start|>"], {"<|im_end|>", "<|endoftext|>"}),
        (["<|eot_id|>", "<|eom_id|>", "<|end_of_text|>", "<|start_header_id|>"], {"<|eot_id|>", "<|eom_id|>", "<|end_of_text|>"}),
        (["<end_of_turn>", "<eos>", "<start_of_turn>"], {"<end_of_turn>", "<eos>"}),
        (["<|return|>", "<|call|>", "<|end|>", "<|start|>"], {"<|return|>", "<|call|>"}),
        (["<|end|>", "<|user|>"], {"<|end|>"}),
        (["<turn|>", "<|tool_response>", "</s>"], {"<turn|>", "<|tool_response>"}),
        (["<|fim_pad|>", "<|repo_name|>", "<|file_sep|>", "<|fim_prefix|>"], {"<|fim_pad|>", "<|repo_name|>", "<|file_sep|>"}),
        (["<｜end▁of▁sentence｜>", "<｜User｜>"], {"<｜end▁of▁sentence｜>"}),
        (["[EOT]", "[EOS]", "[BOS]"], {"[EOT]", "[EOS]"}),
    ],
)
def test_ends_are_known_by_text(tokens: list[str], ends: set[str]) -> None:
    tokenizer = bpe({token: NORMAL for token in tokens})
    assert {tokenizer.vocabulary.tokens[id] for id in tokenizer.end_tokens} == ends
    for token in ends:  # files mark them wrongly: they are control tokens all the same
        assert tokenizer.encode(token) != [tokenizer.ids[token]] == tokenizer.encode(token, parse_special=True)


def test_ends_are_known_by_metadata() -> None:
    tokenizer = bpe({"[stop]": CONTROL, "[turn]": CONTROL, "[tool]": CONTROL}, special={"eos": 256, "eot": 257, "eom": 258})
    assert tokenizer.end_tokens == {256, 257, 258}
    assert (tokenizer.eos, tokenizer.eot, tokenizer.eom, tokenizer.bos) == (256, 257, 258, None)


def test_phi3_swallows_the_white_space_after_a_special_token() -> None:
    types = {"<|user|>": CONTROL, "<s>": CONTROL}
    texts = ("<|user|> \n x", "<s> \n x")
    stripped, kept = (bpe(types, name="Phi-3 mini").encode(text, parse_special=True) for text in texts)
    assert stripped == [256, LETTERS.index("x")] and len(kept) == 5
    assert len(bpe(types).encode(texts[0], parse_special=True)) == 5


def test_added_tokens_follow_the_flags() -> None:
    special = {"bos": 256, "eos": 257}
    both = bpe({"[b]": CONTROL, "[e]": CONTROL}, special=special, add_bos=True, add_eos=True)
    assert both.encode("", add_special=True) == [256, 257] and both.encode("") == []
    neither = bpe({"[b]": CONTROL, "[e]": CONTROL}, special=special)
    assert neither.encode("", add_special=True) == []


def test_unused_tokens_are_text_and_shown_as_they_are() -> None:
    tokenizer = bpe({"<unused0>": UNUSED})
    assert tokenizer.encode("<unused0>", parse_special=True) != [256]
    assert tokenizer.decode([256]) == b"<unused0>"
