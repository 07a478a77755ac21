"""What may be asked of the engine, as frozen values of token ids: an answer to a prompt, or the logits of a text."""

from dataclasses import dataclass, field, replace

from llamay.errors import UsageError
from llamay.sample import Sampling

SEEDS = 1 << 32
MOST_CHOICES = 128


@dataclass(frozen=True, slots=True)
class Limits:
    """When a generation ends, besides the end of the context."""

    tokens: int | None = None  # None: no count; 0: the prompt is computed, and nothing after it
    ends: frozenset[int] = frozenset()  # the tokens that end a turn; empty: go on past them
    stops: tuple[str, ...] = ()  # the strings that end an answer


@dataclass(frozen=True, slots=True)
class Request:
    """A prompt to be continued.  Raises UsageError for one that cannot be.

    `context` names a context of the model's cache that the prompt goes on from and that is left
    holding prompt and answer; with several choices, the prompt.
    """

    tokens: tuple[int, ...]  # the prompt
    sampling: Sampling = field(default_factory=Sampling)  # choice i has its seed + i
    limits: Limits = field(default_factory=Limits)
    choices: int = 1  # forks of one prefill
    client: str = ""  # who asks: clients take turns
    model: str = ""
    context: int | None = None
    prefix_cache: bool = True  # whether known prefixes may be used, and this one become known

    def __post_init__(self) -> None:
        if not self.tokens:
            raise UsageError("the prompt has no tokens, so there is nothing to continue")
        if not 1 <= self.choices <= MOST_CHOICES:
            raise UsageError(f"{self.choices} choices were asked for; 1 to {MOST_CHOICES} can be made")
        if self.limits.tokens is not None and self.limits.tokens < 0:
            raise UsageError(f"{self.limits.tokens} tokens were asked for; it may be 0 or more")

    def sampling_of(self, index: int) -> Sampling:
        """The sampling of one choice."""
        return replace(self.sampling, seed=(self.sampling.seed + index) % SEEDS)


@dataclass(frozen=True, slots=True)
class Reading:
    """A text whose logits are wanted at every position from `first` on."""

    tokens: tuple[int, ...]
    first: int = 0
    client: str = ""
    model: str = ""
    prefix_cache: bool = True

    def __post_init__(self) -> None:
        if not 0 <= self.first < len(self.tokens):
            raise UsageError(f"logits from position {self.first} on were asked for; the text has {len(self.tokens)} tokens")


Asked = Request | Reading
