"""`llamay bench -forks`, `-batch` and `benchfork`: their lines to the letter, what they check, what they refuse."""

import json
import re
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamay.bench import batch, forks, questions
from llamay.bench.shared import Room, longest, open_shared
from llamay.cli import bench_rows
from llamay.errors import LlamayError, UsageError
from llamay.settings import Settings
from llamay.tensor.batch import Batch

Captured = pytest.CaptureFixture[str]

TIME = r"(\d{1,3}us|\d{1,3}ms|\d+\.\d{3}s)"
SIZE = r"[\d.]+ [kMG]?B"


def quiet(what: str) -> None:
    """Nobody looks."""


class Faulty:
    """An executor with something wrong: its methods are replaced by those given."""

    def __init__(self, right: Any, **wrong: Callable[..., Any]) -> None:
        self._right, self._wrong = right, wrong

    def __getattr__(self, name: str) -> Any:
        right = getattr(self._right, name)
        wrong = self._wrong.get(name)
        return right if wrong is None else lambda *given: wrong(right, *given)


# -- forks


def test_the_lines_of_forks(llamay, models: Path, capsys: Captured) -> None:
    assert llamay("bench", "-m", models / "llama-gqa.f16.gguf", "-forks", "32", "-prompt", "100", "-reps", "2") == 0
    heading, empty, *lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r".+ · llama-gqa · kv f32 · \d+ pages", heading) and not empty
    patterns = [
        rf"fork x32 {TIME} 0 pages allocated \(a copy would be 224\)",
        rf"generate x32 {TIME} a token each, the original's; integrity holds",
        rf"snapshot {TIME} {SIZE} of pages, {SIZE} on disk",
        rf"second snapshot \d+\.\d% of the first's bytes: {SIZE}, sharing 90 of its 100 tokens",
        rf"restore {TIME} vs {TIME} to re-prefill",
        r"Restoring a 100-token context is \d+\.\dx faster than recomputing it\.",
    ]
    assert len(lines) == len(patterns)
    for pattern, line in zip(patterns, lines, strict=True):
        assert re.fullmatch(pattern, line), line


def test_the_lines_are_those_of_the_figures() -> None:
    found = forks.Forks(
        forks=32, tokens=2048, fork_seconds=(64e-6, 65e-6, 90e-6), allocated=0, copied=4096, generate_seconds=1.2,
        page_bytes=94 * 10**6, snapshot_seconds=(0.31,), snapshot_bytes=80 * 10**6, restore_seconds=(0.0739,),
        prefill_seconds=(3.149,), shared_tokens=1843, second_bytes=8 * 10**6,
    )  # fmt: skip
    lines = bench_rows.forks(found)
    assert lines[0] == "fork x32 65us 0 pages allocated (a copy would be 4096)"
    assert lines[2] == "snapshot 310ms 94.0 MB of pages, 80.0 MB on disk"
    assert lines[3] == "second snapshot 10.0% of the first's bytes: 8.0 MB, sharing 1843 of its 2048 tokens"
    assert lines[4:] == [
        "restore 74ms vs 3.149s to re-prefill",
        "Restoring a 2048-token context is 42.6x faster than recomputing it.",
    ]


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(65.4e-6, "65us"), (999.4e-6, "999us"), (999.6e-6, "1ms"), (0.0741, "74ms"), (0.9994, "999ms"), (0.9996, "1.000s"), (3.149, "3.149s")],
)  # fmt: skip
def test_durations(seconds: float, told: str) -> None:
    assert bench_rows.duration(seconds) == told


@pytest.mark.parametrize(("name", "tokens"), [("llama-gqa.f16", 96), ("gemma3.f16", 250)])
def test_forks_add_up(in_force: Settings, models: Path, tmp_path: Path, name: str, tokens: int) -> None:
    with open_shared(models / f"{name}.gguf", in_force, forks.room_of(5, tokens)) as target:
        windowed = bool(target.executor.window_pages)
        found = forks.run(target, 5, tokens, 2, tmp_path, quiet)
        whole = sum(target.executor.page_bytes(group) for group in range(1 + windowed))
    assert windowed == (name == "gemma3.f16")
    pages = -(-tokens // 16)
    assert found.allocated == 0
    assert found.copied == 5 * pages if not windowed else 5 * pages < found.copied < 2 * 5 * pages
    assert found.page_bytes == pages * whole if not windowed else found.page_bytes < pages * whole
    assert [len(some) for some in (found.fork_seconds, found.snapshot_seconds, found.restore_seconds)] == [2, 2, 2]
    assert min(*found.fork_seconds, *found.restore_seconds, *found.prefill_seconds, found.generate_seconds) > 0
    assert 0 < found.second_bytes < found.snapshot_bytes and found.shared_tokens == round(0.9 * tokens)
    assert found.speedup == pytest.approx(np.median(found.prefill_seconds) / np.median(found.restore_seconds))
    assert not list(tmp_path.iterdir())  # nothing is left


def test_forks_that_go_on_otherwise(models: Path, tmp_path: Path) -> None:
    with open_shared(models / "llama-gqa.f16.gguf", Settings(backend="numpy"), forks.room_of(4, 40)) as target:

        def collect(right: Callable[..., Any]) -> np.ndarray:
            ids = right()
            return ids + np.arange(ids.shape[1], dtype=np.int32)

        target.executor = Faulty(target.executor, collect=collect)
        with pytest.raises(LlamayError, match="forks went on with"):
            forks.run(target, 4, 40, 1, tmp_path, quiet)
    assert not list(tmp_path.iterdir())


def test_restored_pages_that_are_others(models: Path, tmp_path: Path) -> None:
    with open_shared(models / "llama-gqa.f16.gguf", Settings(backend="numpy"), forks.room_of(2, 90)) as target:
        target.executor = Faulty(target.executor, write_pages=lambda right, group, pages, data: None)
        with pytest.raises(LlamayError, match="the restored context went on with"):
            forks.run(target, 2, 90, 1, tmp_path, quiet)


def test_the_usual_context_is_what_the_model_takes(llamay, models: Path, capsys: Captured) -> None:
    words = ("bench", "-m", models / "llama-gqa.f16.gguf", "-forks", "2", "-reps", "1", "-device", "numpy", "-json")
    assert llamay(*words) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["tokens"] == longest(models / "llama-gqa.f16.gguf") - forks.BEYOND < 2048
    assert told["device"] == "numpy" and told["allocated"] == 0 and told["speedup"] > 0


# -- batches


def test_the_lines_of_batches(llamay, models: Path, capsys: Captured) -> None:
    words = ("-batch", "6", "-prompt", "30", "-gen", "40", "-reps", "2")
    assert llamay("bench", "-m", models / "llama-gqa.f16.gguf", *words) == 0
    _, _, *lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    for width, line in zip((1, 2, 4, 6), lines, strict=True):
        pattern = (
            rf"batch +{width} +[\d.]+ tok/s  best +[\d.]+ +[\d.]+x   "
            r"cpu \d+\.\d\dms a token, \d+\.\d\dms of it the scheduler's"
        )
        assert re.fullmatch(pattern, line), line
    assert " 1.00x " in lines[0]


def test_batches_add_up(in_force: Settings, models: Path) -> None:
    with open_shared(models / "gemma3.f16.gguf", in_force, batch.room_of(3, 20, 40)) as target:
        found = list(batch.run(target, 3, 20, 40, 2, quiet))
    assert [width.width for width in found] == [1, 2, 3]
    for width in found:
        assert width.same and len(width.samples.seconds) == 2 and width.cpu > 0 and width.host > 0
        assert width.width < width.samples.tokens < width.width * 40
    told = found[2].as_json(found[0])
    assert told["speedup"] == pytest.approx(told["rate"] / found[0].samples.rate)


def test_widths() -> None:
    assert batch.widths_to(1) == (1,)
    assert batch.widths_to(8) == (1, 2, 4, 8)
    assert batch.widths_to(12) == (1, 2, 4, 8, 12)


def test_other_tokens_in_company(llamay, models: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    from llamay.tensor.numpy import NumpyExecutor

    real = NumpyExecutor.logits

    def logits(self: NumpyExecutor, given: Batch) -> Any:
        found = real(self, given)
        return found if len(given.tables) == 1 else -found

    monkeypatch.setattr(NumpyExecutor, "logits", logits)
    words = ("-batch", "2", "-prompt", "20", "-gen", "30", "-reps", "1", "-device", "numpy")
    assert llamay("bench", "-m", models / "llama-gqa.f16.gguf", *words) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1].endswith("OTHER TOKENS") and not lines[-2].endswith("OTHER TOKENS")


# -- questions on one prefix


def test_the_lines_of_questions(llamay, models: Path, capsys: Captured) -> None:
    words = ("-prefix", "128", "-questions", "5", "-question", "6", "-gen", "7")
    assert llamay("benchfork", "-m", models / "llama-gqa.f16.gguf", *words) == 0
    heading, _, first, *lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r".+ · llama-gqa · kv f32 · \d+ pages", heading)
    told = "5 questions of 6 tokens on a prefix of 128, 7 tokens to each answer; all ways answer alike"
    assert first == told
    with_prefix = rf" +{TIME} +{TIME} with the prefix +\d+\.\dx faster than cold"
    patterns = [
        rf"prefix +{TIME}   computed once",
        "forked" + with_prefix,
        "warm" + with_prefix,
        rf"cold +{TIME}   every question computes the prefix(, \d+ preempted)?",
    ]
    assert len(lines) == len(patterns)
    for pattern, line in zip(patterns, lines, strict=True):
        assert re.fullmatch(pattern, line), line


@pytest.mark.parametrize(("name", "prefix"), [("llama-gqa.f16", 100), ("gemma3.f16", 200)])
def test_the_three_ways_differ_in_what_they_compute(in_force: Settings, models: Path, name: str, prefix: int) -> None:
    """By rows, not by the clock: cold computes the prefix for each question, the others once."""
    shape = questions.Shape(6, prefix, 5, 4)
    rows: list[int] = []

    def count(right: Callable[..., Any], given: Batch | None, *steps: int) -> Any:
        rows.append(len(given.tokens) if given is not None else 0)
        return right(given, *steps)

    seen: dict[str, int] = {}

    def say(what: str) -> None:
        seen[what] = sum(rows)

    with open_shared(models / f"{name}.gguf", in_force, shape.room()) as target:
        target.executor = Faulty(target.executor, forward=count, submit=count)
        found = questions.run(target, shape, say)
    marks = [*seen.values(), sum(rows)]
    _, once, forked, warm, cold = (after - before for before, after in pairwise(marks))
    assert prefix <= once < prefix + 16
    assert 6 * 5 <= forked <= 6 * (5 + 4) and 6 * 5 <= warm <= 6 * (5 + 4 + 16)
    assert cold >= 6 * (prefix + 5)
    told = found.as_json()
    assert told["forked_speedup"] == pytest.approx(found.cold_seconds / (found.prefix_seconds + found.forked_seconds))
    assert told["shape"]["questions"] == 6


def test_one_way_that_answers_otherwise(models: Path) -> None:
    shape = questions.Shape(3, 64, 5, 4)
    with open_shared(models / "llama-gqa.f16.gguf", Settings(backend="numpy"), shape.room()) as target:
        phase: list[str] = []

        def collect(right: Callable[..., Any]) -> np.ndarray:
            return (right() + (phase[-1].endswith("known"))) % 320

        target.executor = Faulty(target.executor, collect=collect)
        with pytest.raises(LlamayError, match="answered otherwise"):
            questions.run(target, shape, phase.append)


# -- refused


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("bench", "-forks", "0"), "-forks is 0; with -forks it may be 1 to 1024"),
        (("bench", "-forks", "2", "-prompt", "1"), "-prompt is 1; with -forks it may be 2 or more"),
        (("bench", "-forks", "2", "-gen", "5"), "-gen has no meaning with -forks"),
        (("bench", "-forks", "2", "-batch", "2"), "give one of them"),
        (("bench", "-forks", "2", "-sweep"), "-sweep is for measuring one request"),
        (("bench", "-batch", "2", "-c", "99"), "-c is for measuring one request"),
        (("bench", "-batch", "65"), "-batch is 65; it may be 1 to 64"),
        (("bench", "-batch", "2", "-gen", "5"), "-gen is 5; with -batch it may be 24 or more"),
        (("bench", "-forks", "2", "-prompt", "3000"), "this model was made for 2048"),
        (("benchfork", "-questions", "0"), "-questions is 0; it may be 1 to 1024"),
        (("benchfork", "-prefix", "0"), "-prefix is 0; it may be 1 or more"),
        (("benchfork", "-gen", "0"), "-gen is 0"),
        (("benchfork", "-m", "x"), "x and tiny:q8_0 are 2 models"),
    ],
)
def test_what_is_refused(llamay, capsys: Captured, words: tuple[str, ...], message: str) -> None:
    assert llamay(*words, "-synthetic", "tiny:q8_0") == 2
    assert message in capsys.readouterr().err


def test_a_context_beyond_the_model(models: Path) -> None:
    with pytest.raises(UsageError, match="this model was made for"):
        open_shared(models / "llama-gqa.f16.gguf", Settings(backend="numpy"), Room(100_000, 1, 0))
