"""What a generation reports: pieces of text, then exactly one Done with its reason and its times."""

from dataclasses import dataclass
from typing import Literal

Reason = Literal["end", "length", "stop", "context"]
"""end: the model ended its turn; length: the asked-for count; stop: a stop string; context: no position left."""


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of the answer.  It never ends inside a character or inside what may become a stop string."""

    text: str


@dataclass(frozen=True, slots=True)
class Timings:
    """Where one generation's time went, in seconds."""

    prompt_tokens: int  # of the prompt, those found in the cache included
    cached_tokens: int  # of these, the ones whose keys and values were still there
    prompt_seconds: float  # from the start to the first sampled token
    generated_tokens: int  # an end token counts: it was computed
    decode_seconds: float  # from the first sampled token to the last
    submissions: int = 0
    submit_seconds: float = 0.0  # of decode: putting steps on the queue
    collect_seconds: float = 0.0  # of decode: waiting for the device and reading token ids back

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
    """The one final event."""

    reason: Reason
    timings: Timings
    seed: int  # the effective seed: given again, it gives the same text


Event = Text | Done
