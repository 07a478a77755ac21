"""Models of a real shape with random weights: right for measuring speed, for nothing else."""

import math
from collections import Counter
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided
from numpy.typing import NDArray

from llamay import model
from llamay.arch import Config
from llamay.bench import shapes
from llamay.quant import LAYOUTS, TensorType, quantize
from llamay.tensor.program import Program

SAMPLES = 512  # different blocks of a type
SPREAD = 0.02  # standard deviation of a weight: keeps activations near 1 through thousands of columns
SEED = 7


@dataclass(frozen=True, slots=True, eq=False)
class Synthetic:
    """A program whose weights are random, and what it took."""

    program: Program
    config: Config
    bytes: int  # what the tensors would take in a file
    types: str  # how many tensors have which type


def make(spec: str) -> Synthetic:
    """The model of a specification such as `llama-1b:q4_k_m`; raises UsageError for one that cannot be."""
    return build(*shapes.named(spec))


def build(shape: shapes.Shape, mix: shapes.Mix) -> Synthetic:
    """The model of a shape with the types of a mix.

    Rows of a matrix overlap in memory: each begins one block after the one before, in a run
    of valid random blocks.  So a model takes tens of megabytes here, whatever its size.
    """
    pools: dict[tuple[TensorType, bool], _Pool] = {}
    tensors: dict[str, _Tensor] = {}
    for name, dims in shape.tensors():
        type = mix.type(name, dims[0], shape)
        pool = pools.setdefault((type, "norm" in name), _Pool(type, 1.0 if "norm" in name else 0.0))
        tensors[name] = _Tensor(type, dims, pool)
    for tensor in tensors.values():
        tensor.pool.need(tensor.rows + tensor.shape[0])
    config = shape.config()
    bound = model.bind_tensors(tensors, config)
    counts = Counter(tensor.type.name for tensor in tensors.values() if len(tensor.shape) > 1)
    return Synthetic(
        program=bound.program,
        config=config,
        bytes=sum(tensor.rows * tensor.row_bytes for tensor in tensors.values()),
        types=", ".join(f"{count} {name}" for name, count in counts.most_common()),
    )


class _Pool:
    """A long run of valid random blocks of one type, made when first read."""

    def __init__(self, type: TensorType, mean: float) -> None:
        self.type, self.mean = type, mean
        self._blocks = 0
        self._bytes: NDArray[np.uint8] | None = None

    def need(self, elements: int) -> None:
        """Makes room for rows and the columns of the last of them."""
        self._blocks = max(self._blocks, elements)

    def rows(self, rows: int, columns: int) -> NDArray[np.uint8]:
        """[rows, bytes a row], read-only: row i begins at block i."""
        layout = LAYOUTS[self.type]
        if self._bytes is None:
            generator = np.random.default_rng(SEED)
            values = generator.normal(self.mean, SPREAD, (SAMPLES, layout.elements)).astype(np.float32)
            samples = quantize(self.type, values)
            self._bytes = samples[generator.integers(0, SAMPLES, self._blocks)].reshape(-1)
        return as_strided(self._bytes, (rows, layout.row_bytes(columns)), (layout.bytes, 1), writeable=False)


@dataclass(frozen=True, slots=True, eq=False)
class _Tensor:
    """A tensor out of the pool of its type."""

    type: TensorType
    shape: tuple[int, ...]
    pool: _Pool

    @property
    def rows(self) -> int:
        return math.prod(self.shape[1:])

    @property
    def row_bytes(self) -> int:
        return LAYOUTS[self.type].row_bytes(self.shape[0])

    def read(self, start: int, stop: int) -> NDArray[np.uint8]:
        """The bytes of rows [start, stop)."""
        return self.pool.rows(self.rows, self.shape[0])[start:stop]
