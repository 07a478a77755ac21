"""One dispatch of a command list, and how many workgroups it takes for a number of rows."""

from dataclasses import dataclass
from typing import Any

from llamay.tensor.webgpu.device import Kernel


@dataclass(frozen=True, slots=True, eq=False)
class Command:
    """One dispatch: workgroups [x, depth, splits if split]."""

    kernel: Kernel
    group: Any
    x: int
    per: int = 1
    outputs: bool = False  # its tokens are the output slots, not the rows
    split: bool = False
    load: int = 0  # bytes of weights, or of keys and values, that a workgroup reads at most
    used: int = 0  # its tokens are pairs of a row and one of so many of
    experts: int = 0  # so many experts

    def depth(self, rows: int) -> int:
        """Workgroups for so many rows (or output slots)."""
        return groups(rows * self.used, self.experts, self.per) if self.used else -(-rows // self.per)


def groups(pairs: int, experts: int, per: int) -> int:
    """The most groups of up to `per` pairs with one expert each, where only an expert's last group is not full."""
    least = min(pairs, experts)
    return least + (pairs - least) // per
