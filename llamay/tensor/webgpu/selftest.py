"""The self-test of a loaded model: its own kernels against the NumPy twins, and its token widths against each other.

Some drivers compute wrong numbers and say nothing, and some contract sums differently in
different kernels.  So before a kernel's results are used they are compared: those of one
token a workgroup with golden values, those of more tokens bit for bit with them.  Each
kernel is tested once on a device, when it is first needed, since compiling one that is
never used would cost more than the test.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np

from llamay.errors import MalformedFile, WrongNumbers
from llamay.sample import Sampling
from llamay.tensor.program import (
    Attend,
    ExpertGated,
    ExpertResidual,
    Gated,
    Head,
    Latent,
    Lift,
    Operation,
    Qkv,
    Residual,
    Route,
    Scan,
    ShortConv,
    Ungated,
)
from llamay.tensor.webgpu import golden_choice
from llamay.tensor.webgpu.command import Command
from llamay.tensor.webgpu.device import Kernel
from llamay.tensor.webgpu.golden import Golden
from llamay.tensor.webgpu.plan import Plan
from llamay.tensor.webgpu.trial import Array, Arrays, Check, Trial

WIDE = (Qkv, Latent, Scan, ShortConv, Lift, Gated, Ungated, Residual, Route, ExpertGated, ExpertResidual, Head)  # several tokens a workgroup


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel's result.  `error` is the largest, in units of what is allowed; a width is right at 0."""

    kernel: str
    tokens: int
    error: float
    passed: bool
    note: str


class SelfTest:
    """What was tested of one plan.  `rows` grows as kernels come into use."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.device = plan, plan.device
        self.rows: list[Row] = []
        self.seconds = 0.0
        self._golden = Golden(plan, max(self.device.launch.tokens))
        self._widths = {1: True}  # whether a width may be used
        self._long = False
        self._joint: dict[bool, bool] = {}  # whether tokens may share what attention reads, up to the first split and beyond

    def start(self) -> None:
        """Tests what every step needs, and writes slots, so that it comes before `begin`.  Raises WrongNumbers."""
        self._numbers(long=False)
        if self.plan.program.pools:
            return
        pick = self.plan.pick(batch=True)
        if pick.kernel not in self.device.proven:
            with self._timed():
                self._judge([golden_choice.greedy(self.plan, pick)], [pick.kernel])

    def prove_sampling(self, samplings: tuple[Sampling, ...]) -> None:
        """Tests the kernels that sample for these slots; nothing may be on its way.  Raises WrongNumbers."""
        with self._timed():
            kernels = golden_choice.kernels_of(self.plan, samplings)
            if any(kernel not in self.device.proven for kernel in kernels):
                tried = golden_choice.distinct(samplings)
                self._judge([golden_choice.sampled(self.plan, tried)], kernels)

    def prove(self, rows: int, *, long: bool = False) -> None:
        """Tests what steps of so many rows need and was not tested yet; `long`: with attention beyond its first split.

        Runs kernels over the working buffers, so it comes before a step's rows are written.  Raises WrongNumbers.
        """
        if long and not self._long:
            self._numbers(long=True)
            self._long = True
        while (width := self._least(rows)) not in self._widths:
            self._widths[width] = self._same(width, *WIDE)

    def joint(self, *, long: bool) -> int:
        """How many tokens may share what attention reads; tested at the first call, as `prove` does."""
        most = max(self.device.launch.tokens)
        if long not in self._joint:
            self._joint[long] = self._same(most, Attend, long=long)
        return most if self._joint[long] else 1

    def width(self, rows: int) -> int:
        """The tokens a workgroup for so many rows, which were proven: the least that covers them, else the most."""
        width = self._least(rows)
        if width not in self._widths:
            raise ValueError(f"steps of {rows} rows were not proven")
        return width

    def _least(self, rows: int) -> int:
        """Among the widths that compute the same bits, those untested included."""
        allowed = [tokens for tokens in self.device.launch.tokens if self._widths.get(tokens, True)]
        return next((tokens for tokens in allowed if tokens >= rows), allowed[-1])

    def _numbers(self, *, long: bool) -> None:
        with self._timed(), np.errstate(all="ignore"):  # damaged weights are told by what they lead to
            for at, commands in self._untested(1, long=long):
                trial = self._golden.trial(at, long=long)
                self._judge(trial.checks(self._run(trial, commands)), [command.kernel for command in commands])

    def _judge(self, checks: list[Check], kernels: list[Kernel]) -> None:
        """Notes the worst of the checks; raises WrongNumbers where it lies beyond its bound."""
        worst = max(checks, key=lambda check: check.worst[0])
        error, place = worst.worst
        label = _label(kernels)
        self.rows.append(Row(label, 1, error, error <= 1, f"{worst.what} against NumPy"))
        if error > 1:
            found, expected = (float(part.reshape(-1)[place]) for part in (worst.found, worst.expected))
            if not abs(expected) <= np.finfo(np.float32).max:
                raise MalformedFile(
                    f"the weights are damaged: {label} gives {expected:.9g} at {place} of {worst.what} in NumPy, too, "
                    f"which is no finite number; get the file again"
                )
            raise WrongNumbers(
                f"{self.device.name} ({self.device.adapter.driver}) computes wrong numbers: {label} gives {found:.9g} "
                f"at {place} of {worst.what}, expected is {expected:.9g}; use another adapter (`llamay devices` lists "
                f"them) or -device numpy, or try another driver"
            )
        self.device.proven.update(kernels)

    def _same(self, width: int, *kinds: type[Operation], long: bool = False) -> bool:
        """Whether operations of these kinds with `width` tokens a workgroup leave the bits of one token at a time."""
        with self._timed():
            for at, commands in self._untested(width, long=long):
                if not isinstance(self.plan.program.operations[at], kinds):
                    continue
                trial = self._golden.trial(at, long=long, tokens=width)
                alone, together = (self._run(trial, part) for part in (self.plan.operation(at, 1, long=long), commands))
                differing = sum(_differing(alone[name], together[name]) for name in alone)
                total = sum(array.size for array in alone.values())
                label = _label([command.kernel for command in commands])
                note = "bit for bit as one token at a time" if not differing else f"{differing} of {total} values differ"
                self.rows.append(Row(label, width, float(differing), not differing, note))
                if differing:
                    return False
                self.device.proven.update(command.kernel for command in commands)
        return True

    @contextmanager
    def _timed(self) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds += time.perf_counter() - start

    def _untested(self, width: int, *, long: bool) -> Iterator[tuple[int, list[Command]]]:
        """Operations with a kernel that this device has not shown to be right."""
        for at in range(len(self.plan.program.operations)):
            commands = self.plan.operation(at, width, long=long, joint=width, pairs=width)
            if any(command.kernel not in self.device.proven for command in commands):
                yield at, commands

    def _run(self, trial: Trial, commands: list[Command]) -> Arrays:
        trial.arrange()
        golden, outputs = self._golden, min(self._golden.rows, self.plan.memory.slots)
        grids = [
            (min(c.x, golden.head_tiles), c.depth(outputs), 1)
            if c.outputs
            else (c.x, c.depth(golden.rows), golden.splits if c.split else 1)
            for c in commands
        ]
        self.device.dispatch([(c.kernel, c.group, grid) for c, grid in zip(commands, grids, strict=True)])
        return trial.read()


def _label(kernels: list[Kernel]) -> str:
    return " and ".join(dict.fromkeys(kernel.label for kernel in kernels))


def _differing(one: Array, other: Array) -> int:
    """Elements whose bits differ."""
    bits = [np.ascontiguousarray(array).view(np.uint8).reshape(array.size, array.itemsize) for array in (one, other)]
    return int((bits[0] != bits[1]).any(axis=1).sum())
