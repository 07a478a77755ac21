"""The streaming decoder emits what decoding at once gives, whatever the tokens, the stops and the cuts."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamay.errors import UsageError
from llamay.tok import Decoder, Tokenizer

STOPS = st.lists(st.text("abé \n�", min_size=1, max_size=4), max_size=3)


def cut(text: str, stops: list[str]) -> tuple[str, str | None]:
    """The text before the stop string that is complete first, the longest one of several that end together."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            stop = max(complete, key=len)
            return text[: end - len(stop)], stop
    return text, None


def stream(decoder: Decoder, ids: list[int]) -> list[str]:
    return [*(decoder.push(id) for id in ids), decoder.finish()]


@given(data=st.data(), stops=STOPS, continues=st.booleans(), special=st.booleans())
def test_a_stream_is_the_text(load: Any, data: st.DataObject, stops: list[str], continues: bool, special: bool) -> None:
    name = data.draw(st.sampled_from(["tiny-spm", "tiny-spm-gemma", "tiny-bpe-llama3"]))
    tokenizer: Tokenizer = load(name)
    spelt = st.text("abé \n😀世", max_size=12).map(tokenizer.encode)
    parts = data.draw(st.lists(spelt | st.lists(st.integers(0, 319), max_size=5), max_size=5))
    ids = [id for part in parts for id in part]
    whole = tokenizer.text(ids, continues=continues, special=special)
    expected, stop = cut(whole, stops)
    decoder = Decoder(tokenizer, tuple(stops), continues=continues, special=special)
    assert "".join(stream(decoder, ids)) == expected
    assert decoder.stopped == stop


def test_no_half_character_and_no_half_stop(load: Any) -> None:
    tokenizer: Tokenizer = load("tiny-bpe-gpt2")
    decoder = Decoder(tokenizer, ("abc", "bd"))
    emitted = [decoder.push(id) for id in tokenizer.encode("é😀xababd")]
    assert "".join(emitted) == "é😀xaba" and decoder.stopped == "bd"
    assert all("�" not in text for text in emitted)


def test_nothing_is_held_back_longer_than_it_must_be(load: Any) -> None:
    tokenizer: Tokenizer = load("tiny-bpe-gpt2")
    decoder = Decoder(tokenizer, ("abc", "bd"))
    letters = [tokenizer.ids[letter] for letter in "xabxbaab"]
    assert [decoder.push(id) for id in letters] == ["x", "", "", "abx", "", "b", "a", ""]
    assert decoder.finish() == "ab" and decoder.stopped is None


def test_after_the_stop_there_is_silence(load: Any) -> None:
    tokenizer: Tokenizer = load("tiny-bpe-gpt2")
    decoder = Decoder(tokenizer, ("b",))
    assert "".join(decoder.push(id) for id in tokenizer.encode("abab")) == "a"
    assert (decoder.stopped, decoder.push(tokenizer.encode("c")[0]), decoder.finish()) == ("b", "", "")


def test_broken_bytes_come_as_replacements_at_the_end(load: Any) -> None:
    tokenizer: Tokenizer = load("tiny-bpe-gpt2")
    half = tokenizer.encode("é")[:1]
    decoder = Decoder(tokenizer)
    assert decoder.push(half[0]) == "" and decoder.finish() == "�"


def test_spaces_at_the_start(load: Any) -> None:
    tokenizer: Tokenizer = load("tiny-spm")
    ids = tokenizer.encode("a b")
    assert "".join(stream(Decoder(tokenizer), ids)) == " a b"
    assert "".join(stream(Decoder(tokenizer, continues=False), ids)) == "a b"
    assert [tokenizer.continues(prompt) for prompt in ([], ids, [*ids, 2], [1])] == [False, True, False, False]
    turns = [*tokenizer.encode("a"), 2, *tokenizer.encode("b")]
    assert "".join(stream(Decoder(tokenizer, continues=False, special=True), turns)) == "a</s>b"


def test_what_is_refused(load: Any) -> None:
    with pytest.raises(UsageError, match="stop string is empty"):
        Decoder(load("tiny-spm"), ("a", ""))
    with pytest.raises(UsageError, match=r"320 does not exist.*0 to 319"):
        Decoder(load("tiny-spm")).push(320)
