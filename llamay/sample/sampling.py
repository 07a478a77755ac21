"""The settings of a sampler, and which values they may take."""

import math
import secrets
from dataclasses import dataclass

from llamay.errors import UsageError


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to choose a token.  temperature 0 is greedy; a filter at its neutral value is off.

    Raises UsageError for a value outside its range; docs/sampling.md says what each does.
    """

    temperature: float = 0.8
    top_k: int = 40  # 0: off
    top_p: float = 0.95  # 1: off
    min_p: float = 0.05  # 0: off
    typical_p: float = 1.0  # 1: off
    repeat_penalty: float = 1.0  # 1: off
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repeat_last_n: int = 64  # tokens the penalties look back on; -1: all, 0: none
    logit_bias: tuple[tuple[int, float], ...] = ()  # (token, added to its logit)
    seed: int = 0

    def __post_init__(self) -> None:
        _within("temperature", self.temperature, 0.0, 1e6)
        _within("top_k", self.top_k, 0, 2**31 - 1)
        _within("top_p", self.top_p, 0.0, 1.0)
        _within("min_p", self.min_p, 0.0, 1.0)
        _within("typical_p", self.typical_p, 0.0, 1.0)
        _within("repeat_penalty", self.repeat_penalty, 1e-3, 1e3)
        _within("presence_penalty", self.presence_penalty, -1e6, 1e6)
        _within("frequency_penalty", self.frequency_penalty, -1e6, 1e6)
        _within("repeat_last_n", self.repeat_last_n, -1, 2**31 - 1)
        for token, bias in self.logit_bias:
            if token < 0 or math.isnan(bias):
                raise UsageError(f"logit_bias holds ({token}, {bias}); expected a token id from 0 and a number")

    @property
    def greedy(self) -> bool:
        """Whether the highest logit is taken: no draw, and no filter but bias and penalties matters."""
        return self.temperature < 1e-6

    @property
    def penalises(self) -> bool:
        """Whether the tokens seen so far change anything."""
        neutral = self.repeat_penalty == 1.0 and self.presence_penalty == 0.0 and self.frequency_penalty == 0.0
        return self.repeat_last_n != 0 and not neutral

    @property
    def plain_greedy(self) -> bool:
        """Whether the token is simply the argmax of the model's logits."""
        return self.greedy and not self.penalises and not self.logit_bias


def fresh_seed() -> int:
    """A seed from the system's entropy, 32 bits, for a caller that was given none and will report it."""
    return secrets.randbits(32)


def _within(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:  # false for NaN too
        raise UsageError(f"{name} is {value}; expected {low:g} to {high:g}")
