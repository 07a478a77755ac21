"""Turns: what is appended to tokens that hold a conversation already, which is never rendered again."""

from collections.abc import Sequence
from typing import Any

from llamay.errors import TemplateError
from llamay.serve.loading.language import Language, Message, Prompt
from llamay.tok import thinking

MARK = "Zk4llamay9answer"  # stands for the answer that the tokens hold


def opening(language: Language, messages: Sequence[Message], **variables: Any) -> Prompt:
    """A conversation that is to be gone on with; nobody is asked to answer yet."""
    return language.chat(messages, **variables, add_generation_prompt=False)


def after_answer(
    language: Language, held: Sequence[int], messages: Sequence[Message], start: str = "", /, **variables: Any
) -> Prompt:
    """`held`, which end with an answer, and behind them new messages as the template puts them there.

    What ends the answer's turn is not repeated where the answer has it.  `start` begins the next answer.  Without
    messages it is the last one that goes on.  TemplateError where the template leaves answers out or refuses.
    """
    template = language.template
    if not messages:
        said = language.tokenizer.text(held, special=True) + start if template.thinks else ""
        tokens = [*held, *_encoded(language, held, start, ((0, len(start)),))]
        return Prompt(tokens, template.stops, thinking=thinking.after(template.thinks, "", said))
    before: list[Message] = [{"role": "user", "content": "a"}, {"role": "assistant", "content": MARK}]
    rendered = template.render([*before, *messages], **variables)
    at = rendered.text.rfind(MARK)
    if at < 0:
        raise TemplateError("the chat template leaves answers out, so messages cannot be put behind one")
    begin = at + len(MARK)
    begin += _ended(language, held, rendered.text[begin:])
    text, end = rendered.text[begin:] + start, len(rendered.text)
    inside = [*rendered.spans, (end, end + len(start))]
    spans = tuple([(max(0, first - begin), last - begin) for first, last in inside if last > max(first, begin)])
    new = _encoded(language, held, text, spans)
    if held and new[:1] == [held[-1]] and held[-1] in language.tokenizer.end_tokens:
        new = new[1:]
    return Prompt([*held, *new], template.stops, rendered.notes, thinking.after(template.thinks, rendered.text, start))


def after_text(language: Language, held: Sequence[int], text: str) -> Prompt:
    """`held` and behind them a text as it is; special tokens written in it are recognised."""
    return Prompt([*held, *_encoded(language, held, text)]) if held else language.raw(text)


def _encoded(language: Language, held: Sequence[int], text: str, plain: tuple[tuple[int, int], ...] = ()) -> list[int]:
    language.check(text)
    tokenizer = language.tokenizer
    return tokenizer.encode(text, parse_special=True, plain=plain, continues=tokenizer.continues(held))


def _ended(language: Language, held: Sequence[int], following: str) -> int:
    """How many characters of what follows an answer it has already: the string by which it stopped."""
    stops = language.template.stops
    tail = language.tokenizer.text(held[-32:], special=True, continues=True) if stops else ""
    return max((len(stop) for stop in stops if tail.endswith(stop) and following.startswith(stop)), default=0)
