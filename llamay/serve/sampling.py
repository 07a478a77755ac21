"""The sampling in force: built-in values, overlaid by the file's general.sampling.*, by what the caller asks for."""

from collections.abc import Mapping
from dataclasses import replace
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
WHOLE = ("top_k", "repeat_last_n")
SEEDS = 1 << 32


def checked(asked: Mapping[str, Any], base: Sampling | None = None) -> Sampling:
    """`base` with the given fields replaced; None means not given.

    Raises UsageError for a value out of bounds, naming it and what would work.
    """
    given = {name: value for name, value in asked.items() if value is not None}
    if not 0 <= given.get("seed", 0) < SEEDS:
        raise UsageError(f"seed is {given['seed']}; expected 0 to {SEEDS - 1}")
    return replace(base or Sampling(), **given)


def of_file(metadata: Mapping[str, Any]) -> tuple[Sampling, tuple[str, ...]]:
    """The sampling a file recommends, and notes on values it states that cannot be meant."""
    found, notes = Sampling(), []
    for suffix, name in FILE_KEYS.items():
        key = f"general.sampling.{suffix}"
        value = metadata.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float):
            notes.append(f"{key} is no number; ignored")
            continue
        if name == "top_k":
            value = max(value, 0)  # negative is off, too
        try:
            replace(found, **_one(name, value))  # before int(), which a NaN has none of
            found = replace(found, **_one(name, int(value) if name in WHOLE else float(value)))
        except UsageError as error:
            notes.append(f"{key} is ignored: {error}")
    return found, tuple(notes)


def _one(name: str, value: float) -> dict[str, Any]:
    return {name: value}
