"""embed.wgsl with a vector for each kind of token, beside those of positions and without them."""

import numpy as np
import pytest

from llamay.quant import TensorType
from llamay.tensor import twins
from llamay.tensor.webgpu import choices

WIDTH = 70


@pytest.mark.parametrize("placed", [False, True])
def test_kinds(lab, placed):
    """A row's kind stands above the last position of its sequence."""
    variant, random = lab.variant("own"), np.random.default_rng(5)
    weights = lab.load(variant, TensorType.F16, lab.blocks(TensorType.F16, 9, WIDTH, random))
    kinds, positions = (random.standard_normal((count, WIDTH)).astype(np.float32) for count in (3, 20))
    tokens, at, of = (random.integers(0, most, 7) for most in (9, 20, 3))
    state = np.zeros((7, 4), np.uint32)
    state[:, 0], state[:, 1], state[:, 3] = tokens, at, 19 | of << 24
    stride = lab.up(WIDTH, 32)
    dims = {**weights.dims, "y_stride": stride // 4, "partials": 1, "width": WIDTH, "scale": 0.5, "rows_at": 1}
    words = np.concatenate([[9], state.reshape(-1)]).astype(np.uint32)
    read = {"w": weights, "state": words, "next": np.ones(WIDTH, np.float32), "kinds": kinds}
    if placed:
        read["positions"] = positions
    chosen = choices.embed(weights.type, variant.launch, weights.tile, positions=placed, kinds=True)
    write = {"h": lab.poisoned(7, stride), "hw": lab.poisoned(7, stride), "sums": lab.poisoned(7, 1)}
    found = lab.run(variant, "embed", chosen, (1, 7, 1), dims, read, write)
    added = [positions[at], kinds[of]] if placed else [kinds[of]]
    expected = twins.embed(weights.values[tokens], 0.5, *added)
    lab.close("embed", found["h"][:, :WIDTH], expected, np.abs(weights.values[tokens]) + sum(np.abs(one) for one in added) + 1)
    assert np.array_equal(found["hw"][:, :WIDTH], found["h"][:, :WIDTH])
