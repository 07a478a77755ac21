"""What is measured: one program in one executor, from a file or made up, and the bytes it moves."""

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

import numpy as np

from llamay.errors import UsageError
from llamay.quant import LAYOUTS
from llamay.serve.loading import devices, load
from llamay.serve.loading.pools import single
from llamay.settings import Settings
from llamay.tensor.batch import PAGE, Ints
from llamay.tensor.cache import cache_format
from llamay.tensor.executor import Executor
from llamay.tensor.numpy import NumpyExecutor
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
    Matrix,
    Program,
    Qkv,
    Residual,
    Route,
    Scan,
    ShortConv,
    Ungated,
)

if TYPE_CHECKING:
    from llamay.tensor.webgpu.executor import WebGPUExecutor


@dataclass(slots=True, eq=False)
class Target:
    """Something to measure.  Close it, or use it in a with statement."""

    name: str
    executor: Executor
    device: str  # what computes
    context: int  # tokens
    kv: str
    file_bytes: int  # of the tensors as a file has them
    load_seconds: float
    notes: tuple[str, ...]
    synthetic: bool
    _owned: ExitStack

    @property
    def program(self) -> Program:
        """What is computed."""
        return self.executor.program

    @property
    def table(self) -> Ints:
        """A page table that holds the whole context."""
        return np.arange(-(-self.context // PAGE), dtype=np.int32)

    @property
    def webgpu(self) -> "WebGPUExecutor | None":
        """The executor, where it is the one on an adapter."""
        if self.executor.name == "numpy":
            return None
        from llamay.tensor.webgpu.executor import WebGPUExecutor

        return self.executor if isinstance(self.executor, WebGPUExecutor) else None

    def close(self) -> None:
        """Gives memory and file back.  Safe to call twice."""
        self._owned.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_file(path: Path, settings: Settings, context: int) -> Target:
    """The model of a file, with room for `context` tokens unless the settings ask for more.

    Raises what `llamay.serve.loading.load.load` raises.
    """
    loaded = load.load(path, replace(settings, context=_context(settings, context)), direct=True)
    owned = ExitStack()
    owned.callback(loaded.close)
    return Target(
        name=loaded.name,
        executor=loaded.executor,
        device=loaded.device,
        context=loaded.context,
        kv=settings.kv,
        file_bytes=sum(tensor.nbytes for tensor in loaded.file.tensors.values()),
        load_seconds=loaded.seconds,
        notes=loaded.notes,
        synthetic=False,
        _owned=owned,
    )


def open_synthetic(spec: str, settings: Settings, context: int) -> Target:
    """A made-up model of a real shape, as `llamay.bench.synthetic.make` describes it."""
    from llamay.bench import synthetic

    start = time.perf_counter()
    made = synthetic.make(spec)
    context = load.context_of(_context(settings, context), made.config)
    choice = devices.choose(settings)
    executor = devices.executor(choice, made.program, single(made.program, settings.kv, context), settings)
    owned = ExitStack()
    owned.callback(executor.close)
    return Target(
        name=f"synthetic {spec}",
        executor=executor,
        device=choice.name,
        context=context,
        kv=settings.kv,
        file_bytes=made.bytes,
        load_seconds=time.perf_counter() - start,
        notes=(f"random weights of a real shape, for speed only: {made.types}",),
        synthetic=True,
        _owned=owned,
    )


def weight_bytes(target: Target) -> int:
    """Bytes of weights that one decode step reads from memory: every matrix once, of an embedding table one row, of experts as many as it uses."""
    program = target.program
    matrices = {matrix.name: matrix for op in program.operations for matrix in _read(op)}
    if isinstance(target.executor, NumpyExecutor) and target.executor.held:
        return sum(4 * matrix.rows * matrix.columns for matrix in matrices.values())
    read = sum(_stored(matrix) for matrix in matrices.values())
    gpu = target.webgpu
    if gpu is None:
        return read
    tables = {op.table.name: op.table for op in program.operations if isinstance(op, Embed)}
    every = {matrix.name: matrix for op in program.operations for matrix in _read(op, every=True)}
    loaded = sum(_stored(matrix) for matrix in {**every, **tables}.values())
    return round(read * gpu.memory.weight_bytes / loaded)


def kv_bytes(program: Program, position: float, kv: str) -> float:
    """Bytes of keys and values that one decode step reads at a position, with a cache of the format `kv`."""
    format = cache_format(kv)
    total = 0.0
    for op in program.operations:
        if isinstance(op, Attend):
            beside = 0 if op.values_at else op.value_dim
            page = op.kv_heads * (format.key_bytes(op.head_dim) + format.value_bytes(beside))
            total += page / PAGE * (min(position, op.window) if op.window else position)
        elif isinstance(op, Scan):  # the state, and the inputs that the convolution sees
            total += 4 * (op.inner * op.states + (len(op.kernel) - 1) * op.channels)
    return total


def _context(settings: Settings, need: int) -> int:
    """The context to load: what is needed, or the larger one that was asked for."""
    if 0 < settings.context < need:
        raise UsageError(
            f"prompt and answer take {need} tokens and the context is {settings.context}: -c {need} holds them"
        )
    return max(settings.context, need)


def _stored(matrix: Matrix) -> int:
    return matrix.rows * LAYOUTS[matrix.type].row_bytes(matrix.columns)


def _read(op: object, *, every: bool = False) -> tuple[Matrix, ...]:
    """The matrices that one token reads all of, or with those of `every` expert."""
    linears: tuple[Linear, ...] = ()
    match op:
        case Qkv(linear=linear) | Residual(linear=linear) | Route(linear=linear) | Head(linear=linear):
            linears = (linear,)
        case Gated(gate=gate, up=up):
            linears = (gate, up)
        case Ungated(up=up):
            linears = (up,)
        case ShortConv(enter=enter):
            linears = (enter,)
        case Latent(down=down, up=asked, absorb=heads):
            linears = (down, *([] if asked is None else [asked]), *heads)
        case Scan(enter=enter, select=select, step=step):
            linears = tuple(linear for linear in (enter, select, step) if linear is not None)
        case Lift(linears=heads):
            linears = heads
        case ExpertGated(gate=gates, up=ups, used=used):
            gates = gates or ()
            linears = (*gates, *ups) if every else (*gates[:used], *ups[:used])
        case ExpertResidual(down=downs, used=used, shared=shared):
            linears = (*(downs if every else downs[:used]), *([] if shared is None else [shared]))
    return tuple(part for linear in linears for part in linear.parts)
