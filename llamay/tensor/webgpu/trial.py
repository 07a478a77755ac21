"""What trials share: made-up inputs in the working buffers, what comes out of them, and how far it may be off."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamay.tensor import twins
from llamay.tensor.batch import PAGE
from llamay.tensor.program import Norm
from llamay.tensor.twins.linear import Real
from llamay.tensor.webgpu.ends import COLUMNS
from llamay.tensor.webgpu.golden_values import FIRST
from llamay.tensor.webgpu.launch import SPLIT
from llamay.tensor.webgpu.plan import Plan
from llamay.tensor.webgpu.state import KIND, PROBE, ROWS_AT
from llamay.tensor.webgpu.storage import Rows

SUM = 3e-5  # largest error of a sum of products, in units of the magnitudes that were summed; one lost term shows
FUNCTION = 2e-4  # relative error that WGSL lets exp and tanh have, with room
LONG = (PROBE - 2) * PAGE  # a position beyond the first split of attention
Array = NDArray[Any]
Arrays = dict[str, Array]


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """One array of what was found, with what was expected and the largest difference allowed."""

    what: str
    found: Array
    expected: Array
    bound: Array

    @property
    def worst(self) -> tuple[float, int]:
        """The largest error in units of its bound, and where it is; an infinite one for what is no number."""
        with np.errstate(invalid="ignore", divide="ignore"):  # what is no number is an infinite error below
            apart = np.abs(self.found.astype(np.float64) - self.expected)
            error = np.where(apart == 0, 0, apart / self.bound)
        error = np.where(np.isfinite(error), error, np.inf).reshape(-1)
        at = int(error.argmax())
        return float(error[at]), at


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """`arrange` writes the inputs, `read` gives what the commands left, `checks` compares that."""

    arrange: Callable[[], None]
    read: Callable[[], Arrays]
    checks: Callable[[Arrays], list[Check]]


class Trials:
    """The trials of one plan; `rows` token rows each."""

    def __init__(self, plan: Plan, rows: int) -> None:
        self.plan, self.memory, self.device, self.rows = plan, plan.memory, plan.device, rows
        self.splits = LONG // SPLIT + 1
        self.head_tiles = -(-plan.program.hidden // COLUMNS)  # of what gives the outputs, that are run
        if plan.memory.head_streams:
            first = plan.memory.head_streams[0]
            self.head_tiles = min(first.tiles, -(-FIRST // first.tile.height))
        self._random = np.random.default_rng(11)

    # -- buffers

    def _put(self, buffer: Rows, values: Array, stride: int) -> None:
        """Rows [rows, n] of f32, `stride` floats apart."""
        full = np.zeros((self.rows, stride), np.float32)
        full[:, : values.shape[1]] = values
        self.device.write(buffer, full)

    def _get(self, buffer: Rows, stride: int, columns: int) -> NDArray[np.float32]:
        found = self.device.read(buffer, np.float32, self.rows * stride)
        return found.reshape(self.rows, stride)[:, :columns]

    def _spoil(self, buffer: Rows, stride: int, columns: int) -> None:
        """What is never written shows.  What pads a row stays zero: no kernel writes it, and linears read it."""
        self._put(buffer, np.full((self.rows, columns), np.nan, np.float32), stride)

    def _place(self, tokens: Array, positions: Array, last: int = 0, kinds: Array | int = 0) -> None:
        """The batch's token rows, over the tables of pages that nobody owns; `last` is that of sequences read both ways."""
        words = np.zeros((self.rows, 4), np.uint32)
        words[:, 0], words[:, 1] = tokens, positions
        words[:, 2:] = self.plan.layout.probe_at, self.plan.layout.probe_at + PROBE
        if self.plan.program.both_ways:
            words[:, 3] = last | kinds << KIND
        self.device.write(self.memory.state, words, 4 * ROWS_AT)

    def _pages(self, layer: int) -> tuple[tuple[Rows, int], tuple[Rows, int]]:
        """The pools of keys and of values of a layer, each with the bytes of a page; the last page is nobody's."""
        memory = self.memory
        return (memory.keys[layer], memory.key_bytes[layer]), (memory.values[layer], memory.value_bytes[layer])

    def _normal(self, columns: int) -> Real:
        return self._random.standard_normal((self.rows, columns)).astype(np.float32)

    def _reading(self, at: int, norm: Norm) -> tuple[Callable[[], None], Real, Real]:
        """(what arranges h, x [rows, H], the scale) of an operation whose linear reads scale * x, h through its norm."""
        hidden, memory = self.plan.program.hidden, self.memory
        x, one = self._normal(hidden), np.ones((self.rows, 1))
        if norm.kind == "layer":
            normed = twins.norm(x.astype(np.float64), norm)
            if self.plan.normed(at) is None:  # an operation before left it in hw
                return lambda: self._put(memory.hw, normed, memory.hidden), normed.astype(np.float32), one

            def raw() -> None:
                self._put(memory.h, x, memory.hidden)
                self._spoil(memory.hw, memory.hidden, hidden)

            return raw, normed, one
        sums = self._random.uniform(0.5, 1.5, (self.rows, memory.partials)).astype(np.float32)
        sums *= np.float32(hidden / memory.partials)

        def weighted() -> None:
            self._put(memory.h if norm.kind == "none" else memory.hw, x, memory.hidden)
            self.device.write(memory.sums, sums)

        scale = 1 / np.sqrt(sums.astype(np.float64).sum(1, keepdims=True) / hidden + norm.eps)
        return weighted, x, scale if norm.kind == "rms" else one


def squares(found: Arrays) -> Check:
    """The sums of squares that h leaves."""
    expected = np.square(found["h"].astype(np.float64)).sum(axis=1)
    return Check("sums of squares", found["sums"].astype(np.float64).sum(axis=1), expected, 1e-5 * expected + 1e-30)
