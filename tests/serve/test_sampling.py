"""Sampling: the file's recommendation, the caller's wish, and refusals."""

import math

import pytest

from llamay.errors import UsageError
from llamay.sample import Sampling
from llamay.serve import sampling


def test_built_in_then_file_then_caller() -> None:
    assert sampling.checked({}) == Sampling(temperature=0.8)
    of_file, notes = sampling.of_file({"general.sampling.temp": 0.5, "general.sampling.top_k": 7})
    assert (of_file, notes) == (Sampling(temperature=0.5, top_k=7), ())
    assert sampling.checked({"temperature": 0.0, "top_k": None}, of_file) == Sampling(temperature=0.0, top_k=7)


def test_every_file_key_reaches_its_field() -> None:
    values = {"temp": 0.1, "top_k": 2, "top_p": 0.3, "min_p": 0.4, "penalty_repeat": 1.5, "penalty_last_n": 6}
    found, notes = sampling.of_file({f"general.sampling.{key}": value for key, value in values.items()})
    assert notes == ()
    assert found == Sampling(temperature=0.1, top_k=2, top_p=0.3, min_p=0.4, repeat_penalty=1.5, repeat_last_n=6)


@pytest.mark.parametrize("value", [math.nan, math.inf, -1.0, "0.7", True, [1.0]])
def test_a_value_that_cannot_be_meant_is_noted(value: object) -> None:
    found, notes = sampling.of_file({"general.sampling.temp": value})
    assert found == Sampling()
    assert len(notes) == 1 and "general.sampling.temp" in notes[0]


def test_a_negative_top_k_of_a_file_means_off() -> None:
    assert sampling.of_file({"general.sampling.top_k": -1})[0].top_k == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", -0.1), ("temperature", math.nan), ("top_k", -1), ("top_p", 1.5), ("min_p", -1), ("seed", 2**32)],
)
def test_a_wish_out_of_bounds_is_refused_by_name(name: str, value: float) -> None:
    with pytest.raises(UsageError, match=f"{name} is"):
        sampling.checked({name: value})
