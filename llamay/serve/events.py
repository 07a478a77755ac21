"""What a request is told: pieces of text, the end of each choice, then exactly one Done or Failed."""

from dataclasses import dataclass
from typing import Literal

from llamay.errors import LlamayError
from llamay.serve.logprobs import Scored
from llamay.tensor.program import Floats

Reason = Literal["end", "length", "stop", "context", "cancel"]
"""end: the model ended its turn; length: the asked-for count; stop: a stop string; context: no position left;
cancel: nobody wanted the rest."""


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer.  It never ends inside a character or inside what may become a stop string."""

    text: str
    index: int = 0  # which choice


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """Logits that a reading asked for, of one position after the other."""

    first: int  # position of the first row
    logits: Floats  # [rows, vocabulary]


@dataclass(frozen=True, slots=True)
class Logprobs:
    """What the model gave tokens, for who asked: those that the next Text begins with text of, or those of a reading.

    A reading's follow each other; before its first stands the token at `Reading.first`, of which nothing is known.
    """

    tokens: tuple[Scored, ...]
    index: int = 0  # which choice


@dataclass(frozen=True, slots=True)
class Ended:
    """One choice has come to its end; its text is complete."""

    index: int
    reason: Reason
    tokens: tuple[int, ...]  # all that were generated, an end token included
    seed: int  # the effective seed: given again, it gives the same text
    stop: str | None = None  # the stop string that was found


@dataclass(frozen=True, slots=True)
class Timings:
    """Where one request's time went, in seconds; counts are over all its choices."""

    prompt_tokens: int  # of the prompt, those found in the cache included
    cached_tokens: int  # of these, the ones whose keys and values were still there
    prompt_seconds: float  # from being admitted to the first sampled token
    generated_tokens: int  # an end token counts: it was computed
    decode_seconds: float  # from the first sampled token to the last
    submissions: int = 0
    submit_seconds: float = 0.0  # of decode: putting steps on the queue
    collect_seconds: float = 0.0  # of decode: waiting for the device and reading token ids back
    queue_seconds: float = 0.0  # from being submitted to being admitted
    preempted: int = 0  # how often it gave its pages to an older request, and computed them again

    @property
    def prompt_rate(self) -> float:
        """Prompt tokens computed a second."""
        return (self.prompt_tokens - self.cached_tokens) / max(self.prompt_seconds, 1e-9)

    @property
    def generated_rate(self) -> float:
        """Generated tokens a second; 0 for a single one, which took no time after the prompt's."""
        return self.generated_tokens / self.decode_seconds if self.decode_seconds > 0 else 0.0

    @property
    def decode_rate(self) -> float:
        """Decode steps a second: the first token came out of the prompt's."""
        return max(self.generated_tokens - 1, 0) / max(self.decode_seconds, 1e-9)


@dataclass(frozen=True, slots=True)
class Done:
    """The final event of a request that was carried out, or cancelled."""

    reason: Reason  # of the first choice
    timings: Timings
    seed: int  # of the first choice
    choices: tuple[Ended, ...] = ()


@dataclass(frozen=True, slots=True)
class Failed:
    """The final event of a request that could not be carried out."""

    error: LlamayError
    timings: Timings


Final = Done | Failed
Event = Text | Logprobs | Rows | Ended | Done | Failed
