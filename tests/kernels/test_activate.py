"""activate.wgsl: activation(gate) * up where gate and up are streams of their own, extremes included."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llamay.tensor import twins

ACTIVATIONS = ["silu", "gelu_tanh"]


def activate(lab, activation, gate, up, extra=0, portable=False):
    """y [T, width]; rows are `extra` floats longer."""
    count, width = gate.shape
    stride = lab.up(width, 4) + extra
    rows = [np.full((count, stride), np.nan, np.float32) for _ in range(2)]
    rows[0][:, :width], rows[1][:, :width] = gate, up
    found = lab.run(
        lab.variant("portable" if portable else "own"), "activate", {"S": 64, "activation": activation},
        (-(-width // 64), count, 1), {"width": width, "x_stride": stride // 4},
        {"gate": rows[0], "up": rows[1]}, {"y": lab.poisoned(count, stride)},
    )["y"]  # fmt: skip
    assert lab.untouched(found[:, width:])
    return found[:, :width]


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize(("activation", "one"), [("silu", 0.73105857863), ("gelu_tanh", 0.84119199060)])
def test_by_hand(lab, activation, one, portable):
    gate, up = np.array([[1, 0, -1, 100, -100]]), np.array([[2, 7, 1, 3, 3]])
    found = activate(lab, activation, gate, up, portable=portable)
    np.testing.assert_allclose(found, [[2 * one, 0, one - 1, 300, 0]], rtol=1e-6, atol=1e-30)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_twin(lab, activation):
    @settings(max_examples=20)
    @given(
        count=st.integers(1, 5),
        width=st.one_of(st.integers(1, 200), st.sampled_from([64, 128, 1536])),
        size=st.sampled_from([0.01, 1.0, 10.0, 1e4]),
        extra=st.sampled_from([0, 4, 32]),
        seed=st.integers(0, 2**32 - 1),
    )
    @example(count=1, width=1, size=1.0, extra=0, seed=0)
    def check(count, width, size, extra, seed):
        random = np.random.default_rng(seed)
        gate = (random.standard_normal((count, width)) * size).astype(np.float32)
        up = random.standard_normal((count, width)).astype(np.float32)
        found = activate(lab, activation, gate, up, extra)
        with np.errstate(over="ignore"):
            expected = twins.activate(gate.astype(np.float64), up.astype(np.float64), activation)
        lab.close("activate", found, expected, np.abs(gate * up) + 1e-6)

    check()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_extremes_stay_numbers(lab, activation):
    """exp and tanh of any driver overflow somewhere: nothing finite may become infinite or not a number."""
    gate = np.array([[*np.linspace(-200, 200, 401), 1e4, -1e4, 1e18, -1e18, 3e38, -3e38, 1e-38, -1e-38]], np.float32)
    found = activate(lab, activation, gate, np.full_like(gate, 0.5))
    assert np.isfinite(found).all()
    big = (np.abs(gate) > 90) & (np.abs(gate) < 1e20)
    np.testing.assert_allclose(found[big], np.maximum(gate[big], 0) / 2, rtol=1e-6, atol=1e-12)
