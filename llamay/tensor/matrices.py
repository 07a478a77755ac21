"""All matrices of a Program, ready for the products of a NumPy executor."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from llamay.tensor import room
from llamay.tensor.program import (
    Attend,
    Embed,
    ExpertGated,
    ExpertResidual,
    Gated,
    Head,
    Latent,
    Lift,
    Linear,
    Pool,
    Program,
    Qkv,
    Residual,
    Route,
    Scan,
    ShortConv,
    Ungated,
)
from llamay.tensor.stable import Stable, choose
from llamay.tensor.twins import SPLIT
from llamay.tensor.twins.linear import Real
from llamay.tensor.view import WIDTHS
from llamay.tensor.weights import TILE, Plain, Tiled, sum_length


@dataclass(frozen=True, slots=True, eq=False)
class Matrices:
    """The products by their linears, and how they are computed."""

    held: bool
    residence: str  # whether dequantised weights are held, in words
    stable: Stable
    products: dict[int, Callable[[Real], Real]]  # by id of the linear: x [T, columns] -> y [T, rows]

    @classmethod
    def load(cls, program: Program, dtype: type[np.floating[Any]], hold: bool | None) -> "Matrices":
        """Float64 is computed plainly, float32 in sums whose order is fixed; `hold` None holds what fits in half of memory."""
        linears = _linears(program)
        need = sum(linear.rows * linear.columns for linear in linears) * np.dtype(dtype).itemsize
        hold = need <= room.machine().total // 2 if hold is None else hold
        residence = (
            f"{need / 2**20:.0f} MiB of dequantised weights held"
            if hold
            else f"weights dequantised as they are used ({need / 2**20:.0f} MiB would not fit in half of memory)"
        )
        stable = choose(_shapes(program, linears), dtype)
        products: dict[int, Callable[[Real], Real]] = {
            id(linear): Plain.load(linear, hold) if dtype is np.float64 else Tiled.load(linear, stable, hold)
            for linear in linears
        }
        return cls(hold, residence, stable, products)


def _linears(program: Program) -> list[Linear]:
    """Every linear of the program, in order of use."""
    found: list[Linear] = []
    for op in program.operations:
        match op:
            case Qkv() | Residual() | Route() | Head():
                found.append(op.linear)
            case Gated():
                found += [op.gate, op.up]
            case Latent():
                found += [op.down, *([] if op.up is None else [op.up]), *op.absorb]
            case Scan():
                found += [linear for linear in (op.enter, op.select, op.step) if linear is not None]
            case ShortConv():
                found.append(op.enter)
            case Lift():
                found += op.linears
            case Ungated():
                found.append(op.up)
            case ExpertGated():
                found += [*(op.gate or ()), *op.up]
            case ExpertResidual():
                found += [*op.down, *([] if op.shared is None else [op.shared])]
            case Embed() | Attend() | Pool():
                pass
    return found


def _shapes(program: Program, linears: list[Linear]) -> set[tuple[int, int]]:
    """[K, N] of every product that must not depend on its number of rows."""
    tiles = {(sum_length(linear.columns), TILE) for linear in linears}
    widths = WIDTHS if program.both_ways else (SPLIT,)
    attends = [op for op in program.operations if isinstance(op, Attend)]
    scores = {(op.head_dim, width) for op in attends for width in widths}
    return tiles | scores | {(width, op.value_dim) for op in attends for width in widths}
