"""The rows: each a promise, what was found, and the bound it must keep."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from llamay.sample import Recent, Sampling, choose
from llamay.tensor.batch import PAGE, Batch
from llamay.tensor.numpy import NumpyExecutor
from llamay.tensor.program import Floats
from llamay.verify.subject import ANSWER, Subject

CHUNKS = (1, 7, 16, 64, 512)
COMPARED = 48  # rows compared with float64
# Largest difference of a logit by KV format, in standard deviations of all logits.  A value that float32 and float64
# round to neighbouring steps of a format differs by a step from there on, hence the coarser bounds.
ACCURACY = {"f32": 5e-4, "f16": 1e-2, "vq8": 0.1, "q8": 0.3}
GREEDY = Sampling(temperature=0.0)
LIVELY = Sampling(temperature=1.5, top_k=0, top_p=1.0, min_p=0.0)
FULL = Sampling(
    temperature=0.9, top_k=200, top_p=0.97, min_p=0.001, typical_p=0.99, repeat_penalty=1.2, presence_penalty=0.1,
    frequency_penalty=0.1, repeat_last_n=48, seed=7,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One promise.  Green while the figure is within the bound."""

    name: str
    figure: float
    bound: float
    unit: str
    note: str = ""
    least: bool = False  # the figure must reach the bound instead
    kv: str = ""  # the cache format it is about

    @property
    def green(self) -> bool:
        """Whether it holds; a figure that is no number holds nothing."""
        return self.figure >= self.bound if self.least else self.figure <= self.bound


Check = Callable[[Subject], Row]


def prefill_equals_decode(subject: Subject) -> Row:
    """Logits of the answer's rows, token by token and all at once, and what the device chose from them itself."""
    text, table, moved = subject.tokens, subject.table(), subject.table(1)
    chosen = subject.sample(GREEDY, table)
    tokens = np.concatenate([text, chosen[:-1]])
    rows = np.arange(len(text) - 1, len(tokens), dtype=np.int32)
    one_by_one = [subject.executor.forward(Batch.single(tokens[row : row + 1], int(row), table)) for row in rows]
    at_once = subject.logits(len(tokens), moved, tokens, rows)  # last: it writes over the pages of the others
    differing = _differing(at_once, np.concatenate(one_by_one))
    wrong = int((at_once.argmax(-1) != chosen).sum())
    note = f"of {at_once.size:,}" if not wrong else f"of {at_once.size:,}; the device chose {wrong} other tokens"
    return Row("prefill equals decode", differing + wrong, 0, "logits differ", note)


def chunks_agree(subject: Subject) -> Row:
    """Logits by chunks of every size, each with its pages elsewhere, so that nothing old is read."""
    whole = subject.logits(len(subject.tokens), subject.table(len(CHUNKS)))
    counts = {chunk: _differing(whole, subject.logits(chunk, subject.table(turn))) for turn, chunk in enumerate(CHUNKS)}
    odd = ", ".join(f"{count:,} by {chunk}" for chunk, count in counts.items() if count)
    note = odd or f"of {whole.size:,} each by {', '.join(map(str, CHUNKS))}"
    return Row("any chunk size equals any other", sum(counts.values()), 0, "logits differ", note)


def company_changes_nothing(subject: Subject) -> Row:
    """Three sequences in one batch against each alone."""
    pages = subject.table()
    third = min(len(pages) // 3 * PAGE, 40)
    lengths = [third, max(third // 2, 1), third]
    starts = np.minimum([0, 3, 5], len(subject.tokens) - third)
    tables = tuple(pages[at::3] for at in range(3))
    parts = [subject.tokens[start : start + length] for start, length in zip(starts, lengths, strict=True)]
    ends = np.cumsum([len(part) for part in parts])
    together = subject.executor.forward(
        Batch(
            tokens=np.concatenate(parts),
            positions=np.concatenate([np.arange(len(part), dtype=np.int32) for part in parts]),
            sequences=np.repeat(np.arange(3, dtype=np.int32), [len(part) for part in parts]),
            tables=tables,
            outputs=(ends - 1).astype(np.int32),
        )
    )
    alone = [subject.executor.forward(Batch.single(part, 0, pages)) for part in parts]
    differing = _differing(together, np.concatenate(alone))
    return Row("company in a batch changes nothing", differing, 0, "logits differ", f"of {together.size:,}")


def agrees_with_numpy(subject: Subject) -> Row:
    """The executor's float32 against NumPy in float64, the twin of every kernel."""
    tokens = subject.tokens[:COMPARED]
    table = np.arange(-(-len(tokens) // PAGE), dtype=np.int32)
    batch = Batch.single(tokens, 0, table, np.arange(len(tokens), dtype=np.int32))
    kv = subject.loaded.settings.kv
    twin = NumpyExecutor(subject.executor.program, len(table), precise=True, hold=False, kv=kv)
    try:
        exact = twin.logits(batch)
    finally:
        twin.close()
    found = subject.executor.forward(batch)
    off = float(np.abs(found - exact).max()) / float(exact.std())
    agreeing = float((found.argmax(-1) == exact.argmax(-1)).mean())
    name = "float32 agrees with float64" if subject.executor.name == "numpy" else "WGSL agrees with NumPy"
    return Row(name, off, ACCURACY[kv], "of the logits' spread at most", f"{agreeing:.0%} agree on the first token")


def samples_as_defined(subject: Subject) -> Row:
    """Tokens sampled within steps, penalties and filters on, against llamay.sample from the same logits."""
    table, text = subject.table(), subject.tokens
    chosen = subject.sample(FULL, table)
    tokens = np.concatenate([text, chosen[:-1]])
    rows = np.arange(len(text) - 1, len(tokens), dtype=np.int32)
    logits = subject.logits(len(tokens), table, tokens, rows)
    recent = Recent(subject.executor.program.vocabulary, FULL.repeat_last_n, text, len(text))
    wrong = 0
    for row, seen, token in zip(rows, logits, chosen, strict=True):
        wrong += choose(seen, FULL, recent.counts, int(row)) != int(token)
        recent.push(int(token), int(row) + 1)
    return Row("sampling follows its definition", wrong, 0, "tokens differ", f"of {len(chosen)}")


def a_seed_repeats(subject: Subject) -> Row:
    """One seed: with the text computed anew, in other chunks, and kept from the answer before."""
    alone = subject.alone()
    answers = [
        subject.answer(LIVELY, 1, alone),
        subject.answer(LIVELY, 1, alone),
        subject.answer(LIVELY, 1, subject.alone(chunk=13)),
    ]
    different = sum(answer != answers[0] for answer in answers[1:])
    return Row(
        "the same seed gives the same text", different, 0, "answers differ", f"of {len(answers)}, {ANSWER} tokens"
    )


def seeds_differ(subject: Subject) -> Row:
    """Three seeds, three texts."""
    alone = subject.alone()
    answers = [subject.answer(LIVELY, seed, alone) for seed in (1, 2, 3)]
    different = sum(one != other for one, other in combinations(answers, 2))
    return Row("different seeds give different texts", different, 3, "pairs differ", "of 3", least=True)


def self_tested(subject: Subject) -> Row:
    """What the device tested of the kernels in use; the rows before this one brought most into use."""
    test = getattr(subject.executor, "selftest", None)
    if test is None:
        return Row("kernels passed their self-test", 0, 1, "of the bound", "NumPy has no kernels to test")
    right = [row.error for row in test.rows if row.tokens == 1]
    unused = sorted({row.tokens for row in test.rows if not row.passed})
    note = f"{len(test.rows)} kernels" + (f"; not used, for other bits: {unused} tokens a workgroup" if unused else "")
    return Row("kernels passed their self-test", max(right, default=math.nan), 1, "of the bound", note)


CHECKS: tuple[tuple[str, Check], ...] = (
    ("prefill equals decode", prefill_equals_decode),
    ("any chunk size equals any other", chunks_agree),
    ("company in a batch changes nothing", company_changes_nothing),
    ("WGSL agrees with NumPy", agrees_with_numpy),
    ("sampling follows its definition", samples_as_defined),
    ("the same seed gives the same text", a_seed_repeats),
    ("different seeds give different texts", seeds_differ),
    ("kernels passed their self-test", self_tested),
)


def _differing(one: Floats, other: Floats) -> int:
    """How many values differ in any bit."""
    return int((one.view(np.uint32) != other.view(np.uint32)).sum())
