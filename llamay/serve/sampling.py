"""The sampling in force: built-in values, overlaid by the file's general.sampling.*, by what the caller asks for."""

import math
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from llamay.errors import UsageError
from llamay.sample import Sampling

FILE_KEYS = {  # GGUF key below general.sampling. -> field
    "temp": "temperature",
    "top_k": "top_k",
    "top_p": "top_p",
    "min_p": "min_p",
    "penalty_repeat": "repeat_penalty",
    "penalty_last_n": "repeat_last_n",
}

_BOUNDS: dict[str, tuple[float, float, str]] = {  # lowest, highest, in words
    "temperature": (0.0, 100.0, "0 (greedy) to 100"),
    "top_k": (0, 2**31 - 1, "0 (off) or more"),
    "top_p": (0.0, 1.0, "0 to 1 (off)"),
    "min_p": (0.0, 1.0, "0 (off) to 1"),
    "typical_p": (0.0, 1.0, "0 to 1 (off)"),
    "repeat_penalty": (1e-3, 1000.0, "0.001 to 1000; 1 is off"),
    "presence_penalty": (-100.0, 100.0, "-100 to 100; 0 is off"),
    "frequency_penalty": (-100.0, 100.0, "-100 to 100; 0 is off"),
    "repeat_last_n": (-1, 2**31 - 1, "-1 (all) or more"),
    "seed": (0, 2**32 - 1, "0 to 4294967295"),
}


def checked(asked: Mapping[str, Any], base: Sampling | None = None) -> Sampling:
    """`base` with the given fields replaced; None means not given.

    Raises UsageError for a value out of bounds, naming it and what would work.
    """
    given = {name: value for name, value in asked.items() if value is not None}
    for name, value in given.items():
        problem = _problem(name, value)
        if problem:
            raise UsageError(f"{name.replace('_', '-')} is {value}; it may be {problem}")
    return replace(base or Sampling(), **given)


def of_file(metadata: Mapping[str, Any]) -> tuple[Sampling, tuple[str, ...]]:
    """The sampling a file recommends, and notes on values it states that cannot be meant."""
    types = {field.name: field.type for field in fields(Sampling)}
    found: dict[str, Any] = {}
    notes = []
    for suffix, name in FILE_KEYS.items():
        key = f"general.sampling.{suffix}"
        value = metadata.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            notes.append(f"{key} is no number; ignored")
            continue
        value = max(int(value), 0) if name == "top_k" and math.isfinite(value) else value  # negative: off
        problem = _problem(name, value)
        if problem:
            notes.append(f"{key} is {value}, expected {problem}; ignored")
        else:
            found[name] = int(value) if types[name] is int else float(value)
    return replace(Sampling(), **found), tuple(notes)


def _problem(name: str, value: Any) -> str:
    """What is allowed, when the value is not; else nothing."""
    if name not in _BOUNDS:
        return ""
    low, high, words = _BOUNDS[name]
    return "" if low <= value <= high else words  # a NaN is in no bounds
