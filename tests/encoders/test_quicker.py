"""A small encoder goes where it is quicker: measured once for a machine, kernels and a shape."""

import json
from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest

from llamay import settings
from llamay.serve.loading import devices, quicker
from llamay.serve.loading.devices import Choice
from llamay.serve.loading.pools import whole
from llamay.tensor.numpy import NumpyExecutor


@dataclass
class Opened:
    backend: str
    closed: bool = False

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def tried(named, tmp_path, monkeypatch):
    """What `executor` opens for a device that takes `times[0]` seconds where NumPy takes `times[1]`."""
    program = named("bert-mean").bound.program
    opened: list[Opened] = []
    times = {"webgpu": 1.0, "numpy": 2.0}

    def open(choice: Choice, *rest: Any) -> Opened:
        opened.append(Opened(choice.backend))
        return opened[-1]

    monkeypatch.setattr(devices, "executor", open)
    monkeypatch.setattr(quicker, "seconds", lambda one: times[one.backend])
    in_force = replace(settings.load({"backend": "auto"}), cache=tmp_path, require_webgpu=False)

    def run(*, software: bool = False, backend: str = "auto", weights: int = 1000) -> tuple[Choice, list[Opened]]:
        opened.clear()
        adapter = SimpleNamespace(name="card", driver="1", backend="Vulkan", software=software)
        choice = Choice("webgpu", adapter, "the best", (adapter,))
        chosen, executor = quicker.executor(choice, program, whole(program, 128), replace(in_force, backend=backend), weights)
        assert executor.backend == chosen.backend and not executor.closed
        return chosen, list(opened)

    return SimpleNamespace(run=run, times=times, folder=tmp_path / "encoders")


@pytest.mark.parametrize(("webgpu", "taken"), [(1.0, "webgpu"), (3.0, "numpy")])
def test_the_quicker_is_measured_once(tried, webgpu, taken):
    tried.times["webgpu"] = webgpu
    chosen, opened = tried.run()
    assert chosen.backend == taken and [one.backend for one in opened] == ["webgpu", "numpy"]
    assert [one.closed for one in opened] == [one.backend != taken for one in opened]
    (kept,) = tried.folder.iterdir()
    assert json.loads(kept.read_text())["seconds"] == {"webgpu": webgpu, "numpy": 2.0}
    chosen, opened = tried.run()
    assert chosen.backend == taken and [one.backend for one in opened] == [taken]
    kept.write_text("{}")
    assert len(tried.run()[1]) == 2, "it is measured again"


def test_nothing_is_measured_where_nothing_is_to_be_chosen(tried):
    assert [one.backend for one in tried.run(software=True)[1]] == ["numpy"]
    assert [one.backend for one in tried.run(backend="webgpu")[1]] == ["webgpu"]
    assert [one.backend for one in tried.run(weights=quicker.SMALL + 1)[1]] == ["webgpu"]
    assert not tried.folder.exists()


def test_some_texts_are_timed(named):
    program = named("bert-mean").bound.program
    assert 0 < quicker.seconds(NumpyExecutor(program, 16)) < 60
    assert 0 < quicker.seconds(NumpyExecutor(program, 2)) < 60
