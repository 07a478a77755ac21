"""What an answer is: typed, frozen results, and the stream that they come out of."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from llamay.errors import LlamayError
from llamay.serve.events import Done, Ended, Event, Failed, Logprobs, Reason, Text, Timings
from llamay.serve.logprobs import Scored
from llamay.serve.ticket import Ticket


@dataclass(frozen=True, slots=True)
class Choice:
    """One answer."""

    text: str
    tokens: tuple[int, ...]  # an end token included
    reason: Reason
    seed: int  # given again, for one choice, it gives the same text
    index: int = 0  # which of those that were made
    stop: str | None = None  # the stop string that was found
    logprob: float | None = None  # mean natural logarithm a token of what the model gave it, where best_of asked for it
    logprobs: tuple[Scored, ...] = ()  # of the tokens that the text is made of, where logprobs asked for them


@dataclass(frozen=True, slots=True)
class Completion:
    """All answers to one prompt, and where the time went."""

    choices: tuple[Choice, ...]
    timings: Timings
    notes: tuple[str, ...] = ()  # what was changed of the messages so that the template takes them

    @property
    def text(self) -> str:
        """The first answer."""
        return self.choices[0].text if self.choices else ""

    @property
    def tokens(self) -> tuple[int, ...]:
        """The first answer's tokens."""
        return self.choices[0].tokens if self.choices else ()

    @property
    def reason(self) -> Reason:
        """Why the first answer ended."""
        return self.choices[0].reason if self.choices else "cancel"

    def __str__(self) -> str:
        return self.text


class Stream:
    """An answer on its way: iterate over it for its pieces, and read `completion` for all of it.

    Who stops iterating cancels the rest.  It may be used in a with statement.
    """

    def __init__(
        self, ticket: Ticket, notes: tuple[str, ...] = (), ended: Callable[[Completion | None], None] = lambda _: None
    ) -> None:
        """`ended` hears of the end once: with the completion, or None where it failed."""
        self.ticket = ticket
        self._notes = notes
        self._ended = ended
        self._texts: dict[int, str] = {}
        self._scored: dict[int, tuple[Scored, ...]] = {}
        self._completion: Completion | None = None
        self._error: LlamayError | None = None
        self.left = False  # nobody iterates any more

    @property
    def over(self) -> bool:
        """Whether the end has been heard."""
        return self._completion is not None or self._error is not None

    def __iter__(self) -> Iterator[Text]:
        """Pieces of text; those of several choices come as they are made."""
        try:
            while not self.over:
                event = self.ticket.get()
                if event is not None:
                    self._hear(event)
                if isinstance(event, Text):
                    yield event
        finally:
            if not self.over:
                self.left = True
                self.ticket.cancel()
        if self._error is not None:
            raise self._error

    @property
    def completion(self) -> Completion:
        """Waits for the end; raises what made the request fail."""
        for _ in self:
            pass
        if self._completion is None:
            raise self._error or LlamayError("the stream ended without a completion")
        return self._completion

    def close(self) -> None:
        """Cancels what is left of it and waits for the end, which is within a step."""
        self.ticket.cancel()
        while not self.over:
            event = self.ticket.get()
            if event is not None:
                self._hear(event)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _hear(self, event: Event) -> None:
        match event:
            case Text(text, index):
                self._texts[index] = self._texts.get(index, "") + text
            case Logprobs(tokens, index):
                self._scored[index] = (*self._scored.get(index, ()), *tokens)
            case Failed(error):
                self._error = error
                self._ended(None)
            case Done(timings=timings, choices=choices):
                self._completion = Completion(tuple(self._choice(one) for one in choices), timings, self._notes)
                self._ended(self._completion)

    def _choice(self, ended: Ended) -> Choice:
        text = self._texts.get(ended.index, "")
        scored = self._scored.get(ended.index, ())
        return Choice(text, ended.tokens, ended.reason, ended.seed, ended.index, ended.stop, logprobs=scored)
