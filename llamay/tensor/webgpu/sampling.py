"""Sampling on the device: the buffers of `llamay.sample.route` and its dispatches as commands."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamay.sample import Recent, Sampling
from llamay.sample.route import buffer_words, route
from llamay.sample.terms import WORDS, Terms, dense_bias
from llamay.tensor.webgpu.device import Device
from llamay.tensor.webgpu.storage import Buffer

Step = tuple[Any, Any, int, int, int]  # pipeline, bind group, workgroups


class Sampler:
    """What the slots of a device sample with.

    `begin` takes the settings; `place` the positions, once they are known.  Buffers grow
    with the number of slots and stay; pipelines and bind groups are made once for each
    combination of filters.
    """

    def __init__(self, device: Device, vocabulary: int, logits: Buffer, state: Buffer) -> None:
        self.device, self.vocabulary = device, vocabulary
        self._buffers: dict[str, Buffer] = {"logits": logits, "state": state}
        self._fixed = frozenset(self._buffers)
        self._slots = 0
        self._lists: dict[tuple[Any, ...], list[Step]] = {}
        self._samplings: tuple[Sampling, ...] = ()
        self._histories: tuple[NDArray[np.int32], ...] = ()
        self._generation = 0  # of the buffers: lists of an older one hold what is gone
        self._names: tuple[Any, ...] = ()
        self.waiting = False  # begin came, and place is still to come

    @property
    def plain(self) -> bool:
        """Whether every slot takes the argmax of the logits, which the head has found already."""
        return all(sampling.plain_greedy for sampling in self._samplings)

    @property
    def key(self) -> tuple[Any, ...]:
        """Names the dispatches of `steps`."""
        return (self._generation, *self._names)

    @property
    def chosen(self) -> Buffer:
        """Where the steps leave each slot's token."""
        return self._buffers["chosen"]

    def begin(self, samplings: tuple[Sampling, ...], histories: tuple[NDArray[np.int32], ...]) -> None:
        """Takes the settings; raises UsageError when one does not fit the vocabulary."""
        for sampling in samplings:
            Terms.of(sampling, self.vocabulary)
        self._samplings, self._histories = samplings, histories
        self.waiting = not self.plain
        found = route(samplings, self.vocabulary)
        self._names = tuple((d.kernel, *d.choices.values(), *d.grid) for d in found)

    def place(self, positions: NDArray[np.int32]) -> None:
        """Writes the slots' records; slot i's next token will stand at positions[i]."""
        self.waiting = False
        slots, words = len(self._samplings), self.vocabulary
        if slots > self._slots:
            self._grow(slots)
        rings = [max(s.repeat_last_n, 0) if s.penalises else 0 for s in self._samplings]
        starts = np.concatenate([[0], np.cumsum(rings)]).astype(int)
        if any(s.penalises for s in self._samplings):
            self._need("counts", self._slots * words)
            self._need("recent", max(1, int(starts[-1])))
        if any(s.logit_bias for s in self._samplings):
            self._need("bias", self._slots * words)
        records = np.zeros((slots, WORDS), np.uint32)
        for slot, sampling in enumerate(self._samplings):
            records[slot] = Terms.of(sampling, words).words(words, int(starts[slot]))
            if sampling.logit_bias:
                self.device.write(self._buffers["bias"], dense_bias(sampling, words), 4 * slot * words)
            if sampling.penalises:
                recent = Recent(words, sampling.repeat_last_n, self._histories[slot], int(positions[slot]))
                self.device.write(self._buffers["counts"], recent.counts, 4 * slot * words)
                if len(recent.ring):
                    self.device.write(self._buffers["recent"], recent.ring, 4 * int(starts[slot]))
        self.device.write(self._buffers["terms"], records)

    def steps(self, dims: Buffer) -> list[Step]:
        """The dispatches from logits to chosen; `dims` says where the step's rows lie."""
        key = (dims.offset, self.key)
        if key not in self._lists:
            steps: list[Step] = []
            for d in route(self._samplings, self.vocabulary):
                kernel = self.device.kernel(d.kernel, **d.choices)
                resources = {at: dims if name == "dims" else self._buffers[name] for at, name in d.buffers.items()}
                named = {name: resources[at] for name, at in kernel.bindings.items()}
                steps.append((kernel.pipeline, self.device.bind(kernel, **named), *d.grid, 1))
            self._lists[key] = steps
        return self._lists[key]

    def _grow(self, slots: int) -> None:
        self._slots = slots
        self._drop([name for name in self._buffers if name not in self._fixed])
        for name, words in buffer_words(slots, self.vocabulary).items():
            self._buffers[name] = self.device.buffer(4 * words)
        self._buffers["terms"] = self.device.buffer(4 * slots * WORDS)

    def _need(self, name: str, words: int) -> None:
        if name not in self._buffers or self._buffers[name].size < 4 * words:
            self._drop([name])
            self._buffers[name] = self.device.buffer(4 * words)

    def _drop(self, names: list[str]) -> None:
        self._generation += 1
        self._lists.clear()  # their bind groups hold the old buffers
        old = [self._buffers.pop(name) for name in names if name in self._buffers]
        if old:
            self.device.flush()
            self.device.release(old)
