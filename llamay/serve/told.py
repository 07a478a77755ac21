"""Told: what a function that another thread calls came to."""

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from llamay.serve.ticket import TICK

S = TypeVar("S")
T = TypeVar("T")


class Told(Generic[T]):
    """Made by who waits for it; one of `of` and `fail` is called on the other thread, once."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._result: list[T] = []
        self._error: BaseException | None = None

    def of(self, do: Callable[[S], T], given: S) -> None:
        """Calls it."""
        try:
            self._result.append(do(given))
        except BaseException as error:
            self._error = error
        self._done.set()

    def fail(self, error: BaseException) -> None:
        """It cannot be called."""
        self._error = error
        self._done.set()

    def wait(self) -> T:
        """What it returned; raises what it raised."""
        while not self._done.wait(TICK):
            pass
        if self._error is not None:
            raise self._error
        return self._result[0]
