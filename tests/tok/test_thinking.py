"""What is thought, told from what is said: however the answer was cut into pieces."""

import random

import pytest

from llamay.tok import Decoder, Tokenizer, Vocabulary, thinking
from llamay.tok.bpe import LETTERS
from llamay.tok.thinking import Splitter, Thinking
from llamay.tok.vocabulary import CONTROL, NORMAL

BITS = ("<think>", "</think>", "<", "</th", "think>", " ", "\n", "a", "über ", "x y")


THINK, CHANNELS = ("<think>", "</think>"), thinking.MARKS[3]
ANALYSIS, FINAL, QUIET = *CHANNELS, "<|channel|>final<|message|>"
CHANNEL_BITS = (ANALYSIS, FINAL, QUIET, "<|start|>assistant", "<|channel|>", "final", "<|message|>", " ", "a", "über ", "\n")


def parted(
    text: str, opened: bool, cuts: list[int] | None = None, marks: tuple[str, str] = THINK
) -> tuple[str, str]:
    """What is thought, and what is said."""
    splitter, found = Splitter(Thinking(*marks, opened)), {True: "", False: ""}
    ends = [*(cuts or ()), len(text)]
    for begin, end in zip([0, *ends], ends, strict=False):
        for thought, part in splitter.feed(text[begin:end]):
            assert part
            found[thought] += part
    for thought, part in splitter.feed("", last=True):
        found[thought] += part
    return found[True], found[False]


@pytest.mark.parametrize(
    ("text", "opened", "thought", "said"),
    [
        ("<think>\nhm, so\n</think>\n\nYes. ", False, "hm, so", "Yes. "),
        ("\n <think>hm</think>Yes", False, "hm", "Yes"),
        ("hm, so\n</think>\n\nYes", True, "hm, so", "Yes"),
        ("<think>\n\n</think>\n\nYes", False, "", "Yes"),
        ("</think> Yes", False, "", "Yes"),  # told not to think
        ("I <think>hm</think>", False, "", "I <think>hm</think>"),  # it speaks about marks
        ("a </think> b </think> c", True, "a", "b </think> c"),
        ("<think>cut of", False, "cut of", ""),
        ("<think>cut </thi", False, "cut </thi", ""),
        ("<thi", False, "", "<thi"),
        ("  plain", False, "", "  plain"),
        ("", True, "", ""),
    ],
)
def test_an_answer_is_parted(text: str, opened: bool, thought: str, said: str) -> None:
    assert parted(text, opened) == (thought, said)
    assert parted(text, opened, list(range(len(text)))) == (thought, said)


@pytest.mark.parametrize(
    ("text", "thought", "said"),
    [
        (f"{ANALYSIS}hm, so{FINAL}Yes. ", "hm, so", "Yes. "),
        (f"{QUIET}Yes", "", "Yes"),
        (f"{ANALYSIS}cut <|start|>assis", "cut <|start|>assis", ""),
        (f"{ANALYSIS}a<|start|>assistant<|channel|>commentary<|message|>b{FINAL}Yes", "a<|start|>assistant<|channel|>commentary<|message|>b", "Yes"),
        ("plain", "", "plain"),
    ],
)  # fmt: skip
def test_channels_are_parted(text: str, thought: str, said: str) -> None:
    assert parted(text, False, marks=CHANNELS) == (thought, said)
    assert parted(text, False, list(range(len(text))), CHANNELS) == (thought, said)


@pytest.mark.parametrize(("marks", "bits"), [(THINK, BITS), (CHANNELS, CHANNEL_BITS)])
def test_pieces_change_nothing(marks: tuple[str, str], bits: tuple[str, ...]) -> None:
    drawn = random.Random(5)
    for _ in range(2000):
        text, opened = "".join(drawn.choices(bits, k=drawn.randrange(12))), drawn.random() < 0.5
        cuts = sorted(drawn.randrange(len(text) + 1) for _ in range(drawn.randrange(8)))
        assert parted(text, opened, cuts, marks) == parted(text, opened, marks=marks), (text, opened, cuts)


HARMONY = ("<|start|>", "assistant", "<|channel|>", "final", "<|message|>")
SPOKEN = (  # the marks of a template, the tokens of an answer with those that mark it, what is thought, what is said
    (
        "<|start|>assistant<|channel|>final<|message|>",
        (*("<|channel|>", "analysis", "<|message|>", "a", "<|end|>"), *HARMONY, "b", "<|return|>"),
        10,
        ("a", "b"),
    ),
    ("<|start|>assistant<|channel|>final<|message|>", ("<|channel|>", "final", "<|message|>", "b"), 0, ("", "b")),
    ("[THINK]a[/THINK]", ("[THINK]", "a", "[/THINK]", "b", "<|end|>"), 3, ("a", "b")),
    ("</think>", ("a", "<|end|>", "b"), 0, ("", "ab")),
    ("</think>", ("<think>", "a", "</think>", "b"), 3, ("a", "b")),
    ("no marks", ("[THINK]", "a", "[/THINK]", "b"), 0, None),
)


@pytest.mark.parametrize(("source", "pieces", "count", "found"), SPOKEN)
def test_marks_that_are_control_tokens(
    source: str, pieces: tuple[str, ...], count: int, found: tuple[str, str] | None
) -> None:
    """They are silent in text, but for those that the template marks thoughts with."""
    more = [piece for piece in dict.fromkeys(pieces) if len(piece) > 1]
    kinds = bytes([NORMAL if piece.isalpha() else CONTROL for piece in more])
    tokenizer = Tokenizer(Vocabulary("gpt2", (*LETTERS, *more), bytes([NORMAL]) * 256 + kinds, pre="gpt-2"))
    ids = [tokenizer.ids[piece] for piece in pieces]
    marks = thinking.marks(source)
    decoder = Decoder(tokenizer, shown=thinking.controls(marks, tokenizer))
    text = "".join(map(decoder.push, ids)) + decoder.finish()
    if marks is None:
        assert text == "ab" and found is None
    else:
        assert parted(text, False, marks=marks) == found
        assert Thinking(*marks).count(ids, tokenizer.ids) == count


def test_the_marks_are_those_of_the_template() -> None:
    assert thinking.marks("{{ m.content.split('</think>')[-1] }}") == ("<think>", "</think>")
    assert thinking.marks("{{ m.content }}") is None and thinking.after(None, "<think>\n") is None


@pytest.mark.parametrize(
    ("prompt", "start", "opened"),
    [
        ("<assistant>", "", False),
        ("<assistant><think>\n", "", True),
        ("<assistant><think>\n\n</think>\n\n", "", False),
        ("<user>what is <think>?<assistant>", "", False),
        ("<assistant>", "<think>hm", True),
        ("<assistant><think>\n", "hm", True),
        ("<assistant>", "<think>hm</think>Yes", False),
        ("<assistant><think>\n", "hm</think>", False),
    ],
)
def test_a_prompt_may_open_a_thought(prompt: str, start: str, opened: bool) -> None:
    assert thinking.after(("<think>", "</think>"), prompt, start) == Thinking("<think>", "</think>", opened)


@pytest.mark.parametrize(
    ("tokens", "opened", "count"),
    [((1, 5, 6, 2, 7), False, 4), ((5, 6, 2, 7), True, 3), ((1, 5, 6), False, 3), ((5, 6), False, 0), ((9, 1, 5, 2, 3), False, 4)],
)
def test_the_tokens_of_a_thought_are_counted(tokens: tuple[int, ...], opened: bool, count: int) -> None:
    found = Thinking("<think>", "</think>", opened)
    assert found.count(tokens, {"<think>": 1, "</think>": 2}) == count
    assert found.count(tokens, {}) == 0
