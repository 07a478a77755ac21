"""Thinking: what a model writes for itself before it speaks, told from its answer by the marks of its chat template."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from llamay.tok.tokenizer import SILENT, Tokenizer

MARKS = (  # as templates spell them, in text that answers have
    ("<think>", "</think>"),
    ("<seed:think>", "</seed:think>"),
    ("[THINK]", "[/THINK]"),
    ("<|channel|>analysis<|message|>", "<|start|>assistant<|channel|>final<|message|>"),
)
QUIET = {MARKS[3][1]: "<|channel|>final<|message|>"}  # how an answer without thoughts begins, where not with the second mark
TOKENS = re.compile(r"(<[^<>]*>|\[[^][]*\])")  # that marks are made of, beside words


@dataclass(frozen=True, slots=True)
class Thinking:
    """The marks around what the model thinks; `opened` where the prompt has the first one already."""

    begins: str
    ends: str
    opened: bool = False

    @property
    def quiet(self) -> str:
        """What an answer begins with that has no thoughts, where it says so."""
        return QUIET.get(self.ends, self.ends)

    def count(self, tokens: Sequence[int], ids: Mapping[str, int]) -> int:
        """How many tokens of an answer are thought, marks included; 0 where the vocabulary has no such tokens."""
        begins, ends = _spelt(self.begins, ids), _spelt(self.ends, ids)
        if not ends or not (self.opened or (begins and _place(begins, tokens) in (0, 1))):
            return 0
        at = _place(ends, tokens)
        return len(tokens) if at < 0 else at + len(ends)


def _spelt(mark: str, ids: Mapping[str, int]) -> list[int]:
    """The tokens of a mark, none where the vocabulary lacks one."""
    found = [ids.get(part, -1) for part in TOKENS.split(mark) if part]
    return [] if -1 in found else found


def _place(some: list[int], tokens: Sequence[int]) -> int:
    """Where some tokens stand among others for the first time, -1 where they do not."""
    return next((at for at in range(len(tokens) - len(some) + 1) if list(tokens[at : at + len(some)]) == some), -1)


def marks(source: str) -> tuple[str, str] | None:
    """Those that a chat template knows, None for one that knows none."""
    return next((pair for pair in MARKS if pair[1] in source), None)


def after(known: tuple[str, str] | None, prompt: str, start: str = "") -> Thinking | None:
    """How the answer to a rendered prompt thinks, None where its template knows nothing of that.

    `start` is the beginning of the answer; the prompt itself may open a thought at its very end.
    """
    if known is None:
        return None
    begins, ends = known
    said = (begins if prompt.rstrip().endswith(begins) else "") + start
    return Thinking(begins, ends, said.rfind(begins) > said.rfind(ends))


def controls(known: tuple[str, str] | None, tokenizer: Tokenizer) -> frozenset[int]:
    """The control tokens that marks are made of, which an answer's text must hold so that they are found."""
    parts = [] if known is None else TOKENS.findall("".join(known))
    ids = (tokenizer.ids.get(part) for part in parts)
    return frozenset(id for id in ids if id is not None and tokenizer.types[id] in SILENT)


class State(Enum):
    """Where in an answer a Splitter is."""

    BEFORE = auto()  # nothing but space came yet
    THINKING = auto()
    SPEAKING = auto()


class Splitter:
    """Parts one answer as it comes.  How it was cut into pieces changes nothing of what they are put together."""

    def __init__(self, thinking: Thinking) -> None:
        self._thinking = thinking
        self._state = State.THINKING if thinking.opened else State.BEFORE
        self._fresh = thinking.opened  # space at the beginning of a part belongs to nobody
        self._held = ""  # may be a part of a mark, or space before one

    def feed(self, text: str, *, last: bool = False) -> list[tuple[bool, str]]:
        """The next piece as parts, each with whether it is thought; after the `last` nothing is held back."""
        self._held += text
        found: list[tuple[bool, str]] = []
        if self._state is State.BEFORE:
            self._begin(last)
        if self._state is State.THINKING:
            self._add(found, True, self._thought(last))
        if self._state is State.SPEAKING:
            said, self._held = self._held, ""
            self._add(found, False, said)
        return found

    def _begin(self, last: bool) -> None:
        """Finds out whether it thinks: a model that was told not to may begin with the second mark."""
        begun, marks = self._held.lstrip(), (self._thinking.begins, self._thinking.quiet)
        for mark, state in zip(marks, (State.THINKING, State.SPEAKING), strict=True):
            if begun.startswith(mark):
                self._state, self._fresh, self._held = state, True, begun[len(mark) :]
                return
        if last or not any(mark.startswith(begun) for mark in marks):
            self._state = State.SPEAKING

    def _thought(self, last: bool) -> str:
        """What is certain to be thought."""
        thought, mark, rest = self._held.partition(self._thinking.ends)
        if mark:
            said, self._held = thought.rstrip(), rest
        else:
            end = len(thought) if last else len(thought) - _overlap(thought, self._thinking.ends)
            said = thought if last else thought[:end].rstrip()
            self._held = thought[len(said) :]
        if self._fresh:
            said = said.lstrip()
            self._fresh = not said
        if mark:
            self._state, self._fresh = State.SPEAKING, True
        return said

    def _add(self, found: list[tuple[bool, str]], thought: bool, said: str) -> None:
        if self._fresh and not thought:
            said = said.lstrip()
            self._fresh = not said
        if said:
            found.append((thought, said))


def _overlap(text: str, mark: str) -> int:
    """How many characters at the end of a text may be the beginning of a mark."""
    return next((size for size in range(min(len(mark) - 1, len(text)), 0, -1) if mark.startswith(text[-size:])), 0)
