"""The sampling kernels choose the tokens that NumPy chooses, from the same bits, and touch nothing else."""

import os
import re
from collections.abc import Sequence
from dataclasses import replace
from importlib.resources import files

import numpy as np
import pytest
import wgpu
from numpy.typing import NDArray

from llamay.sample import Recent, Sampling, choose
from llamay.sample.route import buffer_words, route
from llamay.sample.terms import Terms, dense_bias
from llamay.tensor.webgpu.device import STORAGE, Buffer, Device

SOAK = float(os.environ.get("LLAMAY_SOAK", "1"))
GUARD = 64  # poisoned words on either side of each buffer
POISON = 0xDEADBEEF
ZEROED = ("work", "level0", "level1", "level2")
ROWS_AT, OUTPUTS_AT = 8, 500  # of the state
DIMS = re.findall(r"^  (\w+): [uf]32,", files("llamay.wgsl").joinpath("include/dims.wgsl").read_text(), re.MULTILINE)
VOCABULARIES = (1, 31, 257, 262144)
BETWEEN = (2, 32, 4097, 49152, 151936)  # kernels are compiled for a vocabulary, which is what these tests cost: the soak's
OPEN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
HOWS = (
    Sampling(),
    Sampling(temperature=0.0),
    Sampling(top_k=256, top_p=0.9, typical_p=0.6, min_p=0.01),
    OPEN,
    replace(OPEN, min_p=0.1, temperature=1.7),
    replace(OPEN, top_p=0.9),
    replace(OPEN, typical_p=0.5),
    replace(OPEN, top_k=700, typical_p=0.8, top_p=0.7, min_p=0.02),
    replace(OPEN, top_k=1000, top_p=0.99, temperature=0.3),
)


class Slots:
    """Rows of logits, each with its sampling, on the device; the rows of the step lie in reversed order."""

    def __init__(
        self,
        device: Device,
        samplings: Sequence[Sampling],
        vocabulary: int,
        histories: Sequence[NDArray[np.int32]] | None = None,
        position: int = 0,
        masked: bool = False,
    ) -> None:
        self.device, self.samplings, self.vocabulary = device, samplings, vocabulary
        slots = len(samplings)
        past = histories or [np.zeros(0, np.int32)] * slots
        how = list(zip(samplings, past, strict=True))
        self.recents = [Recent(vocabulary, s.repeat_last_n, seen, position) for s, seen in how]
        rings = np.concatenate([[0], np.cumsum([len(r.ring) for r in self.recents])])
        records = [Terms.of(s, vocabulary).words(vocabulary, int(at)) for s, at in zip(samplings, rings, strict=False)]
        content = {
            "terms": np.concatenate(records),
            "bias": np.concatenate([dense_bias(s, vocabulary) for s in samplings]).view(np.uint32),
            "counts": np.concatenate([r.counts for r in self.recents]),
            "recent": np.concatenate([*(r.ring for r in self.recents), np.zeros(1, np.uint32)]),
        }
        words = buffer_words(slots, vocabulary) | {name: len(data) for name, data in content.items()}
        words |= {"logits": slots * vocabulary, "allowed": slots * -(-vocabulary // 32), "state": 1024, "dims": 64}
        self.plan = route(samplings, vocabulary, masked)
        used = {name for step in self.plan for name in step.buffers.values()}
        self.buffers = {name: self._guarded(name, words[name]) for name in used}
        for name in used & content.keys():
            device.write(self.buffers[name], content[name])
        dims = np.zeros(64, np.uint32)
        dims[DIMS.index("rows_at")], dims[DIMS.index("outputs_at")] = ROWS_AT, OUTPUTS_AT
        device.write(self.buffers["dims"], dims)
        self.commands = []
        for step in self.plan:
            kernel = device.kernel(step.kernel, **step.choices)
            bound = {name: self.buffers[step.buffers[at]] for name, at in kernel.bindings.items()}
            self.commands.append((kernel, device.bind(kernel, **bound), (*step.grid, 1)))

    def _guarded(self, name: str, words: int) -> Buffer:
        fill = np.full(words + 2 * GUARD, POISON, np.uint32)
        if name in ZEROED:
            fill[GUARD:-GUARD] = 0
        usage = STORAGE | (wgpu.BufferUsage.UNIFORM if name == "dims" else 0)
        whole = self.device.buffer(4 * len(fill), usage)
        self.device.write(whole, fill)
        return whole.window(4 * GUARD, 4 * words)

    def run(self, logits: NDArray[np.float32], positions: Sequence[int], allowed: NDArray | None = None) -> list[int]:
        """One step: the tokens chosen."""
        slots = len(self.samplings)
        state = np.full(1024, POISON, np.uint32)
        for slot, position in enumerate(positions):
            state[OUTPUTS_AT + slot] = slots - 1 - slot
            state[ROWS_AT + 4 * (slots - 1 - slot) + 1] = position
        self.device.write(self.buffers["state"], state)
        self.device.write(self.buffers["logits"], logits)
        if allowed is not None:
            self.device.write(self.buffers["allowed"], allowed)
        self.device.write(self.buffers["chosen"], np.full(slots, POISON, np.uint32))
        self.device.dispatch(self.commands)
        return self.words("chosen").tolist()

    def words(self, name: str) -> NDArray[np.uint32]:
        return self.device.read(self.buffers[name], np.uint32, self.buffers[name].size // 4)

    def close(self) -> None:
        """Checks every guard, and that what must be zero is."""
        for name, window in self.buffers.items():
            whole = self.device.read(Buffer(window.handle, 0, 0), np.uint32, window.size // 4 + 2 * GUARD)
            assert (whole[:GUARD] == POISON).all() and (whole[-GUARD:] == POISON).all(), f"beyond {name}"
            if name in ZEROED:
                ends = whole[GUARD:-GUARD].reshape(len(self.samplings), -1)
                assert not ends[:, : 8 if name == "work" else None].any(), f"{name} is left dirty"
        self.device.release([Buffer(b.handle, 0, b.size + 8 * GUARD) for b in self.buffers.values()])


def twins(slots: Slots, logits: NDArray, positions: Sequence[int], allowed: NDArray | None = None) -> list[int]:
    """What NumPy chooses."""
    masks = [None] * len(logits) if allowed is None else list(allowed)
    rows = zip(logits, slots.samplings, slots.recents, positions, masks, strict=True)
    return [choose(row, how, recent.counts, at, mask) for row, how, recent, at, mask in rows]


def shaped(rng: np.random.Generator, slots: int, vocabulary: int) -> NDArray[np.float32]:
    """Logits of many kinds: near and far apart, rounded so that they tie, all equal, extreme."""
    logits = rng.normal(size=(slots, vocabulary)) * rng.choice([0.05, 1.0, 3.0, 20.0], (slots, 1))
    logits = logits.astype(np.float32)
    kind = rng.integers(0, 8, slots)
    logits[kind == 1] = np.round(logits[kind == 1])
    logits[kind == 2] = np.round(logits[kind == 2] * 4) / 4 - 100
    logits[kind == 3] = rng.choice(
        np.array([0.0, -0.0, 1e-40, 2.5, -3e38, 1e30, -1e30], np.float32), logits[kind == 3].shape
    )
    logits[kind == 4] = -1.25
    logits[(kind == 5)[:, None] & (rng.random(logits.shape) < 0.97)] = -np.inf
    logits[(kind == 6)[:, None] & (rng.random(logits.shape) < 0.1)] = np.nan
    return logits


@pytest.mark.parametrize("vocabulary", [*VOCABULARIES, *(pytest.param(size, marks=pytest.mark.soak) for size in BETWEEN)])
def test_every_route_chooses_what_numpy_chooses(portable_gpu: Device, vocabulary: int) -> None:
    rng = np.random.default_rng(vocabulary)
    slots = Slots(portable_gpu, [replace(how, seed=i) for i, how in enumerate(HOWS)], vocabulary)
    for at in range(2 if vocabulary > 10_000 else 8):
        logits = shaped(rng, len(HOWS), vocabulary)
        positions = [at * 1000 + i for i in range(len(HOWS))]
        assert slots.run(logits, positions) == twins(slots, logits, positions)
    slots.close()


@pytest.mark.parametrize("how", HOWS, ids=str)
def test_a_route_of_its_own_chooses_likewise(portable_gpu: Device, how: Sampling) -> None:
    rng = np.random.default_rng(3)
    slots = Slots(portable_gpu, [how, replace(how, seed=2**40 + 5)], 5000)
    for at in range(4):
        logits = shaped(rng, 2, 5000)
        assert slots.run(logits, [at, 7]) == twins(slots, logits, [at, 7])
    slots.close()


def test_the_cheap_settings_take_few_dispatches() -> None:
    def kernels(*samplings: Sampling) -> list[str]:
        return [step.kernel.removeprefix("sample_") for step in route(samplings, 50_000)]

    filter_steps = ["histogram", "histogram", "histogram", "settle"]
    assert kernels(Sampling(), Sampling(temperature=0.0, repeat_penalty=1.1)) == ["top", "shortlist"]
    assert kernels(OPEN, replace(OPEN, min_p=0.1)) == ["keys", "masses", "draw"]
    assert kernels(replace(OPEN, top_p=0.9)) == ["keys", *filter_steps, "masses", "draw"]
    assert kernels(Sampling(), OPEN) == ["top", "shortlist", "keys", "masses", "draw"]
    assert len(kernels(replace(OPEN, top_k=1000, top_p=0.9, typical_p=0.9))) == 16


@pytest.mark.parametrize("base", [Sampling(top_k=50), replace(OPEN, top_p=0.95)], ids=["short", "whole"])
def test_penalties_bias_and_counts_over_many_steps(portable_gpu: Device, base: Sampling) -> None:
    rng = np.random.default_rng(8)
    vocabulary, start = 300, 37
    samplings = [
        replace(base, repeat_penalty=1.4, presence_penalty=0.3, repeat_last_n=4, seed=1),
        replace(base, frequency_penalty=0.8, repeat_last_n=-1, logit_bias=((5, 2.0), (7, -np.inf), (299, -0.7))),
        replace(base, presence_penalty=-1.0, frequency_penalty=0.25, repeat_penalty=0.8, repeat_last_n=64, seed=3),
        replace(base, temperature=0.0, repeat_penalty=1.1, repeat_last_n=1),
        replace(base, presence_penalty=2.0, repeat_last_n=0),
        base,
    ]
    histories = [rng.integers(0, vocabulary, 50).astype(np.int32)[: 10 * i] for i in range(len(samplings))]
    slots = Slots(portable_gpu, samplings, vocabulary, histories, position=start + 1)
    logits = (rng.normal(size=(len(samplings), vocabulary)) * 1.5).astype(np.float32)  # the same at every step
    seen = set()
    for step in range(90):
        positions = [start + step] * len(samplings)
        tokens = slots.run(logits, positions)
        assert tokens == twins(slots, logits, positions), step
        seen.add(tokens[3])
        for recent, token, how in zip(slots.recents, tokens, samplings, strict=True):
            if how.penalises:
                recent.push(token, start + step + 1)
    assert len(seen) > 1  # the penalty moves even the greedy slot
    assert (slots.words("counts").reshape(len(samplings), -1) == [r.counts for r in slots.recents]).all()
    rings = np.concatenate([r.ring for r in slots.recents])
    assert (slots.words("recent")[: len(rings)] == rings).all()
    slots.close()


@pytest.mark.parametrize("vocabulary", [31, 4097])
def test_a_mask(portable_gpu: Device, vocabulary: int) -> None:
    rng = np.random.default_rng(vocabulary)
    samplings = [Sampling(), OPEN, replace(OPEN, typical_p=0.4), Sampling(temperature=0.0, top_k=3)]
    slots = Slots(portable_gpu, samplings, vocabulary, masked=True)
    for rarity in (0, 1, 3):
        bits = rng.integers(0, 2**32, (rarity + 1, 4, -(-vocabulary // 32)), dtype=np.uint32)
        allowed = np.bitwise_and.reduce(bits)
        allowed[:, 0] |= 1  # at least one token
        logits = shaped(rng, 4, vocabulary)
        logits[:, 0] = 0.5
        tokens = slots.run(logits, [1, 2, 3, 4], allowed)
        assert tokens == twins(slots, logits, [1, 2, 3, 4], allowed)
        assert all(allowed[i, token // 32] >> (token % 32) & 1 for i, token in enumerate(tokens))
    slots.close()


def random_sampling(rng: np.random.Generator) -> Sampling:
    def one(*values):
        return values[rng.integers(len(values))]

    return Sampling(
        temperature=one(0.0, 1e-3, 0.3, 0.8, 1.0, 1.5, 30.0),
        top_k=one(0, 0, 1, 3, 40, 255, 256, 257, 900),
        top_p=one(1.0, 0.999, 0.9, 0.5, 0.0),
        min_p=one(0.0, 1e-6, 0.05, 0.6, 1.0),
        typical_p=one(1.0, 1.0, 0.97, 0.5, 0.0),
        repeat_penalty=one(1.0, 1.1, 0.7),
        presence_penalty=one(0.0, 0.4, -1e-3),
        frequency_penalty=one(0.0, 0.1, 3e5),
        repeat_last_n=one(0, 1, 20, -1),
        logit_bias=one((), ((0, 1.5),), ((1, -np.inf), (2, 1e29))),
        seed=int(rng.integers(2**63)),
    )


def compare_at_random(portable_gpu: Device, seed: int, rounds: int, vocabulary: int) -> int:
    """Rounds of 32 slots; how many different tokens came."""
    rng = np.random.default_rng(seed)
    tokens: set[int] = set()
    for _ in range(rounds):
        samplings = [random_sampling(rng) for _ in range(31)] + [Sampling(repeat_penalty=1.2, logit_bias=((3, 1.0),))]
        histories = [rng.integers(0, vocabulary, rng.integers(1, 60)).astype(np.int32) for _ in samplings]
        slots = Slots(portable_gpu, samplings, vocabulary, histories, position=1 << 20)
        for _ in range(3):
            logits = shaped(rng, 32, vocabulary)
            positions = rng.integers(0, 1 << 20, 32).tolist()
            got, want = slots.run(logits, positions), twins(slots, logits, positions)
            assert got == want, [(s, a, b) for s, a, b in zip(samplings, got, want, strict=True) if a != b][:3]
            for recent, token, at, how in zip(slots.recents, got, positions, samplings, strict=True):
                if how.penalises:
                    recent.push(token, at + 1)
            tokens |= set(got)
        slots.close()
    return len(tokens)


@pytest.mark.parametrize(("vocabulary", "rounds"), [(257, 5), (5000, 3)])
def test_random_settings(portable_gpu: Device, vocabulary: int, rounds: int) -> None:
    assert compare_at_random(portable_gpu, vocabulary, rounds, vocabulary) > 50


@pytest.mark.soak
@pytest.mark.parametrize(
    ("vocabulary", "rounds"), [(33, 100), (5000, 150), *([(49152, 12), (262144, 3)] if SOAK >= 0.1 else [])]
)
def test_random_settings_by_the_thousand(portable_gpu: Device, vocabulary: int, rounds: int) -> None:
    """LLAMAY_SOAK scales the rounds; a small share of them leaves the largest vocabularies out."""
    assert compare_at_random(portable_gpu, vocabulary + 1, max(1, round(rounds * SOAK)), vocabulary) > 10
