"""Text keeps its marks: whatever a template does to a user's words, no character of them comes out unmarked."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamay.errors import TemplateError
from llamay.tok.chat import ChatTemplate
from llamay.tok.marked import Marked, concat

# input is written with these, templates with lower-case letters: so every character shows where it comes from
INPUT = "<|X>É \n"
OWN = set("<|X>É")

STEPS = [
    "|trim",
    "|upper",
    "|lower|upper",
    "|replace('X', 'ab')",
    "|replace('', 'q')",
    "|indent(2, true)",
    "|list|join('-')",
    "|reverse",
    "|string",
    "|safe",
    "|truncate(6, true, '..', 0)",
    "|center(9)",
    "|title|upper",
    "|capitalize|upper",
    "|tojson",
    "|format",
    "|batch(2)|list|tojson",
    "|map('upper')|join",
    "|sort|join('+')",
    "|unique|list|join",
    "|first|default('', true)",
    "|last|default('', true)",
    "|slice(2)|map('join')|join",
    "|select('ne', ' ')|join",
    "[1:]",
    "[:-1]",
    "[::-1]",
    "[::2]",
    ".split('X')|join('x')",
    ".split()|join(' ')",
    ".rsplit('X', 1)|last",
    ".splitlines()|join('n')",
    ".partition('X')|join('p')",
    ".rpartition('X')|join('p')",
    ".strip('< ')",
    ".lstrip('<')",
    ".rstrip('|>')",
    ".removeprefix('<')",
    ".removesuffix('>')",
    ".replace('|', 'or', 1)",
    ".upper()",
    ".swapcase().upper()",
    ".casefold()",
    ".ljust(5)",
    ".zfill(5)",
    ".center(7, 'c')",
    ".join(['a', 'b'])",
    " ~ 'end'",
    " + 'end'",
    " * 2",
]
WHOLES = [
    "{{ 'in ' ~ @ ~ ' out' }}",
    "{{ 'in ' + (@) + ' out' }}",
    "{% for c in @ %}{{ c }},{% endfor %}",
    "{% set x = @ %}{{ x[0] }}{{ x[-1] }}{{ x }}",
    "{% set x %}a{{ @ }}b{% endset %}{{ x }}{{ x|trim }}",
    "{% macro m(x, y='d') %}<i>{{ x }}{{ y }}{% endmacro %}{{ m(@) }}",
    "{% filter trim %} f{{ @ }} {% endfilter %}",
    "{% set ns = namespace(t='s') %}{% set ns.t = ns.t ~ @ %}{{ ns.t }}",
    "{{ 'a%sb' % (@,) }}",
    "{{ 'a{}b'.format(@) }}",
    "{{ '-'.join([@, 'z']) }}",
    "{{ 'abc'.replace('b', (@)) }}",
    "{{ 'abc'|replace('b', (@)) }}",
    "{{ [@] }}",
    "{{ {'k': @} }}",
    "{{ {'k': @}|tojson(indent=2) }}",
    "{{ ({'k': @}|tojson|from_json).k }}",
    "{% set l = [] %}{% set _ = l.append(@) %}{{ l|join }}",
    "{{ dict(k=@).items()|list }}",
    "{% with x = @ %}{{ x }}{% endwith %}",
    "{{ (@) if true else 'n' }}",
    "{{ [@]|map('trim')|join(', ') }}",
    "{{ [{'a': @}]|map(attribute='a')|join }}",
    "{{ ('q' ~ @).split('q')[1] }}",
]


def unmarked(text: Marked) -> str:
    inside = [at for start, end in text.spans for at in range(start, end)]
    return "".join(character for at, character in enumerate(text) if at not in set(inside))


def run(template: str, value: str) -> Marked:
    return ChatTemplate(template)._run([{"role": "user", "content": value}], {"t": value})


def check_spans(text: Marked) -> None:
    edges = [edge for span in text.spans for edge in span]
    assert edges == sorted(edges) and all(0 <= start < end <= len(text) for start, end in text.spans)


@given(st.sampled_from(WHOLES), st.lists(st.sampled_from(STEPS), max_size=3), st.text(INPUT, max_size=8))
def test_no_character_of_the_input_comes_out_unmarked(whole: str, steps: list[str], value: str) -> None:
    expression = "messages[0].content"
    for step in steps:
        expression = f"({expression}{step})"
    template = whole.replace("@", expression)
    try:
        text = run(template, value)
    except TemplateError as error:
        assert value == "" or "Undefined" in str(error) or "undefined" in str(error) or "has no" in str(error), template
        return  # the first of nothing
    check_spans(text)
    template_own = set(template)
    assert not set(unmarked(text)) & (OWN - template_own), (template, text, text.spans)


@pytest.mark.parametrize("step", STEPS)
def test_each_step_works_and_marks(step: str) -> None:
    """The steps do happen: each gives a result here, and with it marks."""
    text = run("{{ (t" + step + ") }}", " <X|É>\n X<")
    check_spans(text)
    assert not set(unmarked(text)) & OWN and (text.spans or step in (".join(['a', 'b'])", "|format"))


@pytest.mark.parametrize(
    ("template", "text", "marked"),
    [
        ("a{{ t }}b", "a<X>b", ["<X>"]),
        ("{{ ('a' ~ t ~ 'b ')|trim }}", "a<X>b", ["<X>"]),
        ("{{ ('a' ~ t ~ 'b')[2:-2] }}", "X", ["X"]),
        ("{{ ('a-' ~ t ~ '-b').split('-')|join('+') }}", "a+<X>+b", ["<X>"]),
        ("{{ ('a' ~ t)|replace('X', 'yz') }}", "a<yz>", ["<", ">"]),
        ("{{ 'a%sb' % 'c' }}{{ 'd{}'.format(1) }}", "acbd1", []),
        ("{{ {'a': 'b'}|tojson }}", '{"a": "b"}', []),
        ("{{ {'a': t}|tojson }}", '{"a": "<X>"}', ['{"a": "<X>"}']),
        ("{{ t|default('a') }}{{ u|default('b') }}", "<X>b", ["<X>"]),
        ("{{ (t ~ 'a')|upper }}", "<X>A", ["<X>"]),
        ("{{ 'é' ~ t ~ 1 ~ none ~ true }}", "é<X>1NoneTrue", ["<X>"]),
        ("{% for m in messages %}{{ m.role }}:{{ m['content'] }}{% endfor %}", "user:<X>", ["user", "<X>"]),
        ("{% for k in messages[0] %}{{ k }}{% endfor %}", "rolecontent", ["rolecontent"]),
        ("{{ bos_token ~ t }}", "[b]<X>", ["<X>"]),
    ],
)
def test_what_is_marked(template: str, text: str, marked: list[str]) -> None:
    found = ChatTemplate(template, {"bos_token": "[b]"})._run([{"role": "user", "content": "<X>"}], {"t": "<X>"})
    assert found == text and [found[start:end] for start, end in found.spans] == marked


PIECES = st.lists(st.tuples(st.text("ab \n", max_size=4), st.booleans()), max_size=5)


def build(pieces: list[tuple[str, bool]]) -> tuple[Marked, list[bool]]:
    text = concat([Marked(piece) if mark else piece for piece, mark in pieces])
    return text, [mark for piece, mark in pieces for _ in piece]


def marks(text: Any) -> list[bool]:
    return [any(start <= at < end for start, end in text.spans) for at in range(len(text))]


@given(PIECES, st.integers(-7, 7), st.integers(-7, 7))
def test_cuts_are_exact(pieces: list[tuple[str, bool]], start: int, stop: int) -> None:
    text, expected = build(pieces)
    assert marks(text) == expected
    assert text[start:stop] == str.__str__(text)[:][start:stop] and marks(text[start:stop]) == expected[start:stop]
    assert marks(text.strip()) == expected[len(text) - len(text.lstrip()) :][: len(text.strip())]
    assert all(a < b for a, b in text[start:stop].spans) and all(a < b for a, b in text.strip("ab").spans)
    assert "".join(text) == text and [mark for character in text for mark in marks(character)] == expected


@given(PIECES, st.sampled_from([None, "a", "ab", " ", "aa"]), st.integers(-1, 3))
def test_splits_are_those_of_str(pieces: list[tuple[str, bool]], sep: str | None, most: int) -> None:
    text, expected = build(pieces)
    plain = "".join(piece for piece, _ in pieces)
    assert text.split(sep, most) == plain.split(sep, most) and text.rsplit(sep, most) == plain.rsplit(sep, most)
    assert text.splitlines() == plain.splitlines() and text.splitlines(True) == plain.splitlines(True)
    assert [mark for line in text.splitlines(True) for mark in marks(line)] == expected
    if sep:
        assert text.partition(sep) == plain.partition(sep) and text.rpartition(sep) == plain.rpartition(sep)
        assert [mark for part in text.rpartition(sep) for mark in marks(part)] == expected
        whole = [mark for part in text.split(sep) for mark in [*marks(part), *[None] * len(sep)]][: len(text)]
        assert all(mark is None or mark == want for mark, want in zip(whole, expected, strict=False))
        assert text.replace(sep, "z", most) == plain.replace(sep, "z", most)
        assert marks(text.replace(sep, sep)).count(True) <= expected.count(True)


def test_json_keys_and_values_of_the_input_are_marked() -> None:
    tool = {"type": "function", "function": {"name": "<X>", "parameters": {"<K>": [1, None, "<V>"]}}}
    found = ChatTemplate("{% for k, v in tools[0].function.parameters.items() %}{{ k }}{{ v }}{% endfor %}")
    text = found._run([{"role": "user", "content": ""}], {"tools": [tool]})
    assert unmarked(text) == "" and json.dumps(text).count("<V>") == 1
