"""The tiny encoders of tests/data/encoders with what their reference implementations made of some ids, on both executors."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamay import arch, gguf, model
from llamay.arch import Config
from llamay.model import Bound
from llamay.serve.encoding import Encoded
from llamay.tensor.executor import Executor
from llamay.tensor.numpy import NumpyExecutor

DATA = Path(__file__).parents[1] / "data"
ENCODERS = sorted(path.name.removesuffix(".f16.gguf") for path in (DATA / "encoders").glob("*.gguf"))
TOLERANCE = 2e-4  # of a value of a vector, for exact weights and float32 maths


@dataclass(frozen=True)
class Encoding:
    """One encoder."""

    name: str

    @property
    def path(self) -> Path:
        return DATA / "encoders" / f"{self.name}.f16.gguf"

    @functools.cached_property
    def bound(self) -> Bound:
        return model.bind(gguf.open(self.path), self.config)

    @functools.cached_property
    def config(self) -> Config:
        return arch.describe(gguf.open(self.path))

    @functools.cached_property
    def arrays(self) -> dict[str, Any]:
        with np.load(DATA / "encoders" / f"{self.name}.npz") as found:
            return dict(found)

    @property
    def prompts(self) -> list[str]:
        return [key.removeprefix("ids_") for key in self.arrays if key.startswith("ids_")]

    def text(self, prompt: str) -> Encoded:
        return Encoded(tuple(self.arrays[f"ids_{prompt}"].reshape(-1).tolist()))

    def expected(self, prompt: str) -> Any:
        """The vector, or the score of a model that ranks."""
        kind = "score" if self.config.ranks else "embedding"
        return self.arrays[f"{kind}_{prompt}"].reshape(-1)

    def finished(self, row: Any) -> Any:
        finish = self.bound.finish
        return np.array([finish.score(row)]) if self.config.ranks else finish.vector(row)


@functools.cache
def encoding(name: str) -> Encoding:
    return Encoding(name)


@pytest.fixture(scope="session")
def named() -> Callable[[str], Encoding]:
    """Name -> encoder."""
    return encoding


@pytest.fixture(params=ENCODERS)
def encoder(request: pytest.FixtureRequest) -> Encoding:
    """Every tiny encoder in turn."""
    return encoding(request.param)


@pytest.fixture(params=["numpy", "webgpu"])
def opened(request: pytest.FixtureRequest) -> Iterator[Callable[..., Executor]]:
    """Opens a program on each executor; what it took is given back at the end."""
    guests: list[Any] = []

    def open(program: Any, pages: int = 24, rows: int = 128) -> Executor:
        if request.param == "numpy":
            return NumpyExecutor(program, pages)
        from llamay.tensor.webgpu.device import Guest
        from llamay.tensor.webgpu.executor import WebGPUExecutor

        guests.append(Guest(request.getfixturevalue("gpu")))
        return WebGPUExecutor(guests[-1], program, pages, rows=rows)

    yield open
    for guest in guests:
        guest.close()
