"""A Program: its operations in order, and what follows from them."""

from dataclasses import dataclass

from llamay.tensor.program.mixing import Attend, Latent, Lift, Qkv, Scan, ShortConv
from llamay.tensor.program.rows import (
    Embed,
    ExpertGated,
    ExpertResidual,
    Gated,
    Head,
    Pool,
    Residual,
    Route,
    Ungated,
)

Layer = Qkv | Latent | Scan | ShortConv  # what has pages
Operation = Embed | Layer | Attend | Lift | Residual | Gated | Ungated | Route | ExpertGated | ExpertResidual | Head | Pool


@dataclass(frozen=True, slots=True, eq=False)
class Program:
    """What an executor needs to know of a model."""

    operations: tuple[Operation, ...]
    hidden: int
    vocabulary: int
    context: int  # positions the model was made for
    reading: str = ""  # which of several readings of the file this is, as a suffix to the id of numerics

    @property
    def pools(self) -> bool:
        """Whether it gives vectors of texts, and not logits."""
        return isinstance(self.operations[-1], Pool)

    @property
    def width(self) -> int:
        """Values of what it gives for a row."""
        return self.hidden if self.pools else self.vocabulary

    @property
    def both_ways(self) -> bool:
        """Whether rows see what stands behind them, in all layers alike, so that a text is computed in one batch."""
        return next((op.both_ways for op in self.operations if isinstance(op, Attend)), False)

    @property
    def layers(self) -> tuple[Layer, ...]:
        """The operations that write pages, by layer."""
        return tuple(op for op in self.operations if isinstance(op, Layer))

    @property
    def span(self) -> int:
        """The longest window of a layer, in positions; 0 where none has one."""
        return max((op.window for op in self.operations if isinstance(op, Attend | Scan | ShortConv)), default=0)

    @property
    def windowed(self) -> frozenset[int]:
        """The layers whose pages may lie in a group of their own: those with a window, where others see everything.

        Where all are attention with one, their pages are the first group's: a group without layers has nothing to
        keep.  Those of state spaces are the second's even so, for they are large and few of them are needed.
        A text that is read both ways is in its pages for one step, which no second group makes less.
        """
        if self.both_ways:
            return frozenset()
        scans = frozenset(op.layer for op in self.layers if isinstance(op, Scan))
        sliding = scans | {op.layer for op in self.operations if isinstance(op, Attend | ShortConv) and op.window}
        return sliding if scans or len(sliding) < len(self.layers) else frozenset()
