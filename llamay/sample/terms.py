"""A Sampling in the numbers the chain computes with, and as the sixteen words the kernels read."""

import math
from dataclasses import dataclass

import numpy as np

from llamay.errors import UsageError
from llamay.sample.fixed import LIMIT, Floats, Words
from llamay.sample.sampling import Sampling

MOST_TOKENS = 1 << 20  # of a vocabulary: the sum of all masses stays below 2^64
SHORT = 256  # candidates that one workgroup holds: up to this top_k the short route is taken
WHOLE = 1 << 32  # a fraction of one
WORDS = 16  # of a record

TYPICAL, TOP_P, MIN_P, PENALTIES, BIAS, SHORTLISTED = 1, 2, 4, 8, 16, 32  # bits of a record's first word


@dataclass(frozen=True, slots=True)
class Terms:
    """What the chain does to one row; NumPy and the kernels both take it from here."""

    top_k: int  # 0: off, else below the vocabulary's size
    typical: int  # fraction times 2^32; WHOLE: off
    top_p: int  # likewise
    floor: np.float32 | None  # ln(min_p), None: off
    rate: np.float32  # 1 / temperature
    repeat: np.float32 | None  # None: no penalties
    presence: np.float32
    frequency: np.float32
    last_n: int
    bias: bool
    seed: int  # 64 bits

    @classmethod
    def of(cls, sampling: Sampling, vocabulary: int) -> "Terms":
        """The terms of a sampling over this vocabulary.  Raises UsageError when they do not fit together."""
        if not 0 < vocabulary <= MOST_TOKENS:
            raise UsageError(f"a vocabulary of {vocabulary} tokens; sampling works from 1 to {MOST_TOKENS}")
        _check_bias(sampling, vocabulary)
        greedy = sampling.greedy
        top_k = 1 if greedy else sampling.top_k
        return cls(
            top_k=top_k if top_k < vocabulary else 0,
            typical=WHOLE if greedy else round(sampling.typical_p * WHOLE),
            top_p=WHOLE if greedy else max(1, round(sampling.top_p * WHOLE)),  # the likeliest always stays
            floor=None if greedy or sampling.min_p == 0.0 else np.float32(math.log(sampling.min_p)),
            rate=np.float32(1.0 if greedy else 1.0 / sampling.temperature),
            repeat=np.float32(sampling.repeat_penalty) if sampling.penalises else None,
            presence=_small(sampling.presence_penalty),
            frequency=_small(sampling.frequency_penalty),
            last_n=sampling.repeat_last_n,
            bias=bool(sampling.logit_bias),
            seed=sampling.seed & 0xFFFFFFFFFFFFFFFF,
        )

    def shortlisted(self, vocabulary: int) -> bool:
        """Whether the kernels may take the short route: top_k, or the vocabulary, fits one workgroup."""
        return (self.top_k or vocabulary) <= SHORT

    def words(self, vocabulary: int, ring_at: int = 0) -> Words:  # -> [WORDS]
        """The record the kernels read; wgsl/include/sample_terms.wgsl names its words.

        `ring_at` is the first cell of the slot's ring among all rings.
        """
        flags = TYPICAL * (self.typical < WHOLE) + TOP_P * (self.top_p < WHOLE) + MIN_P * (self.floor is not None)
        flags += PENALTIES * (self.repeat is not None) + BIAS * self.bias
        flags += SHORTLISTED * self.shortlisted(vocabulary)
        repeat = np.float32(1.0) if self.repeat is None else self.repeat
        floor = np.float32(0.0) if self.floor is None else self.floor
        parts = np.array(
            [floor, self.rate, repeat, np.float32(1.0) / repeat, self.presence, self.frequency], np.float32
        )
        whole = [flags, self.top_k or vocabulary, self.typical % WHOLE, self.top_p % WHOLE]
        tail = [self.seed & 0xFFFFFFFF, self.seed >> 32, self.last_n & 0xFFFFFFFF, ring_at]
        record = np.zeros(WORDS, np.uint32)  # the last words stay zero: the kernels count on one of them
        record[:4] = whole
        record[4:10] = parts.view(np.uint32)
        record[10:14] = tail
        return record


def dense_bias(sampling: Sampling, vocabulary: int) -> Floats:  # -> [vocabulary]
    """The bias of each token; -LIMIT excludes.  A token named twice gets the sum.

    Raises UsageError for a token outside the vocabulary.
    """
    _check_bias(sampling, vocabulary)
    bias = np.zeros(vocabulary, np.float64)
    for token, value in sampling.logit_bias:
        bias[token] += max(-float(LIMIT), min(float(LIMIT), value))
    return np.where(np.abs(bias) < 1e-30, 0.0, np.clip(bias, -LIMIT, LIMIT)).astype(np.float32)


def _check_bias(sampling: Sampling, vocabulary: int) -> None:
    outside = [token for token, _ in sampling.logit_bias if token >= vocabulary]
    if outside:
        raise UsageError(f"logit_bias names token {outside[0]}; the vocabulary ends at {vocabulary - 1}")


def _small(value: float) -> np.float32:
    return np.float32(0.0 if abs(value) < 1e-30 else value)
