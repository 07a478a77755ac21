"""One sequence of tokens under way: a prompt on its way into pages, or one choice of its answer."""

from dataclasses import dataclass
from typing import Literal, Protocol

from llamay.errors import WrongNumbers
from llamay.kv import Context
from llamay.sample import Sampling
from llamay.serve.events import Ended, Logprobs, Reason, Text
from llamay.serve.logprobs import Alignment, Scored
from llamay.serve.request import Keeper, Limits
from llamay.serve.ticket import Ticket

Purpose = Literal["answer", "prompt", "reading"]
"""answer: prefill, then sample; prompt: prefill all but the last token; reading: prefill for the logits."""


class Decoder(Protocol):
    """Turns token ids into text as they come; `llamay.tok.Decoder` is one."""

    stopped: str | None  # the stop string that ended the text

    @property
    def withheld(self) -> int:
        """Characters that are held back, because they may become a stop string."""

    def push(self, id: int) -> str:
        """The text that becomes certain with this token."""

    def finish(self) -> str:
        """What is still held back, when no token follows."""


class Mute:
    """A decoder that turns no token into text."""

    stopped: str | None = None
    withheld = 0

    def push(self, id: int) -> str:
        return ""

    def finish(self) -> str:
        return ""


@dataclass(slots=True, eq=False)
class Sequence:
    """What the scheduler moves.  Between two steps every token of `tokens` is known, unless some are `pending`."""

    ticket: Ticket
    index: int  # which choice
    purpose: Purpose
    tokens: list[int]  # the prompt, then the answer so far
    prompt: int  # how many of them are the prompt
    sampling: Sampling
    limits: Limits
    count: int  # tokens it may generate
    decoder: Decoder
    context: Context | None = None  # None while it has no pages
    kept: bool = False  # the context is the asker's, and stays when this ends
    prefix_cache: bool = True
    pending: int = 0  # sampled on the device, or to be, and not collected
    keeper: Keeper | None = None  # gives the context, and gets it when this ends
    unsaid: str = ""  # text that is certain and not posted
    over: bool = False
    alignment: Alignment | None = None  # of tokens that are told with their logprobs
    unread: int = 0  # of a reading: the first position whose logits are wanted and were not told yet

    @property
    def order(self) -> tuple[int, int]:
        """The lower, the older."""
        return self.ticket.id, self.index

    @property
    def logprobs(self) -> int | None:
        """How many of the likeliest tokens are told with each; None: nothing is."""
        return self.ticket.asked.logprobs

    @property
    def generated(self) -> int:
        """Tokens of the answer that are known."""
        return len(self.tokens) - self.prompt

    @property
    def held(self) -> int:
        """Positions whose keys and values are in pages."""
        return 0 if self.context is None else self.context.position

    @property
    def missing(self) -> int:
        """Known tokens whose keys and values are still to be computed."""
        return len(self.tokens) - (self.purpose == "prompt") - self.held

    def steps(self) -> int:
        """How many tokens more may be sampled with the pages and the count it has."""
        if self.context is None:
            return 0
        behind = len(self.tokens) + self.pending
        return min(self.count - self.generated - self.pending, self.context.room - behind + 1)

    def accept(self, token: int, scored: Scored | None = None) -> Reason | None:
        """A token was sampled; the reason when it is the last one.  The text it makes certain waits for `say`."""
        self.tokens.append(token)
        if token in self.limits.ends:
            return "end"
        if self.alignment is not None and scored is not None:
            self.alignment.push(scored, self.decoder.withheld)
        self._hear(self.decoder.push(token))
        if self.decoder.stopped is not None:
            return "stop"
        if self.generated < self.count:
            return None
        return "length" if self.count == self.limits.tokens else "context"

    def say(self) -> None:
        """Posts the text that is certain."""
        if self.unsaid:
            if self.alignment is not None:
                self._tell(self.alignment.due())
            self.ticket.post(Text(self.unsaid, self.index))
            self.unsaid = ""

    def end(self, reason: Reason) -> None:
        """The choice is over: posts the rest of its text, and that it ended."""
        self.over = True
        self._hear(self.decoder.finish())
        self.say()
        if self.alignment is not None and self.decoder.stopped is None:
            self._tell(self.alignment.rest())
        if self.decoder.stopped is not None and reason != "cancel":
            reason = "stop"
        tokens = tuple(self.tokens[self.prompt :])
        ended = Ended(self.index, reason, tokens, self.sampling.seed, self.decoder.stopped)
        self.ticket.choices.append(ended)
        self.ticket.post(ended)

    def _hear(self, text: str) -> None:
        self.unsaid += text
        if self.alignment is not None:
            self.alignment.certain += len(text)

    def _tell(self, tokens: tuple[Scored, ...]) -> None:
        if tokens:
            self.ticket.post(Logprobs(tokens, self.index))


def no_numbers(tokens: int, device: str) -> WrongNumbers:
    """What ends a request alone that nothing can be chosen for after so many tokens."""
    return WrongNumbers(
        f"after {tokens} tokens {device} computed logits that are no finite numbers: the model overflows, its weights "
        f"are damaged, or the device computes wrongly; -device names another"
    )
