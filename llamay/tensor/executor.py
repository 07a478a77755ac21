"""The contract both executors keep: NumPy, eagerly, and WebGPU, as a replayed command list."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from llamay.sample import Sampling
from llamay.tensor.batch import Batch
from llamay.tensor.program import Program

NO_TOKEN = -1


class Executor(Protocol):
    """Runs one Program over pools of KV pages.  Not thread-safe: one thread owns it.

    Page group 0 are the layers that see every position.  Group 1, where `window_pages` is not
    0, are those with a sliding window, whose tables are `Batch.windows`.

    What it promises: the logits of a row depend only on the tokens before it in its
    sequence, bit for bit, whatever else is in the batch and however a prompt was cut.
    """

    program: Program
    name: str  # "numpy" or the adapter, as the banner shows it
    numerics: str  # id of the summation order and of the cache format; equal ids give equal bits
    kv: str  # the cache format, as `llamay.tensor.cache` names it
    pages: int  # size of group 0's pool
    window_pages: int  # size of group 1's pool; 0: there is no such group
    slots: int  # the most outputs a submission may have
    ahead: int  # submissions that go on while the tokens of one before are read; 0 where `submit` itself computes

    def rows_at(self, position: int) -> int:
        """The most rows that one step computes together, where the furthest of them stands at `position`."""

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Computes the batch and returns logits [outputs, vocabulary]."""

    def begin(self, samplings: tuple[Sampling, ...], histories: tuple[NDArray[np.int32], ...]) -> None:
        """Sets the sampling of each output slot, and the tokens its penalties have seen so far.

        What was submitted and never collected is dropped.
        """

    def submit(self, batch: Batch | None, steps: int) -> None:
        """Queues `steps` steps that sample on the device, and returns without waiting.

        The first step computes `batch`; each further one feeds every output slot the
        token it just sampled, one position later.  With batch None the first step
        continues likewise from the last submission.
        """

    def collect(self) -> NDArray[np.int32]:
        """Waits for the oldest submission and returns its token ids [steps, outputs].

        NO_TOKEN stands where no logit was a finite number; what that slot gave after it means nothing.
        """

    def page_bytes(self, group: int) -> int:
        """Bytes of one page of a group over all its layers, a multiple of 4."""

    def copy_pages(self, group: int, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies page a over page b for each (a, b), after what was submitted; no b may also be an a."""

    def read_pages(self, group: int, pages: Sequence[int]) -> NDArray[np.uint8]:
        """The pages' bytes [pages, page_bytes] after what was submitted: the keys of the group's layers, then their values."""

    def write_pages(self, group: int, pages: Sequence[int], data: NDArray[np.uint8]) -> None:
        """Fills distinct pages, after what was submitted, with bytes that `read_pages` gave."""

    def beside(self, kv: str, pages: int, window_pages: int = 0) -> "Executor":
        """An executor over the same weights with pages of its own in the format `kv`; `window_pages` 0: no window group.

        Closing it gives back what it took; it is closed before this one.
        """

    def close(self) -> None:
        """Gives the device's memory back.  Safe to call twice."""
