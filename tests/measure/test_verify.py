"""`llamay verify`: green on what keeps its promises, and red, row by row, on what breaks one."""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamay.errors import DeviceError, DeviceLost, UsageError
from llamay.sample import Sampling
from llamay.serve.loading import load
from llamay.settings import Settings
from llamay.tensor.batch import Batch
from llamay.verify import caches, run
from llamay.verify.checks import CHECKS, Row
from llamay.verify.contexts import CONTEXT_CHECKS
from llamay.verify.run import verify

Captured = pytest.CaptureFixture[str]
Loaded = load.Loaded

NAMES = [*(name for name, _ in (*CHECKS, *CONTEXT_CHECKS)), *caches.NAMES]
PREFILL, CHUNKS, COMPANY, NUMPY, SAMPLING, SEED, SEEDS, SELF = (name for name, _ in CHECKS)
LENGTH = 40


def quiet(what: str) -> None:
    """Nobody looks."""


class Faulty:
    """The executor of a loaded model with something wrong: its methods are replaced by those given."""

    def __init__(self, loaded: Loaded, **wrong: Callable[..., Any]) -> None:
        self._right, self._wrong = loaded.executor, wrong
        loaded.executor = self

    def __getattr__(self, name: str) -> Any:
        right = getattr(self._right, name)
        wrong = self._wrong.get(name)
        return right if wrong is None else lambda *given: wrong(right, *given)


@pytest.fixture
def loaded(models: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Loaded]:
    """One to be made faulty; the rows on contexts have tests of their own."""
    monkeypatch.setattr(run, "CONTEXT_CHECKS", ())
    with load.load(models / "llama-gqa.f16.gguf", Settings(backend="numpy", context=96)) as found:
        yield found


def red(loaded: Loaded) -> set[str]:
    """The names of the rows that are not green."""
    rows = list(verify(loaded, quiet, LENGTH))
    names = [*(name for name, _ in CHECKS), *caches.NAMES]
    return {name for name, row in zip(names, rows, strict=True) if not row.green}


def test_all_is_green(in_force: Settings, models: Path) -> None:
    with load.load(models / "gemma3.f16.gguf", Settings(backend=in_force.backend, context=96)) as loaded:
        rows = list(verify(loaded, quiet, LENGTH))
        assert [row.name for row in rows if not row.green] == []
        expected = {NUMPY: "float32 agrees with float64"} if loaded.executor.name == "numpy" else {}
    assert [row.name for row in rows] == [expected.get(name, name) for name in NAMES]
    assert 0 < rows[3].figure < 1e-4  # never exactly the same, or it would be compared with itself


def test_logits_that_depend_on_the_chunk(loaded: Loaded) -> None:
    def forward(right: Callable[..., Any], batch: Batch) -> np.ndarray:
        logits = right(batch)
        logits[:, 5] = np.nextafter(logits[:, 5], np.float32(99 if len(batch.tokens) > 8 else -99))  # one bit
        return logits

    Faulty(loaded, forward=forward)
    assert {CHUNKS, PREFILL} <= red(loaded) <= {CHUNKS, PREFILL, COMPANY}


def test_logits_that_depend_on_the_company(loaded: Loaded) -> None:
    def forward(right: Callable[..., Any], batch: Batch) -> np.ndarray:
        return right(batch) * np.float32(1 + 1e-6 * (len(batch.tables) > 1))

    Faulty(loaded, forward=forward)
    assert red(loaded) == {COMPANY}


def test_pages_that_are_not_written(loaded: Loaded) -> None:
    """Chunks of seven leave no keys and values: what lies in the pages is another run's."""

    def forward(right: Callable[..., Any], batch: Batch) -> np.ndarray:
        if len(batch.tokens) == 7:
            table = np.roll(batch.tables[0], 1)
            batch = Batch(batch.tokens, batch.positions, batch.sequences, (table,), batch.outputs)
        return right(batch)

    Faulty(loaded, forward=forward)
    assert CHUNKS in red(loaded)


def test_logits_that_are_a_little_wrong(loaded: Loaded) -> None:
    Faulty(loaded, forward=lambda right, batch: right(batch) * np.float32(1.001))
    assert {NUMPY} <= red(loaded) <= {NUMPY, SAMPLING}


def test_logits_that_are_no_numbers(loaded: Loaded) -> None:
    Faulty(loaded, forward=lambda right, batch: right(batch) * np.float32(math.nan))
    assert NUMPY in red(loaded)


def test_decoding_that_chooses_others(loaded: Loaded) -> None:
    def collect(right: Callable[..., Any]) -> np.ndarray:
        return (right() + 1) % 320

    Faulty(loaded, collect=collect)
    assert {PREFILL, SAMPLING} <= red(loaded)


def test_sampling_without_penalties(loaded: Loaded) -> None:
    def begin(right: Callable[..., Any], samplings: tuple[Sampling, ...], histories: tuple[Any, ...]) -> None:
        right(samplings, tuple(np.empty(0, np.int32) for _ in histories))

    Faulty(loaded, begin=begin)
    assert red(loaded) == {SAMPLING}


def test_a_seed_that_does_not_repeat(loaded: Loaded) -> None:
    calls = []

    def begin(right: Callable[..., Any], samplings: tuple[Sampling, ...], histories: tuple[Any, ...]) -> None:
        calls.append(1)
        right(tuple(replace(sampling, seed=len(calls)) for sampling in samplings), histories)

    Faulty(loaded, begin=begin)
    assert {SEED} <= red(loaded) <= {SEED, SAMPLING}


def test_seeds_that_do_nothing(loaded: Loaded) -> None:
    def begin(right: Callable[..., Any], samplings: tuple[Sampling, ...], histories: tuple[Any, ...]) -> None:
        right(tuple(replace(sampling, seed=7) for sampling in samplings), histories)

    Faulty(loaded, begin=begin)
    assert red(loaded) == {SEEDS}


def test_an_error_is_a_red_row_and_a_lost_device_the_end(loaded: Loaded) -> None:
    def refuse(error: Exception) -> Callable[..., Any]:
        def begin(right: Callable[..., Any], *given: Any) -> None:
            raise error

        return begin

    Faulty(loaded, begin=refuse(DeviceError("the kernel was refused")))
    rows = list(verify(loaded, quiet, LENGTH))
    failed = [row for row in rows if math.isnan(row.figure)]
    assert {row.name for row in failed} == {PREFILL, SAMPLING, SEED, SEEDS}
    assert all(row.note == "the kernel was refused" and not row.green for row in failed)
    Faulty(loaded, begin=refuse(DeviceLost("gone")))
    with pytest.raises(DeviceLost):
        list(verify(loaded, quiet, LENGTH))


def test_a_bound_is_kept_from_its_side() -> None:
    assert Row("", 0, 0, "").green and not Row("", 1, 0, "").green
    assert Row("", 3, 3, "", least=True).green and not Row("", 2, 3, "", least=True).green
    assert not Row("", math.nan, 0, "").green and not Row("", math.nan, 0, "", least=True).green


def test_a_context_too_short(models: Path) -> None:
    with load.load(models / "llama-gqa.f16.gguf", Settings(backend="numpy", context=40)) as loaded:
        with pytest.raises(UsageError, match="verify needs 48"):
            list(verify(loaded, quiet))


def test_the_page(llamay, models: Path, capsys: Captured) -> None:
    assert llamay("verify", "-m", models / "llama-gqa.f16.gguf", "-prompt", LENGTH, "-device", "numpy") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(NAMES)
    assert all(line.startswith("✓ green  ") and "(bound: at " in line for line in lines)


def test_red_ends_with_one(llamay, models: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = (*CHECKS[:1], ("the sky is green", lambda subject: Row("the sky is green", 0.4, 0.1, "off", "at noon")))
    monkeypatch.setattr(run, "CHECKS", broken)
    monkeypatch.setattr(run, "CONTEXT_CHECKS", ())
    monkeypatch.setattr(run, "cache_checks", tuple)
    words = ("verify", "-m", models / "llama-gqa.f16.gguf", "-prompt", LENGTH, "-device", "numpy")
    assert llamay(*words) == 1
    assert "✗ red    the sky is green" in capsys.readouterr().out
    assert llamay(*words, "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert not told["green"] and [row["green"] for row in told["rows"]] == [True, False]
    assert told["rows"][1]["figure"] == 0.4 and told["device"] == "numpy"
