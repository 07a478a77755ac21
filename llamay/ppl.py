"""Perplexity of a text, by the scheme of llama-perplexity, so that figures compare."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from llamay.errors import UsageError
from llamay.serve.loading.load import Loaded
from llamay.tensor.batch import PAGE, Batch
from llamay.tensor.executor import Executor
from llamay.tensor.program import Floats

ROWS = 128  # token rows a step
LOGIT_BYTES = 64 << 20  # of the logits that one step returns
LEAST_CONTEXT = 4
LARGEST_EXPONENT = 709.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """The perplexity over the chunks so far."""

    chunks: int
    of: int
    tokens: int  # scored
    mean: float  # negative log-likelihood a token, natural logarithm
    deviation: float  # standard deviation of that mean
    chunk_mean: float  # as mean, of the last chunk alone

    @property
    def perplexity(self) -> float:
        """exp of the mean; infinite beyond what a float holds."""
        return math.exp(self.mean) if self.mean < LARGEST_EXPONENT else math.inf

    @property
    def uncertainty(self) -> float:
        """Standard deviation of the perplexity, to first order."""
        return self.deviation * self.perplexity


@dataclass(slots=True)
class _Sums:
    """Sums of negative log-likelihoods and of their squares."""

    count: int = 0
    first: float = 0.0
    second: float = 0.0
    chunks: int = 0
    last: float = 0.0  # mean of the last chunk

    def add(self, values: NDArray[np.float64]) -> None:
        self.count += len(values)
        self.first += float(values.sum())
        self.second += float((values * values).sum())
        self.chunks += 1
        self.last = float(values.mean())

    def estimate(self, of: int) -> Estimate:
        mean = self.first / self.count
        variance = max(0.0, self.second / self.count - mean * mean)
        deviation = math.sqrt(variance / (self.count - 1)) if self.count > 1 else 0.0
        return Estimate(self.chunks, of, self.count, mean, deviation, self.last)


def tokens_of(loaded: Loaded, text: bytes) -> list[int]:
    """The text's ids: one final line end dropped, BOS in front where the model wants it, special tokens plain text."""
    ids = loaded.tokenizer.encode(text.removesuffix(b"\n"))
    bos = loaded.tokenizer.bos
    return [bos, *ids] if bos is not None and loaded.tokenizer.add_bos else ids


def check(context: int, most: int | None) -> None:
    """Raises UsageError for a context or a number of chunks that measures nothing."""
    if context < LEAST_CONTEXT:
        least = f"the second half of it is scored, so at least {LEAST_CONTEXT}"
        raise UsageError(f"the context is {context} tokens; {least}")
    if most is not None and most < 1:
        raise UsageError(f"-chunks is {most}; it may be 1 or more")


def chunk_count(tokens: int, context: int, most: int | None) -> int:
    """How many whole chunks of `context` tokens there are, at most `most`.

    Raises UsageError where there is none.
    """
    check(context, most)
    if tokens < context:
        remedy = f"-c {tokens} would do" if tokens >= LEAST_CONTEXT else "give a longer text"
        raise UsageError(f"the text has {tokens} tokens, fewer than one chunk of {context}; {remedy}")
    return min(tokens // context, most or tokens)


def perplexity(
    executor: Executor, ids: Sequence[int], context: int, chunks: int, bos: int | None
) -> Iterator[Estimate]:
    """Yields the running estimate after each chunk.

    The ids are cut into disjoint chunks of `context` from the start, each computed alone from
    position 0 with `bos` (where the model adds one) in place of its first token.  The tokens of
    the second half are scored, given all before them: positions context // 2 + 1 and beyond.
    """
    sums = _Sums()
    table = np.arange(-(-context // PAGE), dtype=np.int32)
    rows = max(1, min(ROWS, LOGIT_BYTES // (4 * executor.program.vocabulary)))
    first = context // 2
    for chunk in range(chunks):
        part = np.array(ids[chunk * context : (chunk + 1) * context], np.int32)
        if bos is not None:
            part[0] = bos
        found = []
        for start in range(0, context - 1, rows):
            piece = part[start : min(start + rows, context - 1)]
            outputs = np.arange(max(first - start, 0), len(piece), dtype=np.int32)
            logits = executor.forward(Batch.single(piece, start, table, outputs))
            found.append(surprises(logits, part[start + outputs + 1]))
        sums.add(np.concatenate(found))
        yield sums.estimate(chunks)


def surprises(logits: Floats, tokens: NDArray[np.int32]) -> NDArray[np.float64]:
    """-log softmax of each row's token: logits [rows, vocabulary], tokens [rows] -> [rows]."""
    if not len(tokens):
        return np.empty(0, np.float64)
    shifted = logits - logits.max(axis=-1, keepdims=True)
    chosen = np.take_along_axis(shifted, tokens[:, None], axis=-1)[:, 0].astype(np.float64)
    sums: NDArray[np.float64] = np.exp(shifted).sum(axis=-1, dtype=np.float64)
    return np.log(sums) - chosen
