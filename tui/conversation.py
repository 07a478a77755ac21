"""A Conversation: questions and answers as a tree, of which one branch is shown.  No screen and no source in it."""

import re
from dataclasses import dataclass, field

from llamay.tui.moment import Answered, Asked, News, Piece

FENCE = re.compile(r" {0,3}(`{3,}|~{3,})(.*)")


@dataclass(slots=True)
class Turn:
    """A question and what came of it."""

    number: int
    question: str
    before: str = ""  # the context it was asked behind; empty for a new conversation
    parent: int | None = None
    answer: str = ""
    thoughts: str = ""  # what the model wrote for itself before it
    end: Answered | None = None

    @property
    def context(self) -> str:
        """The context that holds the answer; empty until it is complete."""
        return self.end.context if self.end is not None else ""


def code(answer: str) -> list[tuple[str, str]]:
    """The fenced blocks of code in an answer, each with its language; one whose end is missing goes to the end."""
    found: list[tuple[str, str]] = []
    fence, language, lines = "", "", list[str]()
    for line in [*answer.splitlines(), ""]:
        mark = FENCE.match(line)
        if not fence and mark:
            fence, language, lines = mark[1], mark[2].strip(), []
        elif fence and mark and mark[1].startswith(fence) and not mark[2].strip():
            found.append((language, "\n".join(lines)))
            fence = ""
        else:
            lines.append(line)
    return [*found, (language, "\n".join(lines).rstrip())] if fence else found


@dataclass(slots=True)
class Conversation:
    """All turns, the branch that is shown, and the context the next question goes behind."""

    turns: dict[int, Turn] = field(default_factory=dict)
    current: int | None = None  # the last turn of the branch
    head: str = ""  # the context to go on from; that of the last turn, or a fork of it
    edits: Turn | None = None  # the question that the next one takes the place of, in a fork
    thinks: bool = True  # whether the model is to think before it answers, where it can

    def branch(self) -> list[Turn]:
        """From the first question to the current one."""
        found, at = [], self.current
        while at is not None:
            turn = self.turns[at]
            found.append(turn)
            at = turn.parent
        return found[::-1]

    @property
    def streaming(self) -> Turn | None:
        """The turn of this branch that is being answered."""
        turn = None if self.current is None else self.turns[self.current]
        return turn if turn is not None and turn.end is None else None

    @property
    def waiting(self) -> int:
        """Answers under way, on all branches."""
        return sum(turn.end is None for turn in self.turns.values())

    def next(self, text: str, model: str = "") -> Asked:
        """A question behind the current branch, or in place of the one that is edited."""
        if self.edits is not None:
            old, self.edits = self.edits, None
            return Asked(self._number(), text, old.before, old.parent, model, think=self.thinks)
        return Asked(self._number(), text, self.head, self.current, model, think=self.thinks)

    def again(self, turn: Turn, model: str = "") -> Asked:
        """The same question once more, in a fork."""
        return Asked(self._number(), turn.question, turn.before, turn.parent, model, think=self.thinks)

    def show(self, number: int | None) -> None:
        """Another branch, up to a turn; None: a new conversation."""
        self.current, self.edits = number, None
        self.head = "" if number is None else self.turns[number].context

    def adopt(self, context: str) -> None:
        """Goes on from a context that was made elsewhere, or a fork of the current one."""
        self.head = context

    def of_context(self, context: str) -> Turn | None:
        """The turn that a context holds the answer of."""
        return next((turn for turn in self.turns.values() if turn.context == context), None)

    def hear(self, news: News) -> Turn | None:
        """Takes news in; returns the turn that they are about."""
        match news:
            case Asked(number, text, before, parent):
                turn = Turn(number, text, before, parent if parent in self.turns else None)
                self.turns[number] = turn
                self.current = number
                return turn
            case Piece(number, text, thought) if number in self.turns:
                turn = self.turns[number]
                if thought:
                    turn.thoughts += text
                else:
                    turn.answer += text
                return turn
            case Answered(number) if number in self.turns:
                turn = self.turns[number]
                turn.end = news
                if self.current == number:
                    self.head = news.context or turn.before
                return turn
        return None

    def _number(self) -> int:
        return max(self.turns, default=0) + 1
