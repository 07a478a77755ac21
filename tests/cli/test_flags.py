"""Flags: one dash or two, any order, no abbreviations, values that look like flags."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamay.cli.flags import Parser, argument, flag, json_flag
from llamay.errors import UsageError


def parser() -> Parser:
    made = Parser("llamay x", "what it does")
    flag(made, "-p", metavar="TEXT")
    flag(made, "-top-k", type=int, default=40)
    flag(made, "-kv", choices=("f32", "f16"))
    json_flag(made)
    argument(made, "model", nargs="?", completes="model")
    argument(made, "words", nargs="*")
    return made


@pytest.mark.parametrize("words", [["-top-k", "5"], ["--top-k", "5"], ["-top-k=5"], ["--top-k=5"]])
def test_every_spelling_reads_alike(words: list[str]) -> None:
    assert parser().parse(words).top_k == 5


def test_flags_and_words_come_in_any_order() -> None:
    read = parser().parse(["m", "-p", "x", "q", "--json", "r"])
    assert (read.model, read.words, read.p, read.json) == ("m", ["q", "r"], "x", True)


def test_a_value_may_look_like_a_flag_and_a_dash_dash_ends_them() -> None:
    assert parser().parse(["-p", "-json", "m"]).p == "-json"
    assert parser().parse(["-p", "-- a list"]).p == "-- a list"
    assert parser().parse(["-p=", "m"]).p == ""
    assert parser().parse(["-top-k", "-1"]).top_k == -1
    read = parser().parse(["m", "--", "-p", "--json"])
    assert (read.words, read.p, read.json) == (["-p", "--json"], None, False)


def test_a_negative_number_and_a_single_dash_are_words() -> None:
    assert parser().parse(["m", "-1", "-", "-2.5"]).words == ["-1", "-", "-2.5"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["-top"], "did you mean -top-k"),
        (["--jso"], "did you mean -json"),
        (["-p"], "-p needs a value"),
        (["-top-k", "many"], "-top-k is 'many'; expected a whole number"),
        (["-kv", "q8"], "-kv is 'q8'; it may be f32 or f16"),
        (["-n5"], "no flag -n5"),
        (["-json=yes"], "json"),
    ],
)
def test_what_cannot_be_read_is_a_usage_error(words: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parser().parse(words)


def test_too_many_words_are_refused() -> None:
    made = Parser("llamay x")
    argument(made, "only")
    with pytest.raises(UsageError, match="no place for 'extra'"):
        made.parse(["one", "extra"])


def test_a_word_that_is_missing_is_named_with_what_it_may_be() -> None:
    made = Parser("llamay x")
    argument(made, "action", metavar="ACTION", choices=("list", "show"))
    argument(made, "source", metavar="SOURCE")
    with pytest.raises(UsageError, match=r"^SOURCE is missing \(see"):
        made.parse(["list"])
    with pytest.raises(UsageError, match=r"^ACTION, SOURCE is missing; it may be list or show"):
        made.parse([])


@given(st.lists(st.text(max_size=8), max_size=5))
def test_no_words_can_crash_it(words: list[str]) -> None:
    try:
        read = parser().parse(words)
    except UsageError:
        return
    except SystemExit as stop:  # -h
        assert stop.code == 0
        return
    assert isinstance(read.words, list)


def test_help_shows_each_flag_once() -> None:
    text = parser().format_help()
    assert "usage: llamay x [flags] [model] [words ...]" in text
    assert "-top-k TOP_K" in text and "--top-k" not in text
    assert "-help, -h" in text
