"""Talking: reading messages, the commands, and an answer that Ctrl-C cuts."""

from collections.abc import Callable, Iterator

import pytest

from llamay.cli import chat


def typed(*lines: str) -> Callable[[str], str]:
    """A person who types these lines and then Ctrl-D."""
    waiting: Iterator[str] = iter(lines)

    def line(prompt: str) -> str:
        try:
            return next(waiting)
        except StopIteration:
            raise EOFError from None

    return line


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["  hello  "], "hello"),
        (["one \\", "two\\", "three"], "one \ntwo\nthree"),
        (['"""', "one", "  two", '"""'], "one\n  two"),
        (['"""one', 'two"""'], "one\ntwo"),
        (['"""one"""'], "one"),
        ([""], ""),
    ],
)
def test_a_message_may_have_several_lines(lines: list[str], message: str) -> None:
    assert chat.read(typed(*lines)) == message


def test_the_end_of_input_inside_a_message_leaves() -> None:
    for lines in ([], ['"""', "one"], ["one\\"]):
        with pytest.raises(EOFError):
            chat.read(typed(*lines))
