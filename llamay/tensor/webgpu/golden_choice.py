"""What choosing a token must give on a device: the kernels of sampling and of greedy choice against their twins."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from llamay.sample import Recent, Sampling, choose
from llamay.sample.route import route
from llamay.tensor.webgpu.command import Command
from llamay.tensor.webgpu.device import Guest, Kernel
from llamay.tensor.webgpu.plan import Plan
from llamay.tensor.webgpu.sampling import Sampler
from llamay.tensor.webgpu.state import ROWS_AT, SLOTS
from llamay.tensor.webgpu.trial import Check

SLOTS_TRIED = 4  # distinct settings that one trial samples with
DRAWS = 1 << 20  # logits of a trial, over all its draws
SPREAD = 3.0  # standard deviation of made-up logits
PAST = 40  # tokens that penalties have seen


def kernels_of(plan: Plan, samplings: tuple[Sampling, ...]) -> list[Kernel]:
    """The kernels that sample for these slots."""
    steps = route(samplings, plan.program.vocabulary)
    return list(dict.fromkeys(plan.device.kernel(step.kernel, **step.choices) for step in steps))


def distinct(samplings: tuple[Sampling, ...]) -> tuple[Sampling, ...]:
    """The settings among them that differ in more than their seed, at most SLOTS_TRIED."""
    found: dict[str, Sampling] = {}
    for sampling in samplings:
        found.setdefault(repr(replace(sampling, seed=0)), sampling)
    return tuple(found.values())[:SLOTS_TRIED]


def sampled(plan: Plan, samplings: tuple[Sampling, ...]) -> Check:
    """Tokens drawn from made-up logits under each of the settings, some for each: exact on both sides."""
    memory, vocabulary = plan.memory, plan.program.vocabulary
    most = min(memory.slots, plan.layout.rows, max(len(samplings), DRAWS // vocabulary), 4 * SLOTS_TRIED)
    samplings = (samplings * most)[:most]
    slots = len(samplings)
    random = np.random.default_rng(12)
    logits = (SPREAD * random.standard_normal((slots, vocabulary))).astype(np.float32)
    past = random.integers(0, vocabulary, PAST).astype(np.int32)
    positions = np.arange(PAST - 1, PAST - 1 + slots, dtype=np.int32)
    _place(plan, positions)
    device = Guest(plan.device)
    try:
        sampler = Sampler(device, vocabulary, memory.logits, memory.state)
        sampler.begin(samplings, (past,) * slots)
        sampler.place(positions + 1)
        device.write(memory.logits, logits)
        steps = sampler.steps(plan.row_dims(batch=True))
        encoder = device.handle.create_command_encoder()
        run = encoder.begin_compute_pass()
        for pipeline, group, x, y, z in steps:
            run.set_pipeline(pipeline)
            run.set_bind_group(0, group)
            run.dispatch_workgroups(x, y, z)
        run.end()
        device.submit(encoder)
        found = device.read(sampler.chosen, np.uint32, slots)
    finally:
        device.close()
    recents = [Recent(vocabulary, s.repeat_last_n, past, int(at) + 1) for s, at in zip(samplings, positions, strict=True)]
    expected = [
        choose(row, sampling, recent.counts if sampling.penalises else None, int(at))
        for row, sampling, recent, at in zip(logits, samplings, recents, positions, strict=True)
    ]
    return Check("sampled tokens", found, np.array(expected, np.float64), np.full(1, 0.5))


def greedy(plan: Plan, command: Command) -> Check:
    """The token `pick` takes from the tiles' best; it writes slots, so that it must come before `begin`."""
    memory, slots = plan.memory, min(plan.memory.slots, plan.layout.rows, SLOTS_TRIED)
    random = np.random.default_rng(13)
    values = random.standard_normal((slots, memory.head_tiles)).astype(np.float32)
    tokens = np.tile(np.arange(memory.head_tiles, dtype=np.uint32) * 3, (slots, 1))
    values[0] = 1.0  # on a tie the lowest token
    _place(plan, np.arange(slots, dtype=np.int32))
    plan.device.write(memory.best, np.stack([values.view(np.uint32), tokens], -1))
    plan.device.write(memory.state, plan.layout.fresh_slots())
    plan.device.dispatch([(command.kernel, command.group, (slots, 1, 1))])
    ring = plan.device.read(memory.state, np.uint32, SLOTS, 4 * plan.layout.ring_at)
    return Check("greedy tokens", ring[:slots], 3.0 * values.argmax(axis=1), np.full(1, 0.5))


def _place(plan: Plan, positions: NDArray[np.int32]) -> None:
    """One row of the batch for each slot, in their order."""
    words = np.zeros((len(positions), 4), np.uint32)
    words[:, 1], words[:, 2:] = positions, plan.layout.probe_at
    plan.device.write(plan.memory.state, words, 4 * ROWS_AT)
    plan.device.write(plan.memory.state, np.arange(SLOTS, dtype=np.uint32), 4 * plan.layout.outputs_at)
