"""Every kernel has a twin and tests of its own; what Python knows of the kernels is what they say."""

import re
from importlib.resources import files
from pathlib import Path

import pytest

from llamay import wgsl
from llamay.tensor import twins
from llamay.tensor.webgpu import dims
from llamay.tensor.webgpu.formats import FORMATS, RECAST

HERE = Path(__file__).parent
SAMPLING = {name for name in wgsl.names() if name.startswith("sample")}
KERNELS = sorted(set(wgsl.names()) - SAMPLING)


def text(name: str) -> str:
    return files("llamay.wgsl").joinpath(name).read_text("utf-8")


def test_kernels_are_found():
    on_disk = {path.stem for path in Path(wgsl.__file__).parent.glob("*.wgsl")}
    assert set(wgsl.names()) == on_disk and len(KERNELS) >= 8 and SAMPLING


@pytest.mark.parametrize("kernel", KERNELS)
def test_twin_and_tests(kernel, lab):
    assert hasattr(twins, kernel), f"llamay.tensor.twins has no {kernel}"
    tests = HERE / f"test_{kernel}.py"
    assert tests.is_file(), f"no tests of {kernel}.wgsl at {tests.name}"
    assert f'"{kernel}"' in tests.read_text("utf-8")
    assert type(lab).close.__globals__["TOLERANCES"][kernel][1], "a tolerance has a reason"


def test_sampling_kernels_are_run():
    """They are compared as one route, against llamay.sample; the route names every one of them."""
    route = files("llamay.sample").joinpath("route.py").read_text("utf-8")
    assert not {kernel for kernel in SAMPLING if f'"{kernel}"' not in route}
    assert (HERE / "test_sample_kernels.py").is_file()


@pytest.mark.parametrize("kernel", [*KERNELS, *sorted(SAMPLING)])
def test_entry_point(kernel):
    assert re.search(rf"^fn {kernel}\(", text(f"{kernel}.wgsl"), re.MULTILINE)


def test_every_format_has_an_unpacker():
    unpackers = {path.name for path in files("llamay.wgsl").joinpath("quant").iterdir()}
    assert unpackers == {f"{format.name}.wgsl" for format in (*FORMATS.values(), *RECAST.values())}


def test_every_epilogue_is_tested():
    epilogues = {path.name.removesuffix(".wgsl") for path in files("llamay.wgsl").joinpath("epilogue").iterdir()}
    tests = (HERE / "test_epilogues.py").read_text("utf-8")
    assert len(epilogues) >= 5
    for epilogue in epilogues:
        assert f'"{epilogue}"' in tests, f"no test of the epilogue {epilogue}"


def test_dims():
    """The struct's members in the order and with the types that Python writes."""
    members = re.findall(r"^\s+(\w+): (u32|f32),", text("include/dims.wgsl"), re.MULTILINE)
    assert tuple(name for name, _ in members) == dims.FIELDS
    assert {name for name, type in members if type == "f32"} == set(dims.FLOATS)
