"""A stage: pages beside a loaded model in groups as an engine has them, contexts on it, and ways to compute them."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from llamay.kv import Cache, Context
from llamay.kv.table import sized
from llamay.tensor.batch import PAGE, Batch, Ints
from llamay.tensor.executor import Executor
from llamay.tensor.program import Floats
from llamay.tensor.tail import clear_tail

CHUNK = 48  # rows computed at a time: windows pass between chunks

NOTHING = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Part:
    """The next tokens of a context, and the positions whose logits are wanted."""

    context: Context
    tokens: Ints
    wanted: Ints = field(default_factory=lambda: NOTHING)


@dataclass(frozen=True, slots=True)
class Stage:
    """An executor over the model's weights, and the cache of its pages."""

    executor: Executor
    cache: Cache

    def new(self) -> Context:
        """A context that holds nothing."""
        return self.cache.match(())[0]

    def compute(self, *parts: Part) -> list[Floats]:
        """Computes the parts in one batch; of each the logits [wanted, vocabulary]."""
        tables, windows, tokens, positions, outputs = [], [], [], [], []
        rows = 0
        for part in parts:
            first, count = part.context.position, len(part.tokens)
            self.cache.extend(part.context, count)
            tables.append(part.context.tables[0].array)
            windows += [table.array for table in part.context.tables[1:]]
            tokens.append(np.asarray(part.tokens, np.int32))
            positions.append(np.arange(first, first + count, dtype=np.int32))
            outputs.append(part.wanted - first + rows)
            rows += count
        batch = Batch(
            tokens=np.concatenate(tokens),
            positions=np.concatenate(positions),
            sequences=np.repeat(np.arange(len(parts), dtype=np.int32), [len(part) for part in tokens]),
            tables=tuple(tables),
            outputs=np.concatenate(outputs).astype(np.int32),
            windows=tuple(windows),
        )
        logits = self.executor.forward(batch)
        for part in parts:
            self.cache.commit(part.context, part.tokens.tolist())
        return np.split(logits, np.cumsum([len(part.wanted) for part in parts])[:-1])

    def read(self, context: Context, tokens: Ints, wanted: Ints = NOTHING) -> Floats:
        """Computes the tokens by chunks; logits [wanted, vocabulary]."""
        found = []
        for first in range(0, len(tokens), CHUNK):
            piece, at = tokens[first : first + CHUNK], context.position
            inside = wanted[(wanted >= at) & (wanted < at + len(piece))]
            found += self.compute(Part(context, piece, inside))
        return np.concatenate(found)

    def pages(self, context: Context) -> NDArray[np.uint8]:
        """The bytes of all its pages, those of positions it has not reached cleared."""
        found = []
        for group, table in enumerate(context.tables):
            data = self.executor.read_pages(group, table.cut(sized(context.position)).live.tolist()).copy()
            if context.position % PAGE:
                clear_tail(self.executor, group, data[-1], context.position % PAGE)
            found.append(data.reshape(-1))
        return np.concatenate(found)


@contextmanager
def stage(executor: Executor, pages: int) -> Iterator[Stage]:
    """A stage with so many pages in each group, beside an executor."""
    made = executor.beside(executor.kv, pages, pages if executor.program.span else 0)
    try:
        yield Stage(made, Cache.over(made))
    finally:
        made.close()


def differing(one: Sequence[Floats] | Floats, other: Sequence[Floats] | Floats) -> int:
    """How many values differ in any bit; all of them where there are not as many."""
    left, right = (np.concatenate([np.ravel(part) for part in each]).view(np.uint32) for each in (one, other))
    return int((left != right).sum()) if left.shape == right.shape else max(len(left), len(right))
