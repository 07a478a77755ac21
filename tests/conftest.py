"""The tiny models of tests/data with what transformers computed with them, and the device that tests share.

Whatever uses the fixture `adapter` (as `gpu` does) is marked `webgpu`: LLAMAY_BACKEND=numpy deselects it.  Without an adapter it is
skipped with the reason, and failed where LLAMAY_REQUIRE_WEBGPU or LLAMAY_BACKEND asks for one.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from numpy.typing import NDArray

from llamay import settings

if TYPE_CHECKING:
    from llamay.tensor.webgpu.adapters import Adapter
    from llamay.tensor.webgpu.device import Device

# lavapipe keeps compiled kernels by the home folder: here all tests and their children do, whatever home they are given
os.environ.setdefault("MESA_SHADER_CACHE_DIR", os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache"))
SETTINGS = settings.load()  # the caller's, before any test changes the environment
DATA = Path(__file__).parent / "data"
# files that take longest, those that compute beside those that wait: workers begin with them, and end with the short ones
LONGEST = (
    "measure/test_verify", "tui/test_terminal", "kernels/test_embed", "store/test_pull_killed",
    "webgpu/test_webgpu_bits", "server/test_drain", "serve/test_engine_bits", "webgpu/test_loss",
    "kernels/test_sample_kernels", "server/test_real_model", "kernels/test_linear",
    "kv/snapshots/test_snapshot_killed", "tensor/test_numpy_bits", "measure/test_bench", "tui/test_screens",
    "kernels/test_attention", "tui/test_keys", "tensor/test_cache_executors", "server/test_sdk_litellm",
    "webgpu/test_selftest", "measure/test_verify_contexts", "webgpu/test_opening", "tok/test_sandbox",
    "measure/test_bench_contexts", "tui/test_mouse", "measure/test_gpu_check", "tensor/test_numpy_cache",
    "webgpu/test_webgpu_memory", "measure/test_caches", "ground/test_backends", "webgpu/test_webgpu_fixtures",
    "gguf/test_malformed", "quant/test_dequantize", "webgpu/test_webgpu_shapes",
)  # fmt: skip
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
        name = self.id if "-k." in self.id else self.id.rsplit(".", 1)[0]
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
def case_names() -> list[str]:
    """The names of all."""
    return CASES


@pytest.fixture
def named_case():
    """case_named, for tests of one feature."""
    return case_named


class Halt:
    """Holds an executor at a step until `go_on` is set: what is under way by then stays so, however quick the machine is.

    With `passes` each step from there on is held until that is so.
    """

    def __init__(self, executor: Any, after: int = 4, passes: Callable[[], bool] = lambda: False) -> None:
        """`after` so many steps, which are not held; a submission counts as one."""
        self.reached, self.go_on = threading.Event(), threading.Event()
        self.steps = 0  # begun

        def held(do: Callable[..., Any]) -> Callable[..., Any]:
            def step(*given: Any) -> Any:
                self.steps += 1
                if self.steps > after:
                    self.reached.set()
                    end = time.monotonic() + 60
                    while not (self.go_on.wait(0.002) or passes()):
                        assert time.monotonic() < end, "nobody let it go on"
                return do(*given)

            return step

        executor.submit, executor.forward = held(executor.submit), held(executor.forward)

    @classmethod
    def by_step(cls, engine: Any, executor: Any) -> "Halt":
        """Lets it go a step further whenever somebody wants something of the engine's thread."""
        return cls(executor, passes=lambda: not engine._inbox.empty())


@pytest.fixture
def halt() -> type[Halt]:
    """Halt."""
    return Halt


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Marks what needs a device, and leaves it out where the caller chose NumPy; gives workers the longest files first."""
    if hasattr(config, "workerinput"):
        ranks = {Path(__file__).parent / f"{name}.py": rank for rank, name in enumerate(LONGEST)}
        items.sort(key=lambda item: ranks.get(item.path, len(ranks)))
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
    from llamay.serve.loading import devices

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
def lending() -> Iterator[Callable[..., "Device"]]:
    """Stands for Device where models are loaded: guests of one device, for which each kernel is compiled once."""
    from llamay.tensor.webgpu.device import Device, Guest

    hosts: list[Device] = []

    def lend(adapter: "Adapter", **more: Any) -> Device:
        if more:
            return Device(adapter, **more)
        if not hosts:
            hosts.append(Device(adapter))
        guest = Guest(hosts[0])
        guest.proven = set()  # every load still tests its kernels
        return guest

    yield lend
    for host in hosts:
        host.close()


@pytest.fixture(scope="session")
def portable_gpu(adapter: "Adapter") -> Iterator["Device"]:
    """A device with no feature and no limit beyond what WebGPU promises everywhere."""
    from llamay.tensor.webgpu.device import Device

    device = Device(adapter, portable=True)
    yield device
    device.close()
