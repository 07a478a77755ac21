"""`llamay devices` and the choice behind it, on adapters that are made up."""

import json

import pytest

from llamay import cli
from llamay.errors import NoAdapter
from llamay.serve.loading import devices
from llamay.settings import Settings
from llamay.tensor.webgpu import adapters
from llamay.tensor.webgpu.adapters import Adapter


def adapter(name: str, type: str, backend: str = "Vulkan") -> Adapter:
    limits = dict.fromkeys(adapters.LIMITS, 1 << 20)
    return Adapter(name, type, backend, "driver", ("subgroup",), limits, None)


SOFTWARE = adapter("llvmpipe", "CPU")
INTEGRATED = adapter("Iris Xe", "IntegratedGPU")
DISCRETE = adapter("GeForce RTX", "DiscreteGPU")


def machine(monkeypatch: pytest.MonkeyPatch, *found: Adapter) -> None:
    monkeypatch.setattr(adapters, "adapters", lambda: found)


def test_the_best_is_first_and_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, DISCRETE, INTEGRATED, SOFTWARE)
    choice = devices.choose(Settings())
    assert choice.adapter is DISCRETE and "before IntegratedGPU" in choice.reason
    machine(monkeypatch, SOFTWARE)
    choice = devices.choose(Settings())
    assert choice.adapter is SOFTWARE and "no hardware adapter" in choice.reason


def test_an_adapter_is_chosen_by_a_part_of_its_name_or_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch, DISCRETE, INTEGRATED, SOFTWARE)
    assert devices.choose(Settings(backend="webgpu:iris")).adapter is INTEGRATED
    assert devices.choose(Settings(backend="webgpu:2")).adapter is SOFTWARE
    with pytest.raises(NoAdapter, match="no adapter is called 'radeon'; there is 'GeForce RTX'"):
        devices.choose(Settings(backend="webgpu:radeon"))


def test_numpy_stands_in_and_says_what_would_bring_an_adapter(monkeypatch: pytest.MonkeyPatch) -> None:
    machine(monkeypatch)
    choice = devices.choose(Settings())
    assert choice.adapter is None and choice.fallback
    assert adapters.advice() in choice.reason
    for settings in (Settings(backend="webgpu"), Settings(require_webgpu=True)):
        with pytest.raises(NoAdapter, match="no Vulkan, Metal or DX12 adapter"):
            devices.choose(settings)
    assert not devices.choose(Settings(backend="numpy", require_webgpu=True)).fallback


def test_the_advice_names_the_distribution_s_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapters.sys, "platform", "linux")
    monkeypatch.setattr(adapters, "_distribution", lambda: ["mint", "ubuntu", "debian"])
    assert "apt-get install mesa-vulkan-drivers" in adapters.advice()
    monkeypatch.setattr(adapters, "_distribution", list)
    assert "Mesa" in adapters.advice()


def test_the_list(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LLAMAY_BACKEND", "auto")
    machine(monkeypatch, DISCRETE, SOFTWARE)
    assert cli.main(["devices"]) == 0
    page = capsys.readouterr().out
    assert "* GeForce RTX" in page and "  llvmpipe" in page and "used: GeForce RTX, because" in page
    assert cli.main(["devices", "-device", "webgpu:llvm", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["adapter"] == "llvmpipe"
    assert [row["chosen"] for row in found["adapters"]] == [False, True]
    assert set(found["adapters"][0]["limits"]) == set(adapters.LIMITS)


def test_a_check_fails_where_numpy_would_compute(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LLAMAY_BACKEND", "auto")
    monkeypatch.delenv("LLAMAY_REQUIRE_WEBGPU", raising=False)
    machine(monkeypatch)
    assert cli.main(["devices"]) == 0
    assert "* numpy" in capsys.readouterr().out
    assert cli.main(["devices", "-check"]) == NoAdapter.exit_code
    machine(monkeypatch, SOFTWARE)
    assert cli.main(["devices", "-check"]) == 0


def test_this_machine_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["devices", "-device", "numpy"]) == 0
    assert "used: numpy, because it was asked for" in capsys.readouterr().out
