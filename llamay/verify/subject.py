"""What is verified: one loaded model, a text it reads, and the ways to run it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from llamay.errors import UsageError
from llamay.sample import Sampling
from llamay.serve.loading.load import Loaded
from llamay.serve.request import Limits, Request
from llamay.serve.scheduling.alone import Alone
from llamay.serve.scheduling.scheduler import CHUNK
from llamay.tensor.batch import PAGE, Batch, Ints
from llamay.tensor.executor import Executor
from llamay.tensor.program import Floats

ANSWER = 32  # tokens generated after the text
LEAST_TEXT = 16
CHECKPOINTS = 32  # rows of a long text whose logits are compared

TEXT = (
    "The ferry leaves at seven, whatever the weather does. Anna counted the crates twice: twelve of apples, three "
    "of honey, and one, tied with string, that nobody had asked for. \u201cTake it,\u201d said the old man. "
    "\u201cIt weighs 4.5 kg, it cost me nothing, and I will not be here in spring.\u201d She looked at the water, "
    "grey and slow, and thought of the letter in her coat. Then the bell rang; the rope fell; the island grew small. "
)


@dataclass(frozen=True, slots=True)
class Subject:
    """A model, and the tokens of a text that fills the context but for an answer."""

    loaded: Loaded
    tokens: Ints  # [text]
    checkpoints: Ints  # rows of the text, the first and the last among them

    @classmethod
    def of(cls, loaded: Loaded, length: int) -> "Subject":
        """A text of `length` tokens, or what fits; raises UsageError where too few do."""
        length = min(length, loaded.context - ANSWER)
        if length < LEAST_TEXT:
            least = LEAST_TEXT + ANSWER
            raise UsageError(f"a context of {loaded.context} tokens is too short; verify needs {least}")
        once = loaded.language.raw(TEXT).tokens
        more = loaded.tokenizer.encode(TEXT)
        tokens = np.array(once + more * -(-length // len(more)), np.int32)[:length]
        rows = np.unique(np.linspace(0, length - 1, min(CHECKPOINTS, length)).round().astype(np.int32))
        return cls(loaded, tokens, rows)

    @property
    def executor(self) -> Executor:
        """What computes."""
        return self.loaded.executor

    def table(self, turn: int = 0) -> Ints:
        """A page table of the whole context; `turn` moves every page to another place."""
        return np.roll(np.arange(-(-self.loaded.context // PAGE), dtype=np.int32), turn)

    def logits(self, chunk: int, table: Ints, tokens: Ints | None = None, rows: Ints | None = None) -> Floats:
        """Logits [rows, vocabulary] of some rows (the checkpoints) of some tokens (the text), computed by chunks."""
        tokens = self.tokens if tokens is None else tokens
        rows = self.checkpoints if rows is None else rows
        found = []
        for first in range(0, len(tokens), chunk):
            piece = tokens[first : first + chunk]
            inside = rows[(rows >= first) & (rows < first + len(piece))] - first
            found.append(self.executor.forward(Batch.single(piece, first, table, inside)))
        return np.concatenate(found)

    def sample(self, sampling: Sampling, table: Ints) -> Ints:
        """ANSWER tokens sampled after the text by the executor alone, in submissions of different lengths."""
        last = len(self.tokens) - 1
        self.logits(len(self.tokens), table, self.tokens[:last], np.empty(0, np.int32))
        self.executor.begin((sampling,), (self.tokens,))
        self.executor.submit(Batch.single(self.tokens[last:], last, table), 1)
        found = [self.executor.collect()]
        for steps in _lengths(ANSWER - 1):
            self.executor.submit(None, steps)
            found.append(self.executor.collect())
        return np.concatenate(found)[:, 0]

    def alone(self, chunk: int = CHUNK) -> Alone:
        """A scheduler that knows nothing yet."""
        return Alone(self.executor, self.loaded.context, chunk)

    def answer(self, sampling: Sampling, seed: int, alone: Alone) -> tuple[int, ...]:
        """ANSWER tokens as a scheduler gives them; one that is handed in again knows the text."""
        request = Request(tuple(self.tokens.tolist()), replace(sampling, seed=seed), Limits(tokens=ANSWER))
        return alone.run(request).choices[0].tokens


def _lengths(total: int) -> Iterator[int]:
    """1, 2, 3 ... up to a total."""
    steps = 1
    while total:
        yield min(steps, total)
        total -= min(steps, total)
        steps += 1
