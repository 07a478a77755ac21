"""The batch of one step: rows of every sequence that takes part, newcomers first, decoding sequences after them."""

from collections.abc import Sequence as Many
from dataclasses import dataclass

import numpy as np

from llamay.errors import LlamayError
from llamay.kv import Context
from llamay.serve.scheduling.sequence import Sequence
from llamay.tensor.batch import Batch, Ints

NO_ROWS = np.empty(0, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """The next `rows` tokens of a sequence, from the position its context has come to."""

    sequence: Sequence
    rows: int

    @property
    def context(self) -> Context:
        """Its pages."""
        context = self.sequence.context
        if context is None:
            raise LlamayError(f"request {self.sequence.ticket.id} takes part in a step without having pages")
        return context

    @property
    def tokens(self) -> list[int]:
        """What is computed [rows]."""
        first = self.context.position
        return self.sequence.tokens[first : first + self.rows]

    @property
    def completes(self) -> bool:
        """Whether all known tokens are in pages after this."""
        return self.rows == self.sequence.missing

    @property
    def samples(self) -> bool:
        """Whether a token is sampled from its last row."""
        return self.completes and self.sequence.purpose == "answer"


def batch_of(pieces: Many[Piece], outputs: Ints | None = None) -> Batch:
    """The pieces' rows end to end; by default the outputs are the last rows of those that sample.

    Page tables are the contexts' own arrays, which are never written to.
    """
    counts = [piece.rows for piece in pieces]
    ends = np.cumsum(counts, dtype=np.int32)
    contexts = [piece.context for piece in pieces]
    firsts = [context.position for context in contexts]
    if outputs is None:
        sampling = [piece.samples for piece in pieces]
        outputs = (ends - 1)[np.array(sampling, np.bool_)]
    starts = np.repeat(np.array(firsts, np.int32) - (ends - np.array(counts, np.int32)), counts)
    return Batch(
        tokens=np.array([token for piece in pieces for token in piece.tokens], np.int32),
        positions=(starts + np.arange(ends[-1], dtype=np.int32)).astype(np.int32),
        sequences=np.repeat(np.arange(len(pieces), dtype=np.int32), counts),
        tables=tuple([context.tables[0].array for context in contexts]),
        outputs=outputs,
        windows=tuple([context.tables[1].array for context in contexts if len(context.tables) > 1]),
    )
