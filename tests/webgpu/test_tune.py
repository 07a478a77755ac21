"""Tuning changes no sum, is kept by adapter, driver and kernels, and a broken file of it is measured anew."""

import itertools
import json
from dataclasses import replace

import numpy as np
import pytest

from llamay import wgsl
from llamay.tensor.batch import Batch
from llamay.tensor.webgpu import tune
from llamay.tensor.webgpu.launch import LAUNCHES
from llamay.tensor.webgpu.tune import Tuning

TABLE = np.arange(20, dtype=np.int32)


class Fake:
    """Stands for the measuring: seconds by (tokens, rows a lane, textures), of a decode and of a prefill."""

    def __init__(self, decode, prefill) -> None:
        self.decode, self.prefill = decode, prefill
        self.asked: list[tuple[int, int, int, bool]] = []

    def seconds(self, launch, tall: int, tokens: int, rows: int) -> float:
        self.asked.append((rows, tokens, tall, launch.textures))
        return (self.decode if rows == 1 else self.prefill)(tokens, tall, launch.textures)

    def close(self) -> None:
        pass


@pytest.fixture
def measured(gpu, tmp_path, monkeypatch: pytest.MonkeyPatch):
    """Tunes the shared device by a Fake."""

    def run(decode, prefill, clock=lambda: 0.0) -> tuple[Tuning, Fake]:
        fake = Fake(decode, prefill)
        monkeypatch.setattr(tune, "_Bench", lambda device: fake)
        return tune.measure(gpu, tmp_path, clock), fake

    return run


def test_the_fastest_candidate_is_chosen(gpu, measured) -> None:
    class_own = gpu.launch
    slower = lambda tokens, tall, textures: 2.0 if textures else 1.0  # noqa: E731
    chosen, _ = measured(slower, lambda tokens, tall, textures: 1 / tokens)
    assert chosen.tokens == (1, 2, 4, 8, 16) and not chosen.textures
    chosen, _ = measured(lambda *of: 1.0, lambda tokens, tall, textures: float(tokens))
    assert chosen.tokens == (1,)
    chosen, _ = measured(lambda *of: 1.0, lambda *of: 1.0)
    assert chosen.applied(class_own) == class_own  # what gains nothing changes nothing
    chosen, _ = measured(lambda tokens, tall, textures: 8.0 / tall, lambda *of: 1.0)
    assert chosen.wide == 8


def test_a_shape_that_gains_in_decode_and_loses_in_prefill_is_left(gpu, measured) -> None:
    chosen, _ = measured(
        lambda tokens, tall, textures: 2.0 if textures else 1.0, lambda tokens, tall, textures: 1.0 if textures else 2.0
    )
    assert chosen.textures == gpu.launch.textures


def test_measuring_ends_in_time(measured) -> None:
    ticks = itertools.count()
    _, fake = measured(lambda *of: 1.0, lambda tokens, *of: 1 / tokens, clock=lambda: 0.9 * next(ticks))
    assert 0 < len(fake.asked) <= 4


def test_a_choice_is_kept_and_read(gpu, measured, tmp_path) -> None:
    assert tune.stored(gpu, tmp_path) is None
    chosen, _ = measured(lambda *of: 1.0, lambda tokens, tall, textures: 1 / tokens)
    again = tune.choose(gpu, tmp_path)
    assert again == replace(chosen, source=again.source) and "kept in" in again.source
    files = list((tmp_path / "tuning").iterdir())
    assert len(files) == 1
    content = json.loads(files[0].read_text())
    assert content["adapter"] == gpu.adapter.name and content["driver"] == gpu.adapter.driver and content["seconds"]


def test_another_driver_or_other_kernels_are_measured_anew(gpu, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = {tune._key(gpu.adapter, gpu.launch)}
    for field, value in (("driver", "newer"), ("name", "other"), ("backend", "Metal")):
        keys.add(tune._key(replace(gpu.adapter, **{field: value}), gpu.launch))
    keys.add(tune._key(gpu.adapter, LAUNCHES["portable"]))
    monkeypatch.setattr(wgsl, "digest", lambda: "of other text")
    keys.add(tune._key(gpu.adapter, gpu.launch))
    assert len(keys) == 6


def test_the_kernels_digest_depends_on_their_text(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    (tmp_path / "quant").mkdir()
    (tmp_path / "a.wgsl").write_text("a")
    (tmp_path / "quant" / "b.wgsl").write_text("b")
    monkeypatch.setattr(wgsl, "files", lambda package: tmp_path)

    def digest() -> str:
        wgsl.digest.cache_clear()
        return wgsl.digest()

    first = digest()
    assert digest() == first
    (tmp_path / "quant" / "b.wgsl").write_text("c")
    second = digest()
    (tmp_path / "quant" / "b.wgsl").rename(tmp_path / "quant" / "d.wgsl")
    assert len({first, second, digest()}) == 3
    monkeypatch.undo()
    wgsl.digest.cache_clear()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{",
        '{"tokens": [], "wide": 8, "textures": true}',
        '{"tokens": [1, 3], "wide": 8, "textures": true}',
        '{"tokens": [1, 2, 4, 8, 16, 32], "wide": 8, "textures": true}',
        '{"tokens": "12", "wide": 8, "textures": true}',
        '{"tokens": [1, 2], "wide": 1000000, "textures": true}',
        '{"tokens": [1, 2], "wide": false, "textures": true}',
        '{"tokens": [1, 2], "wide": 8, "textures": "yes"}',
        '{"tokens": 5, "wide": 8, "textures": true}',
    ],
)
def test_a_broken_file_counts_as_none(text: str, gpu, tmp_path) -> None:
    path = tmp_path / "tuning" / f"{tune._key(gpu.adapter, gpu.launch)}.json"
    path.parent.mkdir()
    path.write_text(text)
    assert tune.stored(gpu, tmp_path) is None
    path.write_text('{"tokens": [1, 2], "wide": 0, "textures": false}')
    assert tune.stored(gpu, tmp_path) is not None


def test_a_folder_that_takes_nothing_is_said_and_no_error(gpu, measured, tmp_path) -> None:
    (tmp_path / "tuning").write_text("a file is in the way")
    chosen, _ = measured(lambda *of: 1.0, lambda *of: 1.0)
    assert "not kept" in chosen.source


def test_hardware_is_measured_at_its_first_load_and_software_is_not(
    gpu, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Fake(lambda *of: 1.0, lambda *of: 1.0)
    monkeypatch.setattr(tune, "_Bench", lambda device: fake)
    assert tune.choose(gpu, tmp_path).source == "the class's defaults" and not fake.asked
    monkeypatch.setattr(gpu, "adapter", replace(gpu.adapter, type="DiscreteGPU"))
    assert "measured" in tune.choose(gpu, tmp_path).source and fake.asked
    fake.asked.clear()
    assert "measured" in tune.choose(gpu, tmp_path).source and not fake.asked


def test_measuring_on_this_adapter_gives_times_and_takes_nothing(gpu, tmp_path) -> None:
    before = gpu.allocated, gpu.launch
    chosen = tune.measure(gpu, tmp_path)
    assert (gpu.allocated, gpu.launch) == before
    (path,) = (tmp_path / "tuning").iterdir()
    seconds = json.loads(path.read_text())["seconds"]
    assert len(seconds) >= 2 and all(0 < value < 10 for value in seconds.values())
    assert chosen.tokens[0] == 1


@pytest.mark.parametrize(
    "tuning",
    [Tuning((1,), 0, False, ""), Tuning((1, 8), 8, True, ""), Tuning((1, 2), 8, False, "")],
    ids=["one", "wide", "two"],
)
def test_no_choice_changes_a_bit(tuning: Tuning, gpu, program, opened, monkeypatch: pytest.MonkeyPatch) -> None:
    case = program("qwen2-k.q4_k")
    ids = (np.arange(21, dtype=np.int32) * 5) % case.vocabulary
    batch = Batch.single(ids, 0, TABLE, np.arange(21, dtype=np.int32))
    right = opened(case, 20)
    expected = right.forward(batch)
    monkeypatch.setattr(gpu, "launch", tuning.applied(gpu.launch))
    tuned = opened(case, 20)
    assert tuned.numerics == right.numerics
    assert tuned.forward(batch).tobytes() == expected.tobytes()
    assert tuned.selftest.width(64) == tuning.tokens[-1]
