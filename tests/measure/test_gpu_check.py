"""bench/gpu_check.py: its short form runs and says what it did; what is wrong makes it fail."""

import importlib.util
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from llamay import settings
from llamay.errors import DeviceLost
from llamay.verify import run

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("gpu_check", ROOT / "bench" / "gpu_check.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "gpu_check", module)
    spec.loader.exec_module(module)
    yield module


@pytest.fixture
def check(script: ModuleType) -> Any:
    return script.Check(settings.load(), True, lambda text: None)


def test_the_short_form(
    adapter, script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "CONTEXT_CHECKS", ())  # test_verify has them
    monkeypatch.setattr(script, "BUDGET", 3600.0)  # so that nothing is left out where others compute
    told = tmp_path / "check.json"
    assert script.main(["--short", "--json", str(told)]) == 0
    shown = capsys.readouterr().out
    found = json.loads(told.read_text())
    assert found["good"] and found["adapter"]["name"] == adapter.name
    done = {step["name"]: step["ok"] for step in found["steps"]}
    assert done["adapter"] and done["fixtures"] and done["promises"]
    assert False not in done.values()
    assert [report["model"] for report in found["bench"]] == [f"synthetic {size[0]}" for size in script.SIZES["short"]]
    for report in found["bench"]:
        assert report["decode"]["best"] > 0 and report["bandwidth"]["share"] > 0 and report["token"]["kernels"] > 0
        assert f"{report['model']:<32}" in shown
    assert len(found["promises"]) >= 7 and all(row["green"] for row in found["promises"])
    assert "NOTHING WRONG, " in shown.splitlines()[-1]  # the kernel suite is left out here


def test_a_wrong_logit_is_found(adapter, script: ModuleType, check: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script, "SHORT_CASES", script.SHORT_CASES[:1])
    assert script.fixtures(check)[0] is True
    real = script.references

    def shifted(path: Path) -> dict[str, Any]:
        found = real(path)
        name = next(name for name in found if name.startswith("logits_"))
        found[name] = found[name] + np.float32(1e-3)
        return found

    monkeypatch.setattr(script, "references", shifted)
    good, note = script.fixtures(check)
    assert not good and script.SHORT_CASES[0] in note


def test_what_breaks_is_told_and_the_rest_goes_on(script: ModuleType, check: Any) -> None:
    def lost() -> tuple[bool, str]:
        raise DeviceLost("the driver went away")

    check.run("one", lost)
    check.run("two", lambda: (True, "fine"))
    check.run("three", lambda: (None, "not here"))
    assert not check.good
    lines = script.table(check)
    assert any("WRONG" in line and "DeviceLost: the driver went away" in line for line in lines)
    assert any(line.startswith("ok") and "fine" in line for line in lines)
    assert lines[-1].startswith("1 WRONG in")
    check.steps = [step for step in check.steps if step.ok]
    assert script.table(check)[-1].startswith("ALL RIGHT in")


def test_without_an_adapter(
    script: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from llamay.tensor.webgpu import adapters

    monkeypatch.setattr(adapters, "adapters", tuple)
    assert script.main(["--short"]) == 1
    assert "NoAdapter: no Vulkan" in capsys.readouterr().out


def test_time_that_is_up_leaves_models_out(script: ModuleType, check: Any) -> None:
    check.start -= script.BUDGET
    good, note = script.bench(check, "tiny:q8_0", 8, 4, 1, widths=False)
    assert good is None and "left out" in note
    assert check.reports == []


def test_a_model_that_would_take_too_long_is_left_out(script: ModuleType, check: Any) -> None:
    check.taken.append((10_000, 5.0))
    good, note = script.bench(check, "tiny:q8_0", 8, 4, 1, widths=False)
    assert good is None and "it might take" in note


def test_sizes_can_be_made(script: ModuleType) -> None:
    from llamay.bench.shapes import named

    for kind, sizes in script.SIZES.items():
        assert len(sizes) == (1 if kind == "short" else 3)
        for spec, *counts in sizes:
            named(spec)
            assert min(counts) >= 1
