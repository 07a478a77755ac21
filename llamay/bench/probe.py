"""Where a step's time goes on a device, from steps that run alone: host, staging, kernels, copy-back."""

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from llamay.bench.measure import GREEDY, NO_ROWS
from llamay.bench.target import Target
from llamay.tensor.batch import PAGE, Batch, Ints

if TYPE_CHECKING:
    from llamay.tensor.webgpu.meter import Clock

SUBMISSIONS = 8  # of decode steps that are taken apart


@dataclass(frozen=True, slots=True)
class Parts:
    """Seconds of one token, or of one prompt, by what they went into.

    A submission's parts follow each other here; in use the host's run while the device is busy.
    """

    encoding: float  # the host records commands; waiting inside the driver is not in it
    staging: float  # the host's words go to the device
    kernels: float
    copy_back: float  # what was computed comes back to the host
    clocked: bool  # kernels by the device's timestamps, else by the host's clock around them


def decode(target: Target, prompt: Ints, steps: int, room: int) -> Parts | None:
    """One token after the prompt, from submissions of `steps` steps, at most `room` tokens of them.

    None for an executor without a device.
    """
    gpu = target.webgpu
    if gpu is None:
        return None
    executor, meter = target.executor, gpu.meter
    steps = min(steps, room)
    _settle(target, prompt)
    found = []
    with _timed(target) as clock:
        for _ in range(max(1, min(SUBMISSIONS, room // steps))):
            before = meter.read()
            start = time.perf_counter()
            executor.submit(None, steps)
            queued = time.perf_counter()
            gpu.device.flush()
            done = time.perf_counter()
            executor.collect()
            back = time.perf_counter() - done
            spent = meter.read() - before
            host = queued - start - spent.queue - spent.write
            device = done - queued + spent.queue if clock is None else clock.seconds()
            found.append((host, spent.write, device, back))
    host, staging, device_time, back = (median(part) / steps for part in zip(*found, strict=True))
    return Parts(host, staging, device_time, back, clocked=clock is not None)


def prefill(target: Target, prompt: Ints, chunk: int) -> Parts | None:
    """The whole prompt; None for an executor without a device."""
    gpu = target.webgpu
    if gpu is None:
        return None
    table = target.table
    gpu.device.flush()
    with _timed(target) as clock:
        before = gpu.meter.read()
        start = time.perf_counter()
        for first in range(0, len(prompt), chunk):
            gpu.forward(Batch.single(prompt[first : first + chunk], first, table, NO_ROWS))
        queued = time.perf_counter()
        gpu.device.flush()
        done = time.perf_counter()
        spent = gpu.meter.read() - before
        kernels = done - queued + spent.queue if clock is None else clock.seconds()
    start_back = time.perf_counter()
    gpu.device.read(gpu.memory.logits, np.float32, target.program.vocabulary)
    return Parts(
        encoding=queued - start - spent.queue - spent.write,
        staging=spent.write,
        kernels=kernels,
        copy_back=time.perf_counter() - start_back,
        clocked=clock is not None,
    )


def _settle(target: Target, prompt: Ints) -> None:
    """The last rows of the prompt computed and their token collected, so that steps can continue from it."""
    first = (len(prompt) - 1) // PAGE * PAGE
    target.executor.begin((GREEDY,), (prompt,))
    target.executor.submit(Batch.single(prompt[first:], first, target.table), 1)
    target.executor.collect()


def _timed(target: Target) -> AbstractContextManager["Clock | None"]:
    """The device's clock around every pass, where it has one."""
    gpu = target.webgpu
    return gpu.meter.timed() if gpu and gpu.meter.clocked else nullcontext()
