"""`llamay verify`'s rows on contexts: red on what breaks sharing, saving, evicting, batching or preempting."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamay.errors import LlamayError
from llamay.serve.loading import load
from llamay.settings import Settings
from llamay.tensor.batch import Batch
from llamay.verify import contexts, elsewhere
from llamay.verify.contexts import CONTEXT_CHECKS
from llamay.verify.subject import Subject

FORK, SNAPSHOT, EVICTED, PREFIX, COMPANY, PREEMPTED = (check for _, check in CONTEXT_CHECKS)
LENGTH = 40

Wrong = Callable[..., Any]


class Faulty:
    """An executor with something wrong, and so are those beside it: methods are replaced by those given."""

    def __init__(self, right: Any, **wrong: Wrong) -> None:
        self._right, self._wrong = right, wrong

    def __getattr__(self, name: str) -> Any:
        right = getattr(self._right, name)
        wrong = self._wrong.get(name)
        return right if wrong is None else lambda *given: wrong(right, *given)

    def beside(self, *given: Any) -> "Faulty":
        return Faulty(self._right.beside(*given), **self._wrong)


@pytest.fixture
def subject(models: Path) -> Iterator[Subject]:
    with load.load(models / "llama-gqa.f16.gguf", Settings(backend="numpy", context=96)) as loaded:
        yield Subject.of(loaded, LENGTH)


def broken(subject: Subject, **wrong: Wrong) -> Subject:
    """The subject, computed by a faulty executor."""
    subject.loaded.executor = Faulty(subject.loaded.executor, **wrong)
    return subject


def one_bit(logits: np.ndarray) -> np.ndarray:
    """With another last bit in the first value."""
    if logits.size:
        logits.reshape(-1)[:1].view(np.uint32)[:] ^= 1
    return logits


def test_names_are_those_of_the_rows(subject: Subject) -> None:
    for name, check in CONTEXT_CHECKS:
        row = check(subject)
        assert row.green and row.name == name and row.figure == 0
        assert not row.note.startswith("of 0")


@pytest.mark.parametrize("name", ["gemma3.f16", "mamba.f32"])
def test_a_window_passes_in_between(name: str, models: Path) -> None:
    """A model whose windows are far shorter than the text, or that keeps a state: pages are given back while it is read."""
    with load.load(models / f"{name}.gguf", Settings(backend="numpy", context=110)) as loaded:
        subject = Subject.of(loaded, 70)
        with contexts.stage(subject.executor, 20) as on:
            context = on.new()
            on.read(context, subject.tokens)
            assert len(on.cache.groups) == 2 and context.tables[1].first > 0
        assert [check(subject).green for _, check in CONTEXT_CHECKS] == [True] * len(CONTEXT_CHECKS)


def test_a_shared_page_that_is_not_copied(subject: Subject) -> None:
    assert not FORK(broken(subject, copy_pages=lambda right, group, pairs: None)).green


def test_pages_that_are_read_wrong(subject: Subject) -> None:
    def read(right: Wrong, group: int, pages: list[int]) -> np.ndarray:
        found = right(group, pages).copy()
        found[0, 1] ^= 1
        return found

    row = SNAPSHOT(broken(subject, read_pages=read))
    assert not row.green and row.figure > 0


def test_a_process_that_fails(subject: Subject) -> None:
    with pytest.raises(LlamayError, match=r"another process could not go on from the snapshot: .*no context is saved"):
        elsewhere.continued(subject, Path(subject.loaded.file.path).parent / "nothing", subject.checkpoints)


def test_computing_anew_gives_something_else(subject: Subject) -> None:
    calls: list[int] = []

    def forward(right: Wrong, batch: Batch) -> np.ndarray:
        calls.append(1)
        return one_bit(right(batch)) if len(calls) > 2 else right(batch)

    assert EVICTED(broken(subject, forward=forward)).figure == 1


def test_a_prefix_that_matters(subject: Subject) -> None:
    def forward(right: Wrong, batch: Batch) -> np.ndarray:
        return one_bit(right(batch)) if batch.positions[0] else right(batch)

    assert PREFIX(broken(subject, forward=forward)).figure == 1


@pytest.mark.parametrize("width", contexts.WIDTHS)
def test_company_of_one_width(subject: Subject, width: int) -> None:
    def forward(right: Wrong, batch: Batch) -> np.ndarray:
        return one_bit(right(batch)) if len(batch.tables) == width else right(batch)

    row = COMPANY(broken(subject, forward=forward))
    assert not row.green and f"among {width}" in row.note


def test_every_width_has_company_that_comes_and_goes(subject: Subject) -> None:
    seen: list[int] = []

    def forward(right: Wrong, batch: Batch) -> np.ndarray:
        seen.append(len(batch.tables))
        return right(batch)

    assert COMPANY(broken(subject, forward=forward)).green
    assert {1, 2, 3, 8} <= set(seen) and {4, 5, 6, 7} & set(seen)


def test_tokens_that_depend_on_company(subject: Subject) -> None:
    crowded: list[bool] = []

    def submit(right: Wrong, batch: Batch | None, steps: int) -> None:
        crowded.append(batch is not None and len(batch.outputs) > 1)
        right(batch, steps)

    def collect(right: Wrong) -> np.ndarray:
        ids = right()
        return (ids + 1) % 320 if any(crowded) else ids

    row = PREEMPTED(broken(subject, submit=submit, collect=collect))
    assert not row.green and row.figure > 0


def test_nothing_preempted_is_not_green(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contexts, "_answered", lambda on, text, older: _Calm())
    with pytest.raises(LlamayError, match="nothing was preempted"):
        PREEMPTED(subject)


class _Calm:
    tokens, preempted = (1,), 0
    pages, logits = np.zeros(1), np.zeros((1, 1), np.float32)


def test_an_error_of_a_row_is_red(subject: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    from llamay.verify import run

    def fails(subject: Subject) -> None:
        raise LlamayError("no pages")

    monkeypatch.setattr(run, "CHECKS", ())
    monkeypatch.setattr(run, "cache_checks", tuple)
    monkeypatch.setattr(run, "CONTEXT_CHECKS", (("a row", fails),))
    [row] = run.verify(subject.loaded, lambda what: None, LENGTH)
    assert math.isnan(row.figure) and not row.green and row.note == "no pages"
