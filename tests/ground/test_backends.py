"""What the suite does without an adapter: NumPy deselects what needs one, its absence is said, or fails where one was asked for."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NEEDS = "tests/kernels/test_pick.py::test_by_hand"
NEEDS_NONE = "tests/tensor/test_twins.py::test_embed"
NO_DRIVER = {"VK_DRIVER_FILES": os.devnull, "VK_ICD_FILENAMES": os.devnull}  # the Vulkan loader finds none


def suite(**environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LLAMAY_")}
    command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:cacheprovider", NEEDS, NEEDS_NONE]
    return subprocess.run(command, cwd=ROOT, env={**clean, **environ}, capture_output=True, text=True, check=False)


def test_numpy_needs_no_adapter() -> None:
    done = suite(LLAMAY_BACKEND="numpy", LLAMAY_REQUIRE_WEBGPU="1", **NO_DRIVER)
    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 deselected" in done.stdout


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere drivers cannot be hidden by a variable")
def test_no_adapter() -> None:
    done = suite(**NO_DRIVER)
    assert done.returncode == 0, done.stdout
    assert "1 passed, 1 skipped" in done.stdout
    assert "no Vulkan, Metal or DX12 adapter on this machine" in done.stdout
    for asked in ({"LLAMAY_REQUIRE_WEBGPU": "1"}, {"LLAMAY_BACKEND": "webgpu"}):
        done = suite(**asked, **NO_DRIVER)
        assert done.returncode == 1, done.stdout
        assert "1 passed, 1 error" in done.stdout and "no Vulkan, Metal or DX12 adapter" in done.stdout
