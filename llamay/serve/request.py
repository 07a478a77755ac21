"""What may be asked of the engine, as frozen values of token ids: an answer to a prompt, or the logits of a text."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from llamay.errors import UsageError
from llamay.kv import Context
from llamay.sample import Sampling
from llamay.serve.events import Final
from llamay.serve.logprobs import checked

if TYPE_CHECKING:
    from llamay.serve.scheduling.admission import Admission

SEEDS = 1 << 32
MOST_CHOICES = 128
MOST_STOPS = 256  # strings: each is looked for in every character
MOST_STOP_CHARACTERS = 8192  # of all of them
LONGEST_CLIENT = 256  # characters by which clients are told apart; statistics keep them for a while


@dataclass(frozen=True, slots=True)
class Limits:
    """When a generation ends, besides the end of the context."""

    tokens: int | None = None  # None: no count; 0: the prompt is computed, and nothing after it
    ends: frozenset[int] = frozenset()  # the tokens that end a turn; empty: go on past them
    stops: tuple[str, ...] = ()  # the strings that end an answer

    def __post_init__(self) -> None:
        count, characters = len(self.stops), sum(map(len, self.stops))
        if count > MOST_STOPS or characters > MOST_STOP_CHARACTERS:
            raise UsageError(
                f"there are {count} stop strings of {characters} characters; at most {MOST_STOPS} of "
                f"{MOST_STOP_CHARACTERS} characters together are looked for"
            )


class Keeper(Protocol):
    """Who has the pages of a request when it is over.  The engine's thread calls it.

    While the request waits, at first or again, it holds no page, so the keeper is asked for them each time.
    """

    def begin(self, admission: "Admission", tokens: Sequence[int]) -> Context:
        """A new context that holds a beginning of `tokens`, as long as there is one."""

    def keep(self, admission: "Admission", context: Context) -> None:
        """The context as the request leaves it; it is the keeper's from now on."""

    def ended(self, final: Final) -> None:
        """The request is over, whether it came to pages or not.  Called once, before the asker hears of it."""


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt to be continued.  Raises UsageError for one that cannot be.

    `context` names a context of the model's cache that the prompt goes on from and that is left
    holding prompt and answer; with several choices, the prompt.  With a `keeper` the pages come from it and go to it.
    """

    tokens: tuple[int, ...]  # the prompt
    sampling: Sampling = field(default_factory=Sampling)  # choice i has its seed + i
    limits: Limits = field(default_factory=Limits)
    choices: int = 1  # forks of one prefill
    client: str = ""  # who asks: clients take turns
    via: str = ""  # which API it came by, for the statistics
    model: str = ""
    context: int | None = None
    prefix_cache: bool = True  # whether known prefixes may be used, and this one become known
    logprobs: int | None = None  # tell each token's, and so many of the likeliest; None: tell nothing
    keeper: Keeper | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if not self.tokens:
            raise UsageError("the prompt has no tokens, so there is nothing to continue")
        if self.keeper is not None and self.choices > 1:
            raise UsageError(f"n is {self.choices}; a context is continued by one choice, so fork it and ask each fork")
        if not 1 <= self.choices <= MOST_CHOICES:
            raise UsageError(f"{self.choices} choices were asked for; 1 to {MOST_CHOICES} can be made")
        if self.limits.tokens is not None and self.limits.tokens < 0:
            raise UsageError(f"{self.limits.tokens} tokens were asked for; it may be 0 or more")
        checked(self.logprobs)

    def sampling_of(self, index: int) -> Sampling:
        """The sampling of one choice."""
        return replace(self.sampling, seed=(self.sampling.seed + index) % SEEDS)


@dataclass(frozen=True, slots=True)
class Reading:
    """A text whose logits are wanted at every position from `first` on, or with `logprobs` what they give its tokens."""

    tokens: tuple[int, ...]
    first: int = 0
    client: str = ""
    via: str = ""
    model: str = ""
    prefix_cache: bool = True
    logprobs: int | None = None  # as in Request: Logprobs come in the place of Rows

    def __post_init__(self) -> None:
        if not 0 <= self.first < len(self.tokens):
            raise UsageError(f"logits from position {self.first} on were asked for; the text has {len(self.tokens)} tokens")
        checked(self.logprobs)


Asked = Request | Reading
