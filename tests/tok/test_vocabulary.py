"""What the metadata of a file says about its tokenizer is checked before it is believed."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamay import tok
from llamay.errors import MalformedFile, ModelFileError, Unsupported, UsageError
from llamay.tok import Vocabulary

KEY = "tokenizer.ggml."

WRONG = [
    ("tiny-spm", {"model": None}, "model is missing"),
    ("tiny-spm", {"model": 7}, "model is a int; a str"),
    ("tiny-spm", {"tokens": None}, "tokens is empty or missing"),
    ("tiny-spm", {"tokens": []}, "tokens is empty or missing"),
    ("tiny-spm", {"tokens": "abc"}, "tokens is a str; an array of strings"),
    ("tiny-spm", {"tokens": [1, 2]}, "tokens holds int"),
    ("tiny-spm", {"tokens": ["a", b"b"]}, "tokens holds bytes, str"),
    ("tiny-spm", {"tokens": np.zeros(320)}, "tokens is a ndarray"),
    ("tiny-spm", {"scores": None}, "scores is missing"),
    ("tiny-spm", {"scores": [0.0] * 319}, "scores has 319 elements for 320 tokens"),
    ("tiny-spm", {"scores": ["x"] * 320}, "scores holds str"),
    ("tiny-spm", {"scores": [[1.0], [1.0, 2.0]]}, "scores is no array of numbers"),
    ("tiny-spm", {"scores": [10**400] * 320}, "scores holds object"),
    ("tiny-spm", {"scores": 1.0}, "scores is a float; an array of 320"),
    ("tiny-spm", {"scores": [float("nan")] * 320}, r"scores\[0\] is not a number"),
    ("tiny-spm", {"token_type": [1] * 5}, "token_type has 5 elements"),
    ("tiny-spm", {"token_type": [1.5] * 320}, "token_type holds float64"),
    ("tiny-spm", {"token_type": "1" * 320}, "token_type is a str"),
    ("tiny-spm", {"bos_token_id": 320}, "bos_token_id is 320; an id below the 320"),
    ("tiny-spm", {"eos_token_id": -2}, "eos_token_id is -2"),
    ("tiny-spm", {"eos_token_id": True}, "eos_token_id is a bool"),
    ("tiny-spm", {"eos_token_id": "2"}, "eos_token_id is a str"),
    ("tiny-spm", {"add_bos_token": 1}, "add_bos_token is a int; a bool"),
    ("tiny-bpe-gpt2", {"merges": None}, "merges is missing"),
    ("tiny-bpe-gpt2", {"merges": [1]}, "merges holds int"),
    ("tiny-bpe-gpt2", {"pre": 3}, "pre is a int"),
    ("tiny-wp", {"normalizer.lowercase": "yes"}, "lowercase is a str"),
    ("tiny-ugm", {"scores": None}, "scores is missing"),
    ("tiny-ugm", {"precompiled_charsmap": [1.5]}, "charsmap holds float64"),
    ("tiny-ugm", {"precompiled_charsmap": [1, 2, 300]}, "charsmap holds numbers that are no bytes"),
]


@pytest.mark.parametrize(("name", "change", "message"), WRONG)
def test_impossible_metadata_is_refused(name: str, change: dict[str, Any], message: str, metadata: Any) -> None:
    found = metadata(name)
    for key, value in change.items():
        found[KEY + key] = value
        if value is None:
            del found[KEY + key]
    with pytest.raises(MalformedFile, match=message):
        tok.load(found)


@pytest.mark.parametrize("model", ["rwkv", "plamo2", "no_vocab", "x" * 10_000])
def test_other_kinds_are_refused_by_name(model: str, metadata: Any) -> None:
    with pytest.raises(Unsupported, match=r"supported: gpt2 \(byte-level BPE\), llama \(SentencePiece BPE\)") as caught:
        tok.load(metadata("tiny-spm") | {KEY + "model": model})
    assert model[:80] in str(caught.value) and len(str(caught.value)) < 400


def test_arrays_may_come_in_any_form(metadata: Any) -> None:
    class Lazy:
        def __init__(self, values: list[Any]) -> None:
            self.values = values

        def __len__(self) -> int:
            return len(self.values)

        def bytes(self) -> list[Any]:
            return [value.encode() for value in self.values]

        def numpy(self) -> Any:
            return np.asarray(self.values)

    plain = metadata("tiny-spm")
    lazy = {key: Lazy(value) if isinstance(value, list) else value for key, value in plain.items()}
    arrays = plain | {KEY + "scores": np.asarray(plain[KEY + "scores"], np.float32)}
    assert Vocabulary.from_metadata(lazy) == Vocabulary.from_metadata(plain) == Vocabulary.from_metadata(arrays)


def test_longer_arrays_and_odd_types_are_taken_as_the_reference_does(metadata: Any) -> None:
    plain = metadata("tiny-spm")
    longer = {KEY + "scores": plain[KEY + "scores"] + [0.0], KEY + "token_type": [*plain[KEY + "token_type"][:-1], 99]}
    found = Vocabulary.from_metadata(plain | longer)
    assert len(found.scores) == len(found.types) == 320 and found.types[-1] == 1


def test_ids_that_say_nothing(metadata: Any) -> None:
    found = tok.load(metadata("tiny-spm") | {KEY + "padding_token_id": 320, KEY + "bos_token_id": 2**32 - 1})
    assert found.padding is None and "padding_token_id 320 ignored" in found.notes[0]
    assert found.bos is None and not found.add_bos and found.encode("a", add_special=True) == found.encode("a")


def test_an_empty_mapping_has_no_tokenizer() -> None:
    with pytest.raises(MalformedFile, match="holds no tokenizer"):
        tok.load({})


def test_of_equal_tokens_the_first_counts(metadata: Any) -> None:
    found = metadata("tiny-spm")
    tokens = found[KEY + "tokens"]
    found[KEY + "tokens"] = [*tokens[:-2], "", "▁a"]
    tokenizer = tok.load(found)
    assert tokenizer.encode("a") == [tokens.index("▁a")]
    assert tokenizer.decode([319]) == b"a" and tokenizer.decode([318]) == b""


def test_pieces_that_are_not_utf8_keep_their_bytes(metadata: Any) -> None:
    found = metadata("tiny-spm")
    found[KEY + "tokens"] = [token.encode() for token in found[KEY + "tokens"]]
    found[KEY + "tokens"][319] = b"\xff\xfe"
    assert tok.load(found).token_bytes(319) == b"\xff\xfe"


ANYTHING = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.lists(st.integers() | st.text(max_size=3) | st.floats() | st.none(), max_size=4)
    | st.integers(0, 330).map(lambda n: ["x"] * n)
    | st.integers(0, 330).map(lambda n: [3] * n)
    | st.dictionaries(st.text(max_size=2), st.integers(), max_size=2)
)
KEYS = (
    "model pre tokens scores token_type merges bos_token_id eos_token_id eot_token_id padding_token_id add_bos_token "
    "add_space_prefix unknown_token_id fim_pad_token_id seperator_token_id cls_token_id normalizer.lowercase "
    "precompiled_charsmap remove_extra_whitespaces"
).split()


@given(st.sampled_from(["tiny-spm", "tiny-bpe-gpt2", "tiny-wp"]), st.dictionaries(st.sampled_from(KEYS), ANYTHING, min_size=1, max_size=3))
def test_any_value_is_refused_or_works(metadata: Any, name: str, changes: dict[str, Any]) -> None:
    found = metadata(name) | {KEY + key: value for key, value in changes.items()}
    try:
        tokenizer = tok.load(found)
    except ModelFileError as error:
        assert len(str(error)) < 1000
        return
    try:
        ids = tokenizer.encode("a <s>\n\x00é", add_special=True, parse_special=True)
    except UsageError:
        return  # no token for a byte, and none for the unknown
    assert all(0 <= id < len(tokenizer) for id in [*ids, *tokenizer.end_tokens])
    assert isinstance(tokenizer.decode(ids, special=True), bytes)
