"""Reads one architecture's metadata keys with their bounds, and remembers which were read."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from llamay.errors import MalformedFile
from llamay.gguf import Array

T = TypeVar("T")


@dataclass(slots=True)
class Keys:
    """The keys `<prefix>.*` of a file.

    Every reader raises MalformedFile where the value has another type or lies outside its bounds.
    """

    metadata: Mapping[str, object]
    prefix: str
    read: set[str] = field(default_factory=set)

    def get(self, key: str) -> object | None:
        """The raw value, or None where the file has none."""
        self.read.add(key)
        return self.metadata.get(f"{self.prefix}.{key}")

    def integer(self, key: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number within [low, high]."""
        value = self.get(key)
        if value is None:
            return self._default(key, default)
        return self._whole(key, value, low, high)

    def integers(
        self, key: str, count: int, low: int, high: int, default: tuple[int, ...] | None = None
    ) -> tuple[int, ...]:
        """One whole number a layer; a single number in the file holds for all `count` layers."""
        value = self.get(key)
        if value is None:
            return self._default(key, default)
        if not isinstance(value, Array):
            return (self._whole(key, value, low, high),) * count
        return tuple(self._whole(key, entry, low, high) for entry in self._entries(key, value, count))

    def number(self, key: str, low: float, high: float, default: float | None = None) -> float:
        """A finite number within [low, high]."""
        value = self.get(key)
        if value is None:
            return self._default(key, default)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise MalformedFile(f"{self.prefix}.{key} is {_shown(value)}, expected a number")
        if not (math.isfinite(value) and low <= value <= high):
            raise MalformedFile(f"{self.prefix}.{key} is {value}, expected a number from {low:g} to {high:g}")
        return float(value)

    def text(self, key: str, default: str) -> str:
        """A string."""
        value = self.get(key)
        if value is None:
            return default
        if not isinstance(value, str):
            raise MalformedFile(f"{self.prefix}.{key} is {_shown(value)}, expected a string")
        return value

    def flag(self, key: str, default: bool | None = None) -> bool:
        """Yes or no."""
        value = self.get(key)
        if value is None:
            return self._default(key, default)
        if not isinstance(value, bool):
            raise MalformedFile(f"{self.prefix}.{key} is {_shown(value)}, expected true or false")
        return value

    def flags(self, key: str, count: int) -> tuple[bool, ...]:
        """One yes or no a layer, from an array of at least `count`."""
        value = self.get(key)
        if not isinstance(value, Array):
            raise MalformedFile(f"{self.prefix}.{key} is {_shown(value)}, expected an array of {count} flags")
        return tuple(bool(entry) for entry in self._entries(key, value, count))

    def unread(self) -> tuple[str, ...]:
        """The file's keys under the prefix that nobody asked for."""
        start = self.prefix + "."
        return tuple(key for key in self.metadata if key.startswith(start) and key[len(start) :] not in self.read)

    def _whole(self, key: str, value: object, low: int, high: int) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise MalformedFile(f"{self.prefix}.{key} is {_shown(value)}, expected a whole number")
        if not low <= value <= high:
            raise MalformedFile(f"{self.prefix}.{key} is {value}, expected {low} to {high}")
        return value

    def _entries(self, key: str, value: Array, count: int) -> list[object]:
        if len(value) < count:
            raise MalformedFile(
                f"{self.prefix}.{key} has {len(value)} entries, expected one for each of {count} layers"
            )
        entries: list[object] = value.numpy()[:count].tolist()
        return entries

    def _default(self, key: str, default: T | None) -> T:
        if default is None:
            raise MalformedFile(f"the file has no key {self.prefix}.{key}, which this architecture needs")
        return default


def _shown(value: object) -> str:
    if isinstance(value, str):
        return f"the string {value[:40]!r}"
    return "an array" if isinstance(value, Array) else f"{value!r}"
