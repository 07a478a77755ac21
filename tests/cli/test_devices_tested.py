"""`llamay devices` on a real adapter: how its kernels are launched, their tuning and their test."""

import json
import re

import pytest

from llamay import cli, wgsl
from llamay.bench import kernels
from llamay.errors import WrongNumbers
from llamay.tensor.webgpu import device as device_module
from llamay.tensor.webgpu import tune


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setenv("LLAMAY_CACHE", str(tmp_path))
    monkeypatch.setattr(kernels.kernel_rows, "__defaults__", (("q4_0",),))


def test_the_launch_is_shown(adapter, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["devices"]) == 0
    page = capsys.readouterr().out
    assert re.search(r"kernels +\w+: tiles of \d+ lanes", page)
    assert re.search(r"tuned +1/2.* \(the class's defaults", page)
    assert re.search(r"numerics +llamay-1\.", page)


def test_tuning_on_request_is_kept(adapter, tmp_path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["devices", "-tune", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["kernels"]["tuning"]
    (kept,) = (tmp_path / "tuning").iterdir()
    assert "measured, kept in" in found and str(kept) in found
    assert cli.main(["devices"]) == 0
    assert str(kept) in capsys.readouterr().out


def test_every_kernel_gets_a_line(adapter, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["devices", "-test"]) == 0
    page = capsys.readouterr().out.partition("self-test")[2]
    lines = page.strip().splitlines()
    assert len(lines) > 8 and all(line.split()[0] == "ok" for line in lines)
    for name in ("embed", "linear q4_0 gated", "attention", "pick", "sample_draw", "attention_combine"):
        assert name in page


def test_a_wrong_kernel_is_the_last_line_and_an_error(
    adapter, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def compose(name: str, **given: object) -> str:
        right = wgsl.compose(name, **given)
        return re.sub(r"exp\(max\(z0_0", "exp(0.9 * max(z0_0", right) if name == "attention" else right

    monkeypatch.setattr(device_module, "compose", compose)
    assert cli.main(["devices", "-test"]) == WrongNumbers.exit_code
    out, error = capsys.readouterr()
    assert out.splitlines()[-1].split()[0] == "WRONG" and "attention" in out.splitlines()[-1]
    assert "computes wrong numbers" in error
    assert cli.main(["devices", "-test", "--json"]) == WrongNumbers.exit_code
    rows = json.loads(capsys.readouterr().out)["self-test"]
    assert [row["passed"] for row in rows] == [True] * (len(rows) - 1) + [False]


def test_numpy_has_nothing_to_test(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["devices", "-device", "numpy", "-test"]) == 6
    assert "it was asked for" in capsys.readouterr().err


def test_the_clock_is_not_asked_without_need(adapter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "measure", lambda *of: pytest.fail("measured without being asked"))
    assert cli.main(["devices"]) == 0
