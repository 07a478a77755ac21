"""Stop strings in a stream, cut anywhere, against the whole text."""

from hypothesis import given
from hypothesis import strategies as st

from llamay.serve.stops import Stops


def shown(text: str, stops: list[str], cuts: list[int]) -> tuple[str, str | None]:
    filter = Stops(stops)
    out, at = "", 0
    for cut in [*sorted(cut % (len(text) + 1) for cut in cuts), len(text)]:
        out += filter.feed(text[at:cut])
        at = max(at, cut)
    return out + filter.flush(), filter.found


@given(
    st.text("ab|", max_size=40),
    st.lists(st.text("ab|", min_size=1, max_size=4), max_size=3),
    st.lists(st.integers(0, 99)),
)
def test_cut_anywhere_the_text_ends_at_the_first_stop(text: str, stops: list[str], cuts: list[int]) -> None:
    """What is shown never depends on the cuts beyond the first completed stop string."""
    out, found = shown(text, stops, cuts)
    completed = [end for end in range(len(text) + 1) if any(text[:end].endswith(stop) for stop in stops)]
    if not completed:
        assert (out, found) == (text, None)
        return
    assert found in stops
    assert text.startswith(out + (found or ""))
    assert not any(stop in out for stop in stops)


def test_half_a_stop_string_is_held_back_until_it_is_none() -> None:
    filter = Stops(["<end>"])
    assert filter.feed("say <e") == "say "
    assert filter.feed("n") == ""
    assert filter.feed("ough") == "<enough"
    assert filter.feed(" <end") == " "
    assert filter.feed("> more") == ""
    assert (filter.found, filter.feed("x"), filter.flush()) == ("<end>", "", "")


def test_no_stop_strings_hold_nothing_back() -> None:
    filter = Stops([""])
    assert (filter.feed("abc"), filter.flush(), filter.found) == ("abc", "", None)
