"""embed.wgsl, and through it every unpacker: values equal llamay.quant's, of recorded blocks too."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llamay.quant import LAYOUTS, TensorType, dequantize
from llamay.tensor import twins
from llamay.tensor.webgpu import choices
from llamay.tensor.webgpu.formats import FORMATS, RECAST

VECTORS = sorted((Path(__file__).parents[1] / "data" / "quants").glob("*.npz"))
RECORDED = [(path, key.removesuffix("_raw")) for path in VECTORS for key in np.load(path) if key.endswith("_raw")]
LAUNCHES = ("own", "wide", "swapped", "lanes", "portable")
FEW = (TensorType.Q4_1, TensorType.Q3_K)  # the others in one: linears read them in more
ALIKE = (TensorType.Q1_0, TensorType.TQ1_0, TensorType.TQ2_0)  # squares of few sizes: equal terms round the same way each time
CASES = [
    pytest.param(type, launch, id=f"{type.name}-{launch}")
    for type in FORMATS
    for launch in (LAUNCHES if type in FEW else ("own", "lanes") if type in RECAST else ("own",))
]


def embed(lab, variant, weights, tokens, next, scale, partials=3, row0=0, stride=0, at=None, positions=None):
    """h, hw [T, stride] and sums [T, partials] for tokens of a table of which rows from row0 on are `weights`.

    With `positions` [position, width] each token is at its place `at`.
    """
    width = weights.values.shape[1]
    stride = stride or lab.up(width, 32)
    state = np.zeros(3 + 4 * len(tokens), np.uint32)
    state[3::4] = tokens
    if at is not None:
        state[4::4] = at
    dims = {
        **weights.dims, "row0": row0, "y_stride": stride // 4, "partials": partials, "width": width,
        "scale": scale, "rows_at": 3,
    }  # fmt: skip
    shape = (len(tokens), stride)
    write = {"h": lab.poisoned(*shape), "hw": lab.poisoned(*shape), "sums": lab.poisoned(len(tokens), partials)}
    chosen = choices.embed(weights.type, variant.launch, weights.tile, positions=positions is not None)
    read = {"w": weights, "state": state, "next": next.astype(np.float32)}
    if positions is not None:
        read["positions"] = positions.astype(np.float32)
    found = lab.run(variant, "embed", chosen, (1, len(tokens), 1), dims, read, write)
    return found["h"], found["hw"], found["sums"]


@pytest.mark.parametrize("launch", LAUNCHES)
def test_by_hand(lab, launch):
    variant = lab.variant(launch)
    values = np.array([[1, 2, 3], [4, 5, 6]], np.float16)
    weights = lab.load(variant, TensorType.F16, values.view(np.uint8))
    h, hw, sums = embed(lab, variant, weights, [1, 0, 1], np.array([1, 10, 100]), 0.5)
    assert h[:, :3].tolist() == [[2, 2.5, 3], [0.5, 1, 1.5], [2, 2.5, 3]]
    assert hw[:, :3].tolist() == [[2, 25, 300], [0.5, 10, 150], [2, 25, 300]]
    assert sums.tolist() == [[19.25, 0, 0], [3.5, 0, 0], [19.25, 0, 0]]
    assert lab.untouched(h[:, 3:]) and not hw[:, 3].any() and lab.untouched(hw[:, 4:])  # a row ends with its columns


@pytest.mark.parametrize("launch", ["own", "portable"])
def test_positions(lab, launch):
    """Each row adds the vector of its own position."""
    variant, random = lab.variant(launch), np.random.default_rng(4)
    weights = lab.load(variant, TensorType.F16, lab.blocks(TensorType.F16, 9, 70, random))
    positions, next = random.standard_normal((20, 70)).astype(np.float32), random.standard_normal(70).astype(np.float32)
    tokens, at = random.integers(0, 9, 7), random.integers(0, 20, 7)
    h, hw, _ = embed(lab, variant, weights, tokens, next, 0.5, at=at, positions=positions)
    expected = twins.embed(weights.values[tokens], 0.5, positions[at])
    lab.close("embed", h[:, :70], expected, np.abs(weights.values[tokens]) + np.abs(positions[at]))
    assert np.array_equal(hw[:, :70], h[:, :70] * next)


@pytest.mark.parametrize(("type", "launch"), CASES)
def test_types(lab, type, launch):
    variant = lab.variant(launch)

    @settings(max_examples=4)
    @given(
        rows=st.one_of(st.integers(1, 130), st.sampled_from([16, 32, 64])),
        blocks=st.sampled_from([1, 2, 3, 8, 9]),
        ragged=st.integers(0, 31),
        before=st.sampled_from([0, 1, 1000]),
        seed=st.integers(0, 2**32 - 1),
    )
    def check(rows, blocks, ragged, before, seed):
        """A stream of rows before + 0 .. before + rows - 1, asked for those and for others."""
        random = np.random.default_rng(seed)
        columns = blocks * max(32, LAYOUTS[type].elements)
        if type in (TensorType.F32, TensorType.F16, TensorType.BF16):
            columns -= ragged
        weights = lab.load(variant, type, lab.blocks(type, rows, columns, random))
        tokens = np.array([before, before + rows, before + rows - 1, before + int(random.integers(rows)), 0, before - 1])
        tokens = tokens[tokens >= 0]
        own = (tokens >= before) & (tokens < before + rows)
        next, scale = random.standard_normal(columns).astype(np.float32), np.float32(random.uniform(0.1, 40))
        h, hw, sums = embed(lab, variant, weights, tokens, next, float(scale), row0=before, stride=lab.up(columns, 32) + 32)
        expected = twins.embed(weights.values[tokens[own] - before].astype(np.float32), scale)
        assert np.array_equal(h[own, :columns], expected) or close_to(h[own, :columns], expected)
        lab.close("embed", hw[own, :columns], expected * next, np.abs(expected * next) * 4)
        squares = np.square(expected.astype(np.float64)).sum(-1)
        drift = 4 if type in ALIKE else 1
        lab.close("linear", sums[own, 0], squares, squares * drift)
        assert not sums[own, 1:].any()
        for array in (h, hw):
            end = columns if array is h else lab.up(columns, 4)
            assert lab.untouched(array[own, end:]) and lab.untouched(array[~own]) and not array[own, columns:end].any()
        assert lab.untouched(sums[~own])

    check()


def close_to(found, expected) -> bool:
    """Within one unit in the last place; an adapter may take what is below the normal numbers for zero."""
    return bool((np.abs(found - expected) <= np.maximum(np.spacing(np.abs(expected)), 2**-126)).all())


@pytest.mark.parametrize(("path", "made"), RECORDED, ids=[f"{path.stem}-{made}" for path, made in RECORDED])
def test_recorded_blocks(lab, path, made):
    """Blocks of random bytes and of the reference's quantiser: what the unpackers see is what llamay.quant reads."""
    type, variant = TensorType[path.stem], lab.variant("own")
    with np.load(path) as data:
        raw, recorded = data[f"{made}_raw"], data[f"{made}_f32"]
    values = dequantize(type, raw if raw.ndim == 2 else raw.reshape(recorded.size, -1))  # halves: one a row
    assert np.array_equal(values.ravel(), recorded.ravel(), equal_nan=True)
    whole = np.isfinite(values).all(-1)  # WGSL promises nothing of infinite scales
    assert whole.sum() >= 8
    weights = lab.load(variant, type, raw.reshape(len(values), -1)[whole])
    tokens = np.arange(whole.sum())
    h, _, _ = embed(lab, variant, weights, tokens, np.ones(values.shape[1]), 1.0)
    found = h[:, : values.shape[1]]
    exact = np.array_equal(found, values[whole])
    assert exact or (not variant.device.adapter.name.startswith("llvmpipe") and close_to(found, values[whole]))
