"""Samplers: from one row of logits and a seed to one token.  They take a mask and know no grammar."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sampling:
    """How to choose a token.  temperature 0 is greedy; a filter at its neutral value is off."""

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
