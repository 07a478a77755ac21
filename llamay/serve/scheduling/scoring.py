"""Scoring: the logits that tokens were sampled from, computed once more for the sequences that want them told.

A step samples on the device and gives back ids alone.  The same rows computed again are the same
bits, and what they write to the pages is what is there already.
"""

from collections.abc import Iterator
from collections.abc import Sequence as Many

import numpy as np

from llamay.errors import LlamayError
from llamay.kv import Context
from llamay.serve.events import Logprobs
from llamay.serve.logprobs import Scored, score
from llamay.serve.request import Reading
from llamay.serve.scheduling.sequence import Sequence
from llamay.tensor.batch import Batch, Ints
from llamay.tensor.executor import Executor
from llamay.tensor.program import Floats

LOGIT_BYTES = 64 << 20  # of the logits that one step returns

Wanting = tuple[Sequence, list[int]]  # and the tokens that were sampled for it


def scored(executor: Executor, sequences: Many[Sequence], ids: Ints) -> dict[Sequence, list[Scored]]:
    """The sampled tokens [steps, sequences] of those who want them scored, before they are accepted.

    Nothing may be in flight, and the sequences still hold their last known token uncommitted: so a
    window has not passed what the first row sees.
    """
    columns = zip(sequences, ids.T.tolist(), strict=True)
    wanting = [(one, column) for one, column in columns if one.alignment is not None and not one.over]
    found: dict[Sequence, list[Scored]] = {}
    for group in _groups(executor, wanting, len(ids)):
        logits = iter(executor.forward(_batch(group, len(ids))))
        for sequence, tokens in group:
            found[sequence] = [score(next(logits), token, sequence.logprobs or 0) for token in tokens]
    return found


def read(asked: Reading, first: int, logits: Floats) -> Logprobs:
    """The tokens of a reading after the positions from `first` on, by their logits [positions, vocabulary]."""
    following = asked.tokens[first + 1 : first + 1 + len(logits)]
    count = asked.logprobs or 0
    return Logprobs(tuple([score(row, token, count) for row, token in zip(logits, following, strict=False)]))


def _groups(executor: Executor, wanting: list[Wanting], steps: int) -> Iterator[list[Wanting]]:
    """As many sequences together as one forward step and its logits have place for."""
    furthest = max((one.held for one, _ in wanting), default=0) + steps - 1
    rows = min(executor.rows_at(furthest), LOGIT_BYTES // (4 * executor.program.vocabulary))
    most = max(1, rows // steps)
    for at in range(0, len(wanting), most):
        yield wanting[at : at + most]


def _batch(group: list[Wanting], steps: int) -> Batch:
    """The rows that sampled, as the device computed them."""
    contexts = [_pages(one) for one, _ in group]
    tokens = [[*one.tokens[one.held :], *column[:-1]] for one, column in group]
    if any(len(row) != steps for row in tokens):
        raise LlamayError("tokens were to be scored that are not the ones after what is committed")
    return Batch(
        tokens=np.array(tokens, np.int32).ravel(),
        positions=np.concatenate([np.arange(one.held, one.held + steps, dtype=np.int32) for one, _ in group]),
        sequences=np.repeat(np.arange(len(group), dtype=np.int32), steps),
        tables=tuple([context.tables[0].array for context in contexts]),
        outputs=np.arange(len(group) * steps, dtype=np.int32),
        windows=tuple([context.tables[1].array for context in contexts if len(context.tables) > 1]),
    )


def _pages(sequence: Sequence) -> Context:
    if sequence.context is None:
        raise LlamayError(f"request {sequence.ticket.id} is scored without having pages")
    return sequence.context
