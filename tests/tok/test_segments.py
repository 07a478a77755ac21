"""SentencePiece text is cut where no merge can cross, which never changes ids; long and plain text is quick."""

import random
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamay.tok import Tokenizer, Vocabulary
from llamay.tok.sentencepiece import SentencePiece, segments
from llamay.tok.vocabulary import NORMAL

PIECES = st.lists(st.text("▁\nab>", min_size=1, max_size=4), min_size=1, max_size=30, unique=True)


def encoder(pieces: list[str], seed: int = 0) -> SentencePiece:
    tokens = (*"▁\nab>", *(piece for piece in pieces if len(piece) > 1))
    scores = tuple(float(random.Random(seed + at).randrange(8)) for at in range(len(tokens)))
    vocabulary = Vocabulary("llama", tokens, bytes([NORMAL]) * len(tokens), scores=scores)
    return SentencePiece(vocabulary, {token: at for at, token in reversed(list(enumerate(tokens)))})


@given(PIECES, st.text(" \nab>", max_size=60), st.integers(0, 9))
def test_cutting_never_changes_ids(pieces: list[str], text: str, seed: int) -> None:
    found = encoder(pieces, seed)
    assert found.encode(text) == list(found._symbols(list(text.replace(" ", "▁"))))


@given(PIECES, st.text("▁\nab>", max_size=60))
def test_the_segments_are_the_text_and_no_piece_spans_two(pieces: list[str], text: str) -> None:
    parts = segments(tuple(pieces)).findall(text)
    assert "".join(parts) == text
    at = 0
    for part in parts[:-1]:
        at += len(part)
        assert not any(text[at - 1 : at + 1] in piece for piece in pieces)


def test_where_text_is_cut() -> None:
    assert segments(("▁a", "b", "▁▁")).findall("▁▁a▁b\n\nb▁\n▁▁") == ["▁▁a", "▁b", "\n\n", "b", "▁", "\n", "▁▁"]
    assert segments(("a▁b", "▁b")).findall("▁a▁b▁a") == ["▁a▁b", "▁a"]
    assert segments(("a\n", "▁b")).findall("▁b▁a\n▁b") == ["▁b", "▁a\n", "▁b"]


def prose(characters: int) -> str:
    """Words of the licence in another order, with some that come once, in lines."""
    draw = random.Random(7)
    words = (Path(__file__).parents[2] / "LICENSE").read_text(encoding="utf-8").split()
    lines, size = [], 0
    while size < characters:
        line = " ".join(draw.choice(words) if draw.random() < 0.95 else f"{draw.randbytes(4).hex()}" for _ in range(12))
        lines.append(line)
        size += len(line) + 1
    return "\n".join(lines)[:characters]


@pytest.mark.parametrize("name", ["tiny-bpe-gpt2", "tiny-bpe-llama3", "tiny-bpe-qwen2", "tiny-spm", "tiny-spm-gemma"])
def test_prose_is_quick(name: str, load: Any) -> None:
    tokenizer, text = Tokenizer(load(name).vocabulary), prose(250_000)
    start = time.process_time()
    ids = tokenizer.encode(text)
    assert time.process_time() - start < 0.5
    assert tokenizer.decode(ids) == text.encode()


@pytest.mark.parametrize("name", ["tiny-wp", "tiny-ugm"])
def test_prose_is_quick_to_fold_and_cut(name: str, load: Any) -> None:
    tokenizer, text = load(name), prose(300_000)
    start = time.process_time()
    assert len(tokenizer.encode(text)) > 60_000
    assert time.process_time() - start < 0.8


@pytest.mark.parametrize("text", ["a" * 50_000, " " * 50_000, "\n" * 50_000, "é世😀" * 12_000, "1" * 50_000, "<" * 50_000])
def test_no_text_is_slow(text: str, tiny: Tokenizer) -> None:
    start = time.process_time()
    ids = tiny.encode(text, parse_special=True)
    assert time.process_time() - start < 3
    assert tiny.decode(ids) == text.encode()
