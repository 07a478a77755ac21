"""Texts as vectors, whole texts at a time: each step of an encoder takes as many as fit, between the steps of others."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from llamay.errors import ContextFull, LlamayError, UsageError
from llamay.serve.engine import Engine
from llamay.serve.loading.load import Loaded
from llamay.serve.scheduling.scheduler import Scheduler
from llamay.tensor.batch import PAGE, Batch
from llamay.tensor.executor import Executor
from llamay.tensor.program import Floats

Text = str | Sequence[int]  # a text, or the token ids of one
SOON_ENCODED = 1 << 14  # characters
FEW = 16  # characters of a token, beyond which a text has more tokens than most


@dataclass(frozen=True, slots=True)
class Encoded:
    """A text as a model reads it."""

    ids: tuple[int, ...]
    kinds: tuple[int, ...] = ()  # of each id: 0, or 1 in the second text of a pair; empty: all 0


@dataclass(frozen=True, slots=True, eq=False)
class Vectors:
    """What texts came to."""

    rows: Floats  # [texts, width]
    tokens: int  # of all texts


class Encoder:
    """The vectors of one loaded model.  Any number of threads may use it."""

    def __init__(
        self, loaded: Loaded, engine: Engine, model: str = "", *, check: Callable[[], None] = lambda: None
    ) -> None:
        """`model` is the engine's name of it; `check` is called before each step, and what it raises ends the work."""
        self.loaded, self.engine, self.model, self.check = loaded, engine, model, check

    @property
    def longest(self) -> int:
        """Bytes beyond which no text may fit the context, or for a tokenizer that drops characters is any use."""
        return max(SOON_ENCODED * FEW, self.loaded.context * self.loaded.tokenizer.longest)

    def embed(
        self,
        texts: Sequence[Text],
        *,
        dimensions: int | None = None,
        normalised: bool = True,
        truncate: bool = False,
        first: int = 0,
    ) -> Vectors:
        """A vector for each text, of length one where `normalised`.

        `dimensions` keeps the first so many values.  A text beyond the context is cut where `truncate` says so, else
        ContextFull is raised.  UsageError for a model that does not embed.  `first` is the place of the first text among
        those the caller has, which errors name.
        """
        config = self.loaded.config
        if not config.pooling:
            raise UsageError(f"{self.loaded.name} generates text and does not embed; name a model that does")
        if config.ranks:
            raise UsageError(f"{self.loaded.name} ranks documents and does not embed; name a model that does")
        if dimensions is not None and not 1 <= dimensions <= config.hidden:
            raise UsageError(f"dimensions is {dimensions}; the vectors of {self.loaded.name} have 1 to {config.hidden}")
        encoded = []
        for at, text in enumerate(texts, first):
            self.check()
            encoded.append(self.encoded(text, at, truncate=truncate))
        rows = [self.loaded.finish.vector(row)[:dimensions] for row in self.pooled(encoded, first)]
        self._check_finite(rows, first)  # linears make large numbers too large
        if normalised:
            rows = [unit(row) for row in rows]
        width = dimensions or config.hidden
        return Vectors(np.array(rows, np.float32).reshape(-1, width), sum(len(one.ids) for one in encoded))

    def encoded(self, text: Text, at: int, *, truncate: bool) -> Encoded:
        """The ids of the text at a place among many; ids that are given are taken as they are."""
        tokenizer, least = self.loaded.tokenizer, ""
        if isinstance(text, str):
            begun = self.begun(text)
            least = "at least " if len(begun) < len(text) else ""
            ids = tokenizer.encode(begun, add_special=True)
        else:
            ids = list(text)
        if not ids:
            raise UsageError(f"text {at} has no tokens, so there is nothing to embed")
        unknown = next((id for id in ids if not 0 <= id < len(tokenizer)), None)
        if unknown is not None:
            raise UsageError(f"text {at} holds token id {unknown}; the vocabulary has ids 0 to {len(tokenizer) - 1}")
        context = self.loaded.context
        if len(ids) > context:
            if not truncate:
                raise ContextFull(
                    f"text {at} has {least}{len(ids)} tokens, and the context {context}; shorten it, or let it be cut",
                    prompt=len(ids),
                    context=context,
                )
            closed = isinstance(text, str) and tokenizer.closing is not None
            ids = [*ids[: context - 1], tokenizer.closing] if closed and tokenizer.closing is not None else ids[:context]
        return Encoded(tuple(ids))

    def begun(self, text: str) -> str:
        """The text, or as much of its beginning as has twice the context's tokens: encoding takes time by the length."""
        tokenizer, context = self.loaded.tokenizer, self.loaded.context
        most = max(SOON_ENCODED, FEW * context)
        while most < len(text):
            if len(tokenizer.encode(text[:most])) > 2 * context:
                return text[:most]
            most *= 4
        return text

    def pooled(self, texts: Sequence[Encoded], first: int = 0) -> Floats:
        """The pooled row of each text [texts, hidden], as the executor leaves it."""
        found: list[Floats] = []
        while len(found) < len(texts):
            self.check()
            found += list(self.engine.call(partial(step, texts=texts[len(found) :]), self.model))
        rows = np.array(found, np.float32).reshape(-1, self.loaded.config.hidden)
        self._check_finite(rows, first)
        return rows

    def _check_finite(self, rows: Sequence[Floats] | Floats, first: int) -> None:
        wrong = next((at for at, row in enumerate(rows) if not np.isfinite(row).all()), None)
        if wrong is not None:
            raise LlamayError(f"text {first + wrong} came to no finite numbers on {self.loaded.device}")


def step(scheduler: Scheduler, texts: Sequence[Encoded]) -> Floats:
    """The pooled rows of as many of the first texts as one step computes, at least one."""
    executor = scheduler.executor
    some = texts[: executor.slots]
    taken = some[: fitting(executor, [len(one.ids) for one in some])]
    return executor.forward(batch_of(taken))


def fitting(executor: Executor, lengths: Sequence[int]) -> int:
    """How many of the first texts, of so many tokens each, go into one step."""
    rows = pages = longest = 0
    for count, length in enumerate(lengths):
        rows, pages, longest = rows + length, pages + -(-length // PAGE), max(longest, length)
        if count and (count >= executor.slots or rows > executor.rows_at(longest - 1) or pages > executor.pages):
            return count
    return len(lengths)


def batch_of(texts: Sequence[Encoded]) -> Batch:
    """One step of whole texts, with pages that nobody else has: a model that embeds keeps nothing in them."""
    lengths = [len(one.ids) for one in texts]
    ends = np.cumsum(lengths)
    counts = [-(-length // PAGE) for length in lengths]
    tables = np.split(np.arange(sum(counts), dtype=np.int32), np.cumsum(counts)[:-1])
    kinds = [one.kinds or (0,) * len(one.ids) for one in texts]
    return Batch(
        tokens=np.concatenate([np.array(one.ids, np.int32) for one in texts]),
        positions=np.concatenate([np.arange(length, dtype=np.int32) for length in lengths]),
        sequences=np.repeat(np.arange(len(texts), dtype=np.int32), lengths),
        tables=tuple(tables),
        outputs=(ends - 1).astype(np.int32),
        kinds=np.concatenate([np.array(one, np.int32) for one in kinds]),
    )


def unit(row: Floats) -> Floats:
    """The row at length one; zeros stay."""
    x = row.astype(np.float64)
    length = float(np.sqrt((x * x).sum()))
    return (x / length if length else x).astype(np.float32)
