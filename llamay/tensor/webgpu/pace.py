"""How long submissions may take: command lists are cut where they would take longer, by rates learnt from those before.

Windows and some Linux drivers reset a device that works on one submission for some two
seconds, and software adapters hear an interrupt only between submissions.  A list's
duration is estimated from the bytes its linears and attentions read; what a submission
really took corrects the rate of its width (tokens a workgroup).  Cuts change no result:
the dispatches and their order stay.
"""

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from llamay.tensor.webgpu.adapters import Adapter

Step = tuple[Any, Any, int, int, int]  # pipeline, bind group, workgroups

BOUND = 0.2  # seconds of one submission, a tenth of what is known to kill a device
SOFTWARE = 0.15  # where no driver kills, but a person waits: see above
SEEDS = {"DiscreteGPU": 1e11, "IntegratedGPU": 1e10, "CPU": 1e9}  # bytes a second before anything is known
UNKNOWN = 5e9  # of other types
KEPT = 7  # measurements of a width, whose median counts: single ones may take in another submission, or a late host
LEAST = 5e-3  # seconds below which a measurement says nothing


@dataclass(frozen=True, slots=True, eq=False)
class Stretch:
    """Dispatches in order, the bytes they read, and the tokens a workgroup of most of them."""

    steps: Sequence[Step]
    bytes: float
    width: int


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """What goes into one submission: the estimate it was cut by, and the rates that this was made of, by width."""

    steps: Sequence[Step]
    seconds: float
    rates: Mapping[int, float]


class Pace:
    """The rates of one device, in seconds a byte, by width."""

    def __init__(self, adapter: Adapter, bound: float | None = None) -> None:
        self.bound = bound if bound is not None else SOFTWARE if adapter.software else BOUND
        self._seed = 1 / SEEDS.get(adapter.type, UNKNOWN)
        self._rates: dict[int, deque[float]] = {}

    def rate(self, width: int) -> float:
        """Seconds a byte; before a width is measured, as if its tokens were done one after the other."""
        if width in self._rates:
            return median(self._rates[width])
        measured = [max(1, width / other) * median(rates) for other, rates in self._rates.items()]
        return max(measured, default=width * self._seed)

    def seconds(self, stretch: Stretch) -> float:
        """The estimate for all of it."""
        return stretch.bytes * self.rate(stretch.width)

    def rows(self, width: int, heaviest: float) -> int:
        """Token rows that keep a dispatch, which reads `heaviest` bytes for every `width` of them, within the bound."""
        one = heaviest * self.rate(width)
        return width * max(1, int(self.bound / one)) if one else width << 20

    def pieces(self, stretches: Iterable[Stretch]) -> list[Piece]:
        """The stretches, joined while they fit the bound and cut where one does not."""
        out: list[Piece] = []
        steps: list[Step] = []
        spent, rates = 0.0, dict[int, float]()

        def close() -> None:
            nonlocal spent
            if steps:
                out.append(Piece(tuple(steps), spent, dict(rates)))
            steps.clear()
            rates.clear()
            spent = 0.0

        for stretch in stretches:
            total = self.seconds(stretch)
            parts = max(1, min(len(stretch.steps), -int(-total // self.bound)))
            if spent + total > self.bound:
                close()
            for part in range(parts):
                start, end = (len(stretch.steps) * edge // parts for edge in (part, part + 1))
                steps += stretch.steps[start:end]
                rates[stretch.width] = self.rate(stretch.width)
                spent += total / parts
                if part + 1 < parts:
                    close()
        close()
        return out

    def took(self, piece: Piece, seconds: float) -> None:
        """Corrects the rates of a piece's widths by what it took."""
        if seconds < LEAST or not piece.seconds:
            return
        for width, rate in piece.rates.items():
            self._rates.setdefault(width, deque(maxlen=KEPT)).append(rate * seconds / piece.seconds)
