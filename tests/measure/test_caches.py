"""The bound on quantised caches: what is measured, red where it must be, and what `info` remembers of it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamay.serve.loading import load
from llamay.settings import Settings
from llamay.store import fingerprint
from llamay.tensor.cache import OFFERED
from llamay.tensor.numpy import NumpyExecutor
from llamay.verify import run, safety
from llamay.verify.caches import BOUND, NAMES, Distance, cache_checks, distances, distribution
from llamay.verify.checks import Row
from llamay.verify.safety import Safety
from llamay.verify.subject import Subject

Captured = pytest.CaptureFixture[str]
FOUND = Safety({"f16": 0.01, "vq8": 0.5, "q8": 7.25}, "a device", 288)


def subject(models: Path, name: str, backend: str, kv: str = "f32") -> Iterator[Subject]:
    with load.load(models / name, Settings(backend=backend, context=128, kv=kv)) as loaded:
        yield Subject.of(loaded, 90)


@pytest.fixture
def gemma(models: Path) -> Iterator[Subject]:
    yield from subject(models, "gemma3.f16.gguf", "numpy")


# -- distances


def test_distribution() -> None:
    found = distribution(np.log(np.array([[1, 2, 5], [1e-30, 1, 1e-30]], np.float32)) + np.float32(80))
    np.testing.assert_allclose(found, [[0.125, 0.25, 0.625], [0, 1, 0]], rtol=1e-5, atol=1e-20)


def test_distance_by_hand() -> None:
    distance = Distance()
    distance.add(np.array([[0.5, 0.5, 0], [0.1, 0.2, 0.7]]), np.array([[0.25, 0.25, 0.5], [0.1, 0.2, 0.7]]))
    distance.add(np.array([[1.0, 0, 0]]), np.array([[0, 1.0, 0]]))
    assert (distance.mean, distance.largest) == (100 * (0.5 + 0 + 1) / 3, 100)
    assert distance.agreement == 1 / 3


def test_every_position_counts(models: Path) -> None:
    """The same as computed whole, with executors made one by one."""
    for reading in subject(models, "llama-gqa.f16.gguf", "numpy"):
        found = distances(reading)
        assert found.keys() == {*OFFERED[1:], "q1"}
        ids, program = reading.tokens, reading.executor.program
        rows, table = np.arange(len(ids), dtype=np.int32), np.arange(6, dtype=np.int32)
        exact = whole(program, "f32", ids, rows, table)
        for kv, distance in found.items():
            theirs = np.abs(exact - whole(program, kv, ids, rows, table)).sum(-1) / 2
            assert sum(map(len, distance.shares)) == len(ids) == 90
            np.testing.assert_allclose(np.concatenate(distance.shares), theirs, rtol=0, atol=1e-12)


def whole(program: Any, kv: str, ids: Any, rows: Any, table: Any) -> Any:
    from llamay.tensor.batch import Batch

    return distribution(NumpyExecutor(program, 6, kv=kv).forward(Batch.single(ids, 0, table, rows)))


@pytest.mark.parametrize("kv", OFFERED)
def test_the_exact_side_is_f32_whatever_is_in_force(models: Path, kv: str) -> None:
    for reading in subject(models, "gemma3.f16.gguf", "numpy", kv):
        for expected in subject(models, "gemma3.f16.gguf", "numpy"):
            ours, theirs = distances(reading), distances(expected)
            assert {kv: d.mean for kv, d in ours.items()} == {kv: d.mean for kv, d in theirs.items()}


# -- rows


def test_green(in_force: Settings, models: Path) -> None:
    for reading in subject(models, "gemma3.f16.gguf", in_force.backend):
        rows = [check(reading) for _, check in cache_checks()]
        assert tuple(row.name for row in rows) == NAMES and all(row.green for row in rows)
        assert [row.kv for row in rows] == ["f16", "vq8", "q8", ""]
        assert 0 < rows[0].figure < rows[1].figure < rows[2].figure < 1 < 20 < rows[3].figure
        assert all("safe with this file" in row.note for row in rows[:3]) and {row.bound for row in rows} == {BOUND}


def swapped(reading: Subject, monkeypatch: pytest.MonkeyPatch, formats: dict[str, str]) -> list[Row]:
    """The rows where a cache of one format is in truth of another."""
    right = reading.executor.beside
    monkeypatch.setattr(reading.executor, "beside", lambda kv, pages: right(formats.get(kv, kv), pages))
    return [check(reading) for _, check in cache_checks()]


def test_a_one_bit_cache_that_passes_is_red(gemma: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = swapped(gemma, monkeypatch, {"q1": "q8"})
    assert [row.green for row in rows] == [True, True, True, False]


def test_a_format_that_moves_too_much_is_red(gemma: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = swapped(gemma, monkeypatch, {"vq8": "q1"})
    assert [row.green for row in rows] == [True, False, True, True]
    assert rows[1].note.startswith("NOT SAFE with this file")


def test_where_some_layers_have_a_state_less_has_to_move(models: Path) -> None:
    for reading in subject(models, "granite-4-h.f16.gguf", "numpy"):
        *formats, teeth = [check(reading) for _, check in cache_checks()]
    assert all(row.green for row in (*formats, teeth))
    assert [row.bound for row in formats] == [BOUND] * 3 and teeth.bound == BOUND / 4  # one layer of four has keys


def test_formats_are_not_measured_where_all_is_state(models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CHECKS", ())
    monkeypatch.setattr(run, "CONTEXT_CHECKS", ())
    with load.load(models / "mamba2.f32.gguf", Settings(backend="numpy", context=64), direct=True) as loaded:
        assert list(run.verify(loaded, lambda name: None, 16)) == []


def test_one_reading_and_nothing_left_open(gemma: Subject, monkeypatch: pytest.MonkeyPatch) -> None:
    right, made, closed = gemma.executor.beside, [], []

    def beside(kv: str, pages: int) -> NumpyExecutor:
        executor = right(kv, pages)
        made.append(kv)
        monkeypatch.setattr(executor, "close", lambda: closed.append(kv))
        return executor

    monkeypatch.setattr(gemma.executor, "beside", beside)
    for _, check in cache_checks():
        check(gemma)
    assert made == ["f16", "vq8", "q8", "q1"] and sorted(closed) == sorted(made)


# -- what is kept


@pytest.fixture
def kept(tmp_path: Path) -> Settings:
    return Settings(cache=tmp_path / "cache", models=tmp_path / "models")


@pytest.fixture
def files(models: Path) -> list[str]:
    return [str(models / f"{name}.f16.gguf") for name in ("gemma", "gemma2")]


def test_it_is_remembered_by_the_weights(kept: Settings, files: list[str], tmp_path: Path) -> None:
    assert safety.recall(kept, files[:1]) is None
    safety.remember(FOUND, kept, files[:1])
    assert safety.recall(kept, files[:1]) == FOUND and safety.recall(kept, files[1:]) is None
    assert (FOUND.safe("f16"), FOUND.safe("q8"), FOUND.safe("other")) == (True, False, False)
    copy = tmp_path / "copy.gguf"
    copy.write_bytes(Path(files[0]).read_bytes())
    assert safety.recall(kept, [str(copy)]) is None  # nobody has read it yet
    fingerprint.fingerprint([copy], kept.models / "blobs", kept.cache)
    later = Safety({**FOUND.distances, "q8": 1.0}, "another", 40)
    safety.remember(later, kept, files[1:])
    safety.remember(later, kept, files[:1])
    assert safety.recall(kept, files[:1]) == safety.recall(kept, files[1:]) == later


def test_a_blob_of_the_store_is_known_by_its_name(kept: Settings, files: list[str]) -> None:
    digest = fingerprint.fingerprint(files[:1], kept.models / "blobs", kept.cache)
    safety.remember(FOUND, kept, files[:1])
    (kept.cache / fingerprint.CACHE_FILE).unlink()
    assert safety.recall(kept, files[:1]) is None
    blob = kept.models / "blobs" / digest.replace(":", "-")
    blob.parent.mkdir(parents=True)
    blob.write_bytes(Path(files[0]).read_bytes())
    assert safety.recall(kept, [str(blob)]) == FOUND


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: b"",
        lambda text: text[:-20],
        lambda text: b"[1, 2]",
        lambda text: b"[" * 100_000,
        lambda text: text.replace(b"7.25", b'"much"'),
        lambda text: text.replace(b'"q8"', b'"q4"'),
        lambda text: text.replace(b'"distances"', b'"other"'),
        lambda text: text.replace(b"288", b"1e999"),
        lambda text: text.replace(b"288", b"null"),
    ],
)
def test_a_damaged_file_is_none(kept: Settings, files: list[str], damage: Any) -> None:
    safety.remember(FOUND, kept, files[:1])
    path = kept.cache / safety.KEPT
    text = path.read_bytes()
    assert damage(text) != text
    path.write_bytes(damage(text))
    assert safety.recall(kept, files[:1]) is None
    safety.remember(FOUND, kept, files[:1])
    assert safety.recall(kept, files[:1]) == FOUND


def test_the_newest_stay(kept: Settings, files: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(safety, "MOST_ENTRIES", 1)
    safety.remember(FOUND, kept, files[:1])
    safety.remember(FOUND, kept, files[1:])
    assert safety.recall(kept, files[:1]) is None and safety.recall(kept, files[1:]) == FOUND


def test_only_whole_measurements_are_kept() -> None:
    rows = [Row("", figure, BOUND, "", kv=kv) for kv, figure in FOUND.distances.items()]
    assert Safety.of([*rows, Row("", 90.0, BOUND, "")], "a device", 288) == FOUND
    assert Safety.of(rows[1:], "a device", 288) is None
    assert Safety.of([Row("", float("nan"), BOUND, "", kv="f16"), *rows[1:]], "a device", 288) is None


# -- the pages


def test_verify_tells_info(llamay: Any, models: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CONTEXT_CHECKS", ())  # test_verify has them
    file = models / "gemma3.f16.gguf"
    assert llamay("info", file) == 0
    assert "`llamay verify` measures whether f16, vq8 and q8 are safe" in capsys.readouterr().out
    assert llamay("verify", file, "-prompt", 40, "-device", "numpy") == 0
    lines = capsys.readouterr().out.splitlines()
    assert "% mean total variation from f32 (bound: at most 5%)  safe with this file; at most 0." in lines[-2]
    assert "(bound: at least 5%)" in lines[-1]
    assert llamay("info", file) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("KV formats"))
    assert "f32 exact, f16 off by 0.0" in line and line.endswith("all safe (bound 5%)")
    assert llamay("info", file, "-json") == 0
    told = json.loads(capsys.readouterr().out)["network"]["kv_measured"]
    assert told["safe"] == ["f16", "vq8", "q8"] and (told["bound"], told["tokens"], told["device"]) == (
        5.0,
        40,
        "numpy",
    )


def test_info_names_what_is_not_safe(llamay: Any, models: Path, capsys: Captured) -> None:
    from llamay import settings

    file = models / "gemma3.f16.gguf"
    safety.remember(FOUND, settings.load(), [str(file)])
    assert llamay("info", file) == 0
    (line,) = (line for line in capsys.readouterr().out.splitlines() if line.startswith("KV formats"))
    assert line.endswith("vq8 off by 0.5%, q8 off by 7.2% (NOT SAFE); safe: f32, f16, vq8 (bound 5%)")


def test_a_cache_folder_that_takes_nothing(
    llamay: Any, models: Path, tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "CONTEXT_CHECKS", ())
    (tmp_path / "cache").write_text("in the way")
    assert llamay("verify", models / "gemma3.f16.gguf", "-prompt", 20, "-device", "numpy") == 0
    assert "`info` will not know which KV formats are safe" in capsys.readouterr().err
