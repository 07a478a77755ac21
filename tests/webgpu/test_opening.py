"""What class an adapter gets, and what happens where kernels of its class compute wrong."""

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from llamay import wgsl
from llamay.errors import WrongNumbers
from llamay.tensor.batch import Batch
from llamay.tensor.webgpu import adapters
from llamay.tensor.webgpu import device as device_module
from llamay.tensor.webgpu.launch import LAUNCHES, launch_for
from llamay.tensor.webgpu.opening import open_executor

TABLE = np.arange(20, dtype=np.int32)
IDS = np.arange(11, dtype=np.int32)


@pytest.mark.parametrize(
    ("adapter", "probed", "software", "least", "expected"),
    [
        ("NVIDIA, Vulkan", 32, False, 32, "subgroup"),
        ("AMD, chosen by kernel among 32 and 64", 64, False, 32, "subgroup"),
        ("AMD GCN", 64, False, 64, "subgroup"),
        ("Apple, Metal, which tells nothing", 32, False, 0, "subgroup"),
        ("Intel, chosen by kernel among 8 to 32", 32, False, 8, "portable"),
        ("Intel, a probe of 16", 16, False, 8, "portable"),
        ("Adreno, 64 or 128", 128, False, 64, "subgroup"),
        ("no subgroups", 0, False, 0, "portable"),
        ("lavapipe by AVX", 8, True, 4, "narrow"),
        ("lavapipe by SSE or NEON", 4, True, 4, "slim"),
        ("lavapipe by AVX-512", 16, True, 4, "slim"),
        ("software without subgroups", 0, True, 0, "slim"),
    ],
)
def test_the_class_of_an_adapter(adapter: str, probed: int, software: bool, least: int, expected: str) -> None:
    assert launch_for(probed, software=software, least=least).name == expected


def test_a_subgroup_holds_a_workgroup_wherever_a_class_reduces_by_it() -> None:
    for launch in LAUNCHES.values():
        if launch.reduce == "subgroup":
            assert launch.tile.lanes == launch.attention_lanes <= 32
        assert launch.tokens[0] == 1


@pytest.mark.parametrize(
    ("info", "expected"),
    [
        ({"backend_type": "Vulkan", "subgroup_min_size": 8, "subgroup_max_size": 32}, (8, 32)),
        ({"backend_type": "Vulkan", "stackgroup_min_size": 32, "stackgroup_max_size": 64}, (32, 64)),
        ({"backend_type": "Metal", "subgroup_min_size": 4, "subgroup_max_size": 64}, (0, 0)),
        ({"backend_type": "D3D12"}, (0, 0)),
    ],
)
def test_what_an_adapter_tells_of_its_subgroups(info: dict, expected: tuple[int, int]) -> None:
    assert adapters._subgroups(info) == expected


def test_the_adapter_in_use_tells_of_its_subgroups(adapter) -> None:
    least, most = adapter.subgroups
    assert 0 <= least <= most


CHILD = """
import sys
from pathlib import Path
import numpy as np
from llamay.serve.loading import load
from llamay.settings import Settings
from llamay.tensor.batch import Batch
loaded = load.load(Path(sys.argv[1]), Settings())
ids = np.load(sys.argv[2])
rows = np.arange(len(ids), dtype=np.int32)
np.save(sys.argv[3], loaded.executor.forward(Batch.single(ids, 0, np.arange(8, dtype=np.int32), rows)))
print(loaded.executor.device.launch.name)
"""


@pytest.mark.parametrize(
    ("bits", "expected"), [("128", "slim"), pytest.param("256", "narrow", marks=pytest.mark.soak)]  # most have 256 anyway
)
def test_vectors_of_other_widths(bits: str, expected: str, adapter, named_case, tmp_path) -> None:
    """Lavapipe as it is on processors with SSE or NEON only.  Its cache of kernels does not tell widths apart: each has its own."""
    if "llvmpipe" not in adapter.name:
        pytest.skip("only lavapipe's vectors can be set")
    case = named_case("qwen2-k.q4_k")
    prompt = case.prompts[-1]
    np.save(tmp_path / "ids.npy", case.ids(prompt))
    arguments = [str(case.path), str(tmp_path / "ids.npy"), str(tmp_path / "logits.npy")]
    cache = Path(os.environ["MESA_SHADER_CACHE_DIR"]) / f"vectors-of-{bits}"
    cache.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, "LP_NATIVE_VECTOR_WIDTH": bits, "MESA_SHADER_CACHE_DIR": str(cache)}
    command = [sys.executable, "-c", CHILD, *arguments]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240)
    assert ran.stdout.split() == [expected], ran.stderr[-2000:]
    assert np.abs(np.load(tmp_path / "logits.npy") - case.logits(prompt)).max() <= case.tolerance


def spoil(monkeypatch: pytest.MonkeyPatch, reduce: set[str]) -> None:
    """Linears that reduce so lose a row's last partial sum, as on a driver whose subgroups are smaller than it says."""

    def compose(name: str, **given: object) -> str:
        right = wgsl.compose(name, **given)
        if name == "linear" and given["reduce"] in reduce:
            return re.sub(r"(let z0_0 = )", r"\1 0.9 * ", right)
        return right

    monkeypatch.setattr(device_module, "compose", compose)


def test_wrong_subgroups_are_done_without(adapter, program, tmp_path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = program("llama-gqa.f16")
    batch = Batch.single(IDS[:1], 0, TABLE)
    right = open_executor(adapter, case, 20, tmp_path)
    expected = right.forward(batch)
    if right.device.launch.reduce != "subgroup":
        pytest.skip("this adapter's class has no subgroups to do without")
    assert right.notes == () and right.tuning.source == "the class's defaults"
    right.close()
    spoil(monkeypatch, {"subgroup"})
    plain = open_executor(adapter, case, 20, tmp_path)
    assert plain.device.launch.name == "portable"
    (note,) = plain.notes
    assert "computes wrong numbers" in note and "without subgroups" in note
    assert np.abs(plain.forward(batch) - expected).max() < 3e-4
    plain.close()


def test_numbers_that_are_wrong_anyhow_are_refused(
    adapter, program, tmp_path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spoil(monkeypatch, {"subgroup", "shared"})
    with pytest.raises(WrongNumbers, match="-device numpy"):
        open_executor(adapter, program("llama-gqa.f16"), 20, tmp_path)
