"""The tiny models of tests/data with what transformers computed with them, and the device that tests share.

Whatever uses the fixture `adapter` (as `gpu` does) is marked `webgpu`: LLAMAY_BACKEND=numpy deselects it.  Without an adapter it is
skipped with the reason, and failed where LLAMAY_REQUIRE_WEBGPU or LLAMAY_BACKEND asks for one.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from numpy.typing import NDArray

from llamay import settings

if TYPE_CHECKING:
    from llamay.tensor.webgpu.adapters import Adapter
    from llamay.tensor.webgpu.device import Device

SETTINGS = settings.load()  # the caller's, before any test changes the environment
DATA = Path(__file__).parent / "data"
CASES = sorted(path.stem for path in (DATA / "models").glob("*.gguf"))


@dataclass(frozen=True)
class Case:
    """One model file; logits [positions, vocabulary] and greedy continuations by prompt name."""

    id: str
    tolerance: float = 3e-4  # largest difference of a logit, for exact weights and float32 maths

    @property
    def path(self) -> Path:
        return DATA / "models" / f"{self.id}.gguf"

    @cached_property
    def arrays(self) -> dict[str, NDArray]:
        """The arrays of the case's npz; a quantised case has its own, the types of a float case share one."""
        name = self.id if ".q" in self.id else self.id.rsplit(".", 1)[0]
        with np.load(DATA / "logits" / f"{name}.npz") as found:
            return dict(found)

    @property
    def prompts(self) -> list[str]:
        return [key.removeprefix("ids_") for key in self.arrays if key.startswith("ids_")]

    def ids(self, prompt: str) -> NDArray[np.int32]:
        return self.arrays[f"ids_{prompt}"].astype(np.int32)

    def logits(self, prompt: str) -> NDArray[np.float32]:
        return self.arrays[f"logits_{prompt}"]

    def greedy(self) -> dict[str, list[int]]:
        """The tokens that follow a prompt, by prompt."""
        return {
            key.removeprefix("greedy_"): ids.tolist() for key, ids in self.arrays.items() if key.startswith("greedy_")
        }


def case_named(name: str) -> Case:
    assert name in CASES, f"no case {name} in tests/data/models"
    return Case(name)


@pytest.fixture(params=CASES)
def case(request) -> Case:
    """Every tiny model in turn."""
    return Case(request.param)


@pytest.fixture
def named_case():
    """case_named, for tests of one feature."""
    return case_named


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what needs a device, and leaves it out where the caller chose NumPy."""
    needing = [item for item in items if "adapter" in getattr(item, "fixturenames", ())]
    for item in needing:
        item.add_marker(pytest.mark.webgpu)
    if SETTINGS.backend == "numpy" and needing:
        config.hook.pytest_deselected(items=needing)
        items[:] = [item for item in items if item not in set(needing)]


@pytest.fixture(scope="session")
def adapter() -> "Adapter":
    """The adapter the settings choose."""
    from llamay.errors import NoAdapter
    from llamay.serve import devices

    try:
        choice = devices.choose(SETTINGS)
    except NoAdapter as error:
        pytest.fail(str(error))
    if choice.adapter is None:
        pytest.skip(choice.reason)
    return choice.adapter


@pytest.fixture(scope="session")
def gpu(adapter: "Adapter") -> Iterator["Device"]:
    """The device that tests of kernels share, with all the adapter has."""
    from llamay.tensor.webgpu.device import Device

    device = Device(adapter)
    yield device
    device.close()


@pytest.fixture(scope="session")
def portable_gpu(adapter: "Adapter") -> Iterator["Device"]:
    """A device with no feature and no limit beyond what WebGPU promises everywhere."""
    from llamay.tensor.webgpu.device import Device

    device = Device(adapter, portable=True)
    yield device
    device.close()
