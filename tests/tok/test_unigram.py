"""Unigram: every case as the reference has it, the likeliest cut by trying all, and maps of characters in bounds."""

import itertools
import random
import struct
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamay.errors import MalformedFile
from llamay.tok import Tokenizer, Vocabulary
from llamay.tok.charsmap import LONGEST_KEY, Charsmap
from llamay.tok.unigram import LONGEST, PENALTY
from llamay.tok.vocabulary import CONTROL, NORMAL, UNKNOWN, USER_DEFINED

PIECES = st.lists(st.text("▁ab", min_size=1, max_size=4), min_size=1, max_size=12, unique=True)


def make(pieces: dict[str, float], **flags: Any) -> Tokenizer:
    tokens = ("<unk>", "</s>", *pieces)
    types = bytes([UNKNOWN, CONTROL] + [NORMAL] * len(pieces))
    scores = (0.0, 0.0, *pieces.values())
    return Tokenizer(Vocabulary("t5", tokens, types, scores=scores, special={"unknown": 0, "eos": 1}, **flags))


def test_every_case(load: Any, made: Any, strings: Any) -> None:
    tokenizer, cases = load("tiny-ugm"), made("tiny-ugm")
    texts = [one["text"] for one in strings["strings"]]
    found = [tokenizer.encode(text) for text in texts]
    assert [case for case in zip(texts, found, cases["ids"], strict=True) if case[1] != case[2]] == []
    raw = [bytes.fromhex(text) for text in strings["invalid_utf8_hex"]]
    assert [tokenizer.encode(text) for text in raw] == cases["invalid_utf8"]
    assert [tokenizer.encode(text, parse_special=True) for text in strings["special"]] == cases["special_parsed"]
    assert [tokenizer.encode(text) for text in strings["special"]] == cases["special_as_text"]
    for text, ids in cases["with_add_special"].items():
        assert tokenizer.encode(text, add_special=True) == ids


@given(PIECES, st.text(" abc", max_size=7), st.integers(0, 99))
def test_no_cut_is_likelier(pieces: list[str], text: str, seed: int) -> None:
    draw = random.Random(seed)
    scores = {piece: -draw.uniform(0.5, 9.0) for piece in pieces}
    tokenizer = make(scores)
    normal = ("▁" + "▁".join(text.split())) if text.split() else ""
    unknown = min(scores.values()) - PENALTY
    best: tuple[float, list[str]] = (float("-inf"), [])
    for cuts in itertools.product((False, True), repeat=max(0, len(normal) - 1)):
        places = [0, *(at for at, cut in enumerate(cuts, 1) if cut), len(normal)]
        parts = [normal[a:b] for a, b in itertools.pairwise(places) if a < b]
        if all(len(part) == 1 or part in scores for part in parts):
            best = max(best, (sum(scores.get(part, unknown) for part in parts), parts))
    expected: list[str] = []
    for part in best[1]:
        name = part if part in scores else "<unk>"
        if name != "<unk>" or expected[-1:] != ["<unk>"]:
            expected.append(name)
    assert [tokenizer.vocabulary.tokens[id] for id in tokenizer.encode(text)] == expected


def test_spaces() -> None:
    pieces = {"▁a": -1.0, "▁": -2.0, "a": -3.0}
    squeezed, plain = make(pieces), make(pieces, squeeze=False)
    bare = make(pieces, add_space_prefix=False)
    shown = [[one.vocabulary.tokens[id] for id in one.encode("  a  a ")] for one in (squeezed, plain, bare)]
    assert shown == [["▁a", "▁a"], ["▁", "▁", "▁a", "▁", "▁a", "▁"], ["▁a", "▁a"]]
    assert bare.encode("a") == [4] and squeezed.encode(" ") == squeezed.encode("") == []
    assert squeezed.text(squeezed.encode("a a", add_special=True)) == "a a"


def test_what_users_defined_is_always_recognised() -> None:
    tokens, types = ("<unk>", "▁", "a", " b c "), bytes([UNKNOWN, NORMAL, NORMAL, USER_DEFINED])
    tokenizer = Tokenizer(Vocabulary("t5", tokens, types, scores=(0.0, -1.0, -1.0, -9.0), special={"unknown": 0}))
    assert tokenizer.encode("a b c a") == [1, 2, 3, 1, 2]


def test_pairs_are_parted_by_two_ends() -> None:
    tokenizer = make({"▁a": -1.0, "▁b": -1.0})
    assert tokenizer.pair(tokenizer.encode("a"), tokenizer.encode("b")) == ([2, 1, 1, 3, 1], [0] * 5)


def darts(keys: dict[bytes, int], texts: bytes) -> bytes:
    """A map of one-byte keys, whose children lie at 256 + byte and whose values at 768 + byte."""
    units = [0] * 2048
    units[0] = 256 << 10
    for key, start in keys.items():
        place = 256 ^ key[0]
        units[place] = key[0] | 1 << 8 | (place ^ (768 + key[0])) << 10
        units[768 + key[0]] = 1 << 31 | start
    return struct.pack("<I", 4 * len(units)) + struct.pack(f"<{len(units)}I", *units) + texts


def test_a_map_of_characters() -> None:
    mapped = Charsmap(darts({b"x": 0, b"y": 3}, b"ab\0\0"))
    assert mapped.replace("axy yz") == "aab z"
    assert make({"▁a": -1.0}, charsmap=darts({b"x": 0}, b"a\0")).encode("x") == [2]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\1", "has 1 bytes and says that 1"),
        (b"\xff\0\0\0abc", "says that 255 of them"),
        (b"\6\0\0\0abcdef", "a multiple of 4"),
        (darts({b"x": 9}, b"ab\0"), "text at byte 9 of 3"),
        (darts({b"x": 0}, b"ab"), "text at byte 0 of 2"),
        (darts({b"x": 0}, b"a" * 999 + b"\0"), "none of fewer than 256"),
        (darts({b"x": 0}, b"\xff\0"), "not UTF-8"),
        (darts({b"\xc3": 0}, b"a\0"), "not UTF-8"),
    ],
)
def test_maps_that_are_none_are_refused(raw: bytes, message: str) -> None:
    with pytest.raises(MalformedFile, match=message):
        Charsmap(raw)


def test_a_map_that_turns_in_circles_is_refused() -> None:
    units = [0] * 512
    units[0] = 256 << 10
    units[256 ^ 97] = 97 | (97 << 10)  # below "a" is what is below the root
    raw = struct.pack("<I", 2048) + struct.pack("<512I", *units)
    with pytest.raises(MalformedFile, match=f"keys of more than {LONGEST_KEY} bytes"):
        Charsmap(raw)


def test_the_longest_key_counts(load: Any) -> None:
    """SentencePiece's own rules, nmt_nfkc: marks join their letters, ligatures and widths go, white space is a space."""
    mapped = load("tiny-ugm")._encoder._charsmap
    assert mapped.replace("e\u0301\u0302 ﬁ Ａ㌀\ta\u200bb\r\n") == "\u00e9\u0302 fi Aアパート a b  "
    assert mapped.replace("s\u0323\u0307") == "\u1e69" and mapped.replace("\u0301") == "\u0301"


@given(st.text("es\u0301\u0302\u0323\u0307ﬁ\u1100\u1161\u11a8 a", max_size=12))
def test_runs_are_replaced_as_one_character_after_the_other_would_be(load: Any, text: str) -> None:
    mapped = load("tiny-ugm")._encoder._charsmap
    assert mapped.replace(text) == mapped._replaced(text)


@given(st.binary(max_size=64), st.integers(0, 16))
def test_any_bytes_are_refused_or_a_map(raw: bytes, units: int) -> None:
    try:
        Charsmap(struct.pack("<I", 4 * units) + raw).replace("abc")
    except MalformedFile as error:
        assert len(str(error)) < 400


@pytest.mark.parametrize("text", ["a" * 60_000, "a " * 30_000, "é世😀" * 20_000, "0" * 60_000])
def test_no_text_is_slow(text: str, load: Any) -> None:
    start = time.process_time()
    load("tiny-ugm").encode(text)
    assert time.process_time() - start < 2


def test_pieces_within_pieces_are_not_slow() -> None:
    """4,000 pieces, each one longer than the other; those that are too long for any are said to be left out."""
    pieces = {"a" * length: -1.0 - 1e-4 * length for length in range(1, 4001)}
    tokenizer = make(pieces, add_space_prefix=False)
    assert tokenizer.notes == (f"{4000 - LONGEST} pieces of more than {LONGEST} characters are not looked for in text",)
    start = time.process_time()
    ids = tokenizer.encode("a" * 4000)
    assert time.process_time() - start < 3
    assert tokenizer.decode(ids) == b"a" * 4000 and len(ids) == -(-4000 // LONGEST)
    assert tokenizer.encode("a" * (LONGEST + 1)) != [tokenizer.ids["a" * (LONGEST + 1)]]
