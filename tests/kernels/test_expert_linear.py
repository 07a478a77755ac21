"""linear.wgsl over pairs of row and expert: the bits that each expert's matrix alone gives, from streams of any cut."""

import os

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llamay.quant import LAYOUTS, TensorType
from llamay.tensor import twins
from llamay.tensor.webgpu import choices
from llamay.tensor.webgpu.command import groups
from llamay.tensor.webgpu.formats import FORMATS, steps

SOAK = float(os.environ.get("LLAMAY_SOAK", "1"))
FEW = (TensorType.Q4_K, TensorType.MXFP4)
WAYS = [("own", 1), ("own", 4), ("portable", 1), ("portable", 2)]
SEED = st.integers(0, 2**32 - 1)


class Stack:
    """Several experts' matrices, whole tiles of each one below the other, on a variant's device."""

    def __init__(self, lab, variant, type, experts, rows, columns, random, biased=False) -> None:
        self.lab, self.variant, self.rows = lab, variant, rows
        height = variant.tile.height
        self.tiles = -(-rows // height)
        self.raw = [lab.blocks(type, rows, columns, random) for _ in range(experts)]
        self.biases = [random.standard_normal(rows).astype(np.float32) for _ in range(experts)] if biased else None
        padding = np.zeros((self.tiles * height - rows, self.raw[0].shape[1]), np.uint8)
        raw = np.concatenate([part for own in self.raw for part in (own, padding)])
        bias = None
        if self.biases is not None:
            bias = np.concatenate([np.pad(own, (0, len(padding))) for own in self.biases])
        self.type, self.columns, self._given = type, columns, (raw, bias)

    def load(self):
        """`run` gives the memory back, so each needs its own."""
        return self.lab.load(self.variant, self.type, *self._given)

    def alone(self, expert):
        """The weights of one expert by themselves."""
        bias = None if self.biases is None else self.biases[expert]
        return self.lab.load(self.variant, self.type, self.raw[expert], bias)

    def run(self, x, chosen, tokens, spread, expert0=0, experts=None, epilogue="plain", **more):
        """y [pairs, rows] by the epilogue of x [pairs / spread, columns]; what is not there is poison."""
        lab, variant, pairs = self.lab, self.variant, chosen.size
        experts = len(self.raw) if experts is None else experts
        wide, stride = lab.up(self.rows, 32), lab.up(self.columns, 32)
        listed = [[*g, *[-1] * (tokens - len(g))] for g in twins.group_pairs(chosen, chosen.max() + 1, tokens)]
        listed += [[-1] * tokens]  # a group that nobody needs
        read = {"w": self.load(), "x": lab.inputs(x, len(x), stride), "chosen": chosen.astype(np.uint32)}
        if tokens > 1:
            read["order"] = np.array(listed, np.int32)
        chosen_ways = choices.linear(
            self.type, variant.launch, variant.tile, tokens, epilogue, bias=self.biases is not None, normed=False, experts=True, **more
        )
        dims = {
            "steps": steps(variant.launch.format(self.type), self.columns, variant.tile), "rows": self.rows, "units": stride // 32,
            "x_stride": stride // 4, "y_stride": wide // 4, "expert0": expert0, "experts": experts, "tiles": self.tiles,
            "spread": spread,
        }  # fmt: skip
        depth = len(listed) if tokens > 1 else pairs
        found = lab.run(
            variant, "linear", chosen_ways, (self.tiles, depth, 1), dims, read, {"y": lab.poisoned(pairs, wide)}
        )["y"]  # fmt: skip
        written = lab.up(self.rows, variant.tile.rows)
        assert lab.untouched(found[:, written:])
        return found[:, : self.rows]


def compare(lab, type, ways, rows, blocks, experts, used, count, spread, biased, seed) -> None:
    """Pairs in all `ways`: the bits of a linear of the expert alone, and those near the twin."""
    columns = blocks * max(32, LAYOUTS[type].elements)
    for launch, tokens in ways:
        random = np.random.default_rng(seed)
        variant = lab.variant(launch)
        stack = Stack(lab, variant, type, experts, rows, columns, random, biased)
        chosen = np.stack([random.permutation(experts)[:used] for _ in range(count)])
        x = random.standard_normal((count if spread else count * used, columns)).astype(np.float32)
        found = stack.run(x, chosen, tokens, used if spread else 1)
        flat = chosen.reshape(-1)
        inputs = np.repeat(x, used, axis=0) if spread else x
        for expert in np.unique(flat):
            weights, own = stack.alone(expert), flat == expert
            some = inputs[own]
            wide = lab.up(rows, 32)
            y = lab.linear(
                variant, weights, some, 1, "plain", {"y_stride": wide // 4}, {}, {"y": lab.poisoned(len(some), wide)}
            )["y"][:, :rows]  # fmt: skip
            assert np.array_equal(found[own], y), (launch, tokens, expert)
            expected = twins.linear(some.astype(np.float64), weights.values, weights.bias)
            size = np.abs(some).sum(-1, keepdims=True) * np.abs(weights.values).max(-1)
            lab.close("linear", y, expected, size + (0 if weights.bias is None else np.abs(weights.bias)))


@pytest.mark.parametrize("type", FEW, ids=lambda type: type.name)
def test_types(lab, type):
    @settings(max_examples=3)
    @given(
        rows=st.one_of(st.integers(1, 90), st.sampled_from([32, 64])), blocks=st.integers(1, 3), experts=st.integers(1, 6),
        count=st.integers(1, 9), spread=st.booleans(), seed=SEED,
    )  # fmt: skip
    @example(rows=33, blocks=2, experts=3, count=7, spread=True, seed=1)
    def check(rows, blocks, experts, count, spread, seed):
        used = min(experts, 2)
        compare(lab, type, WAYS[:2], rows, blocks, experts, used, count, spread, type is TensorType.MXFP4, seed)

    check()


@pytest.mark.parametrize(("launch", "tokens"), WAYS[2:])
def test_other_launches(lab, launch, tokens):
    compare(lab, TensorType.Q8_0, [(launch, tokens)], 45, 2, 5, 3, 6, True, True, 3)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("type", FORMATS, ids=lambda type: type.name)
def test_every_type(lab, type):
    for launch in ("own", "wide", "swapped", "lanes", "portable"):
        for tokens in (1, 2, 4, 8)[: max(2, round(4 * min(SOAK, 1)))]:
            compare(lab, type, [(launch, tokens)], 70, 2, 7, 3, 12, True, tokens > 2, tokens)


@pytest.mark.parametrize("tokens", [1, 4])
def test_a_stream_does_its_own_experts(lab, tokens):
    """Pairs of experts that lie in another stream are left alone."""
    variant, random = lab.variant("own"), np.random.default_rng(4)
    stack = Stack(lab, variant, TensorType.F16, 2, 40, 64, random)
    chosen = np.array([[1, 3], [4, 2], [2, 3]])
    x = random.standard_normal((3, 64)).astype(np.float32)
    found = stack.run(x, chosen, tokens, 2, expert0=2)
    mine = np.isin(chosen.reshape(-1), (2, 3))
    assert np.isfinite(found[mine]).all() and lab.untouched(found[~mine])
    everything = stack.run(x, np.where(mine.reshape(3, 2), chosen - 2, 9), tokens, 2)
    assert np.array_equal(everything[mine], found[mine])


@pytest.mark.parametrize("tokens", [1, 4])
def test_experts_without_a_gate(lab, tokens):
    """Activated where they would be written plain, those of a group that holds fewer pairs too."""
    random = np.random.default_rng(3)
    stack = Stack(lab, lab.variant("own"), TensorType.Q8_0, 5, 40, 64, random, False)
    chosen = np.stack([random.permutation(5)[:2] for _ in range(7)])
    x = random.standard_normal((7, 64)).astype(np.float32)
    plain = stack.run(x, chosen, tokens, 2)
    found = stack.run(x, chosen, tokens, 2, epilogue="activated", activation="relu_squared")
    assert np.array_equal(found, np.square(np.maximum(plain, 0)))


def test_room_for_groups():
    """As many workgroups as any choice may need."""
    assert groups(2 * 7, 4, 4) >= len(twins.group_pairs(np.array([[0, 1]] * 4 + [[2, 3]] * 3), 4, 4))
