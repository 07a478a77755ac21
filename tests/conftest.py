"""The tiny models of tests/data and what transformers computed with them, as the parametrised fixture `case`."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

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
