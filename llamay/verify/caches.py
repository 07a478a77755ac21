"""How far each cache format moves the distribution of the next token, and that the bound on it has teeth."""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from llamay.tensor.batch import PAGE, Batch
from llamay.tensor.cache import OFFERED
from llamay.tensor.executor import Executor
from llamay.tensor.program import Floats, Program, Scan, ShortConv
from llamay.verify.checks import Check, Row
from llamay.verify.subject import Subject

BOUND = 5.0  # per cent of the probability that may move, in the mean over positions
ONE_BIT = "q1"
QUANTISED = OFFERED[1:]
ROWS = 64  # positions compared at a time
ROW_BYTES = 32 << 20  # of their logits at most

NAMES = (*(f"{kv} cache stays near the exact one" for kv in QUANTISED), "the bound on caches has teeth")


@dataclass(slots=True)
class Distance:
    """The total-variation distances between the exact distributions and those of one cache format."""

    shares: list[NDArray[np.float64]] = field(default_factory=list)  # [positions] each, 0 to 1
    agreeing: int = 0  # positions whose likeliest token is the same

    @property
    def mean(self) -> float:
        """Per cent, over all positions."""
        return 100 * float(np.concatenate(self.shares).mean())

    @property
    def largest(self) -> float:
        """Per cent, at the worst position."""
        return 100 * float(np.concatenate(self.shares).max())

    @property
    def agreement(self) -> float:
        """The share of positions whose likeliest token is the same."""
        return self.agreeing / sum(map(len, self.shares))

    def add(self, exact: NDArray[np.float64], found: NDArray[np.float64]) -> None:
        """Distributions [positions, vocabulary] at further positions."""
        self.shares.append(np.abs(exact - found).sum(axis=-1) / 2)
        self.agreeing += int((exact.argmax(-1) == found.argmax(-1)).sum())


def distances(subject: Subject) -> dict[str, Distance]:
    """Reads the text with every format at once, over the same weights; one distance a format."""
    vocabulary = subject.executor.program.vocabulary
    rows = max(1, min(ROWS, ROW_BYTES // (8 * vocabulary)))
    pages = -(-len(subject.tokens) // PAGE)
    table = np.arange(pages, dtype=np.int32)
    with ExitStack() as opened:

        def beside(kv: str) -> Executor:
            made = subject.executor.beside(kv, pages)
            opened.callback(made.close)
            return made

        exact = subject.executor if subject.executor.kv == "f32" else beside("f32")
        executors = {kv: beside(kv) for kv in (*QUANTISED, ONE_BIT)}
        found = {kv: Distance() for kv in executors}
        for first in range(0, len(subject.tokens), rows):
            piece = subject.tokens[first : first + rows]
            batch = Batch.single(piece, first, table, np.arange(len(piece), dtype=np.int32))
            wanted = distribution(exact.forward(batch))
            for kv, executor in executors.items():
                found[kv].add(wanted, distribution(executor.forward(batch)))
    return found


def distribution(logits: Floats) -> NDArray[np.float64]:
    """The softmax of each row, in float64."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    np.exp(shifted, out=shifted)
    shifted /= shifted.sum(axis=-1, keepdims=True)
    return shifted


def share(program: Program) -> float:
    """Which part of the layers has keys and values: states are f32 in every format."""
    return sum(not isinstance(op, Scan | ShortConv) for op in program.layers) / len(program.layers)


def apply(program: Program) -> bool:
    """Whether some layer has keys and values."""
    return share(program) > 0


def cache_checks() -> tuple[tuple[str, Check], ...]:
    """A check for each quantised format and one for the bound; they share one reading of the text."""
    found: dict[str, Distance] = {}

    def check(name: str, kv: str) -> Callable[[Subject], Row]:
        def row(subject: Subject) -> Row:
            if not found:
                found.update(distances(subject))
            return _row(name, kv, found[kv], share(subject.executor.program))

        return row

    return tuple((name, check(name, kv)) for name, kv in zip(NAMES, (*QUANTISED, ONE_BIT), strict=True))


def _row(name: str, kv: str, distance: Distance, share: float) -> Row:
    unit = "% mean total variation from f32"
    if kv == ONE_BIT:
        return Row(name, distance.mean, BOUND * share, unit, "a cache of one bit a value must fail it", least=True)
    word = "safe with this file" if distance.mean <= BOUND else "NOT SAFE with this file"
    note = f"{word}; at most {distance.largest:.3g}%, {distance.agreement:.0%} agree on the first token"
    return Row(name, distance.mean, BOUND, unit, note, kv=kv)
