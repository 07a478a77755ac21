"""The contract both executors keep: NumPy, eagerly, and WebGPU, as a replayed command list."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from llamay.sample import Sampling
from llamay.tensor.batch import Batch
from llamay.tensor.program import Program


class Executor(Protocol):
    """Runs one Program over one pool of KV pages.  Not thread-safe: one thread owns it.

    What it promises: the logits of a row depend only on the tokens before it in its
    sequence, bit for bit, whatever else is in the batch and however a prompt was cut.
    """

    program: Program
    name: str  # "numpy" or the adapter, as the banner shows it
    numerics: str  # id of the summation order; equal ids give equal bits
    pages: int  # size of the pool

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Computes the batch and returns logits [outputs, vocabulary]."""

    def begin(self, samplings: tuple[Sampling, ...], histories: tuple[NDArray[np.int32], ...]) -> None:
        """Sets the sampling of each output slot, and the tokens its penalties have seen so far."""

    def submit(self, batch: Batch | None, steps: int) -> None:
        """Queues `steps` steps that sample on the device, and returns without waiting.

        The first step computes `batch`; each further one feeds every output slot the
        token it just sampled, one position later.  With batch None the first step
        continues likewise from the last submission.
        """

    def collect(self) -> NDArray[np.int32]:
        """Waits for the oldest submission and returns its token ids [steps, outputs]."""

    def close(self) -> None:
        """Gives the device's memory back.  Safe to call twice."""
