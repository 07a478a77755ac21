"""How fast the memory of what computes is: a measured copy."""

import time

import numpy as np

from llamay.bench.target import Target

COPY = 256 << 20  # bytes copied at a time: beyond any cache of a CPU, and of most GPUs
TRIES = 3


def copy_bandwidth(target: Target) -> float:
    """Bytes a second that a copy within the memory of what computes reads and writes, the best of a few."""
    gpu = target.webgpu
    if gpu is None:
        return _host_copy()
    from llamay.tensor.webgpu.meter import copy_rate

    return copy_rate(gpu.device, COPY)


def _host_copy() -> float:
    source, sink = np.ones(COPY, np.uint8), np.zeros(COPY, np.uint8)
    best = 0.0
    for _ in range(TRIES):
        start = time.perf_counter()
        np.copyto(sink, source)
        best = max(best, 2 * COPY / (time.perf_counter() - start))
    return best
