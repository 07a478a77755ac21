"""What a submission costs: host seconds by what they went into and, when asked for, seconds by the device's own clock."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import wgpu

from llamay.errors import UsageError
from llamay.tensor.webgpu.device import Device

PASSES = 1024  # timed passes before they must be read
COPIES = 4  # a submission, when copies are measured
COPY_TRIES = 3


@dataclass(frozen=True, slots=True)
class Reading:
    """The sums so far; the difference of two readings is what lay between them."""

    write: float = 0.0  # seconds putting the host's words on the queue
    queue: float = 0.0  # seconds inside queue.submit; a driver without a queue of its own waits here
    submissions: int = 0
    dispatches: int = 0

    def __sub__(self, other: "Reading") -> "Reading":
        return Reading(
            self.write - other.write,
            self.queue - other.queue,
            self.submissions - other.submissions,
            self.dispatches - other.dispatches,
        )


class Meter:
    """Counts for one executor.  It costs two clock readings a submission; `timed` costs a pass two timestamps."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._sums = Reading()
        self._clock: Clock | None = None

    @property
    def clocked(self) -> bool:
        """Whether this device can tell how long its passes took."""
        return "timestamp-query" in self.device.handle.features

    def read(self) -> Reading:
        """The sums so far."""
        return self._sums

    @contextmanager
    def timed(self) -> Iterator["Clock"]:
        """Puts timestamps around every pass inside; `seconds()` of what it gives sums them."""
        if not self.clocked:
            raise UsageError(f"{self.device.name} has no timestamps")
        self._clock = clock = Clock(self.device)
        try:
            yield clock
        finally:
            self._clock = None
            clock.close()

    def wrote(self, start: float) -> None:
        """Words went onto the queue from `start`, by time.perf_counter, until now."""
        sums = self._sums
        spent = time.perf_counter() - start
        self._sums = Reading(sums.write + spent, sums.queue, sums.submissions, sums.dispatches)

    def submitted(self, start: float, dispatches: int) -> None:
        """queue.submit ran from `start` until now."""
        sums = self._sums
        spent = time.perf_counter() - start
        self._sums = Reading(sums.write, sums.queue + spent, sums.submissions + 1, sums.dispatches + dispatches)

    def begin_pass(self, encoder: Any) -> Any:
        """A compute pass of the encoder, between timestamps while they are wanted."""
        return encoder.begin_compute_pass() if self._clock is None else self._clock.begin_pass(encoder)


class Clock:
    """A set of timestamps, two for each pass."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._set = device.handle.create_query_set(type="timestamp", count=2 * PASSES)
        usage = wgpu.BufferUsage.QUERY_RESOLVE | wgpu.BufferUsage.COPY_SRC
        self._resolved = device.buffer(16 * PASSES, usage)
        self._used = 0

    def begin_pass(self, encoder: Any) -> Any:
        if self._used == PASSES:
            raise UsageError(f"at most {PASSES} passes are timed before they are read")
        at = 2 * self._used
        self._used += 1
        return encoder.begin_compute_pass(
            timestamp_writes={
                "query_set": self._set,
                "beginning_of_pass_write_index": at,
                "end_of_pass_write_index": at + 1,
            }
        )

    def seconds(self) -> float:
        """Waits for the device; seconds inside the passes since the last reading, which are forgotten then."""
        if not self._used:
            return 0.0
        encoder = self.device.handle.create_command_encoder()
        encoder.resolve_query_set(self._set, 0, 2 * self._used, self._resolved.handle, 0)
        self.device.submit(encoder)
        stamps = self.device.read(self._resolved, np.uint64, 2 * self._used).astype(np.int64).reshape(-1, 2)
        self._used = 0
        return float((stamps[:, 1] - stamps[:, 0]).sum()) * 1e-9

    def close(self) -> None:
        self.device.release([self._resolved])


def copy_rate(device: Device, size: int) -> float:
    """Bytes a second that a copy of `size` bytes within the device's memory reads and writes, the best of a few."""
    size = min(size, device.limits["max-buffer-size"])
    usage = wgpu.BufferUsage.COPY_SRC | wgpu.BufferUsage.COPY_DST
    source, sink = device.buffer(size, usage), device.buffer(size, usage)
    best = 0.0
    try:
        for _ in range(COPY_TRIES + 1):  # the first one touches the memory
            encoder = device.handle.create_command_encoder()
            for _ in range(COPIES):
                encoder.copy_buffer_to_buffer(source.handle, 0, sink.handle, 0, size)
            device.flush()
            start = time.perf_counter()
            device.submit(encoder)
            device.flush()
            best = max(best, 2 * COPIES * size / (time.perf_counter() - start))
        device.check()
    finally:
        device.release([source, sink])
    return best
