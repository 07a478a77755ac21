"""What is said of an answer: its pieces, what is thought told from what is spoken, each with the scores of its tokens."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from llamay.serve.events import Ended, Event, Logprobs, Text
from llamay.serve.logprobs import Scored
from llamay.tok.thinking import Splitter, Thinking


@dataclass(frozen=True, slots=True)
class Spoken:
    """A piece of one choice; the text is empty where the last tokens gave none."""

    text: str
    index: int = 0  # which choice
    scored: tuple[Scored, ...] = ()  # of the tokens it begins with, where logprobs were asked for
    thought: bool = False


@dataclass(slots=True)
class _Choice:
    """One choice on its way."""

    splitter: Splitter | None
    waiting: list[Scored] = field(default_factory=list)  # for the next piece

    def pieces(self, text: str, index: int, *, last: bool = False) -> Iterator[Spoken]:
        """What is certain of it; at the end also scores that no text came with."""
        parts = [(False, text)] if self.splitter is None else self.splitter.feed(text, last=last)
        for thought, part in parts:
            if part:
                yield Spoken(part, index, self._scored(), thought)
        if last and self.waiting:
            yield Spoken("", index, self._scored())

    def _scored(self) -> tuple[Scored, ...]:
        found, self.waiting = tuple(self.waiting), []
        return found


def spoken(events: Iterable[Event | None], thinking: Thinking | None = None) -> Iterator[Spoken | Event | None]:
    """The events of a turn as pieces; thoughts are told from the rest where it is known how the answer thinks."""
    choices = defaultdict[int, _Choice](lambda: _Choice(None if thinking is None else Splitter(thinking)))
    for event in events:
        match event:
            case Logprobs(tokens, index):
                choices[index].waiting += tokens
            case Text(text, index):
                yield from choices[index].pieces(text, index)
            case Ended(index=index):
                yield from choices[index].pieces("", index, last=True)
                yield event
            case _:
                yield event
