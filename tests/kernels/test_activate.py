"""activate.wgsl: activation(gate) * up where gate and up are streams of their own, extremes included."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llamay.tensor import twins

ACTIVATIONS = ["silu", "gelu_tanh", "gelu_erf", "relu_squared", "clipped"]


def activate(lab, activation, gate, up, extra=0, portable=False):
    """y [T, width]; rows are `extra` floats longer."""
    count, width = gate.shape
    stride = lab.up(width, 4) + extra
    rows = [np.full((count, stride), np.nan, np.float32) for _ in range(2)]
    rows[0][:, :width], rows[1][:, :width] = gate, up
    found = lab.run(
        lab.variant("portable" if portable else "own"), "activate", {"S": 64, "activation": activation},
        (-(-width // 256), count, 1), {"width": width, "x_stride": stride // 4},
        {"gate": rows[0], "up": rows[1]}, {"y": lab.poisoned(count, stride)},
    )["y"]  # fmt: skip
    end = lab.up(width, 4)
    assert lab.untouched(found[:, end:]) and not found[:, width:end].any()
    return found[:, :width]


@pytest.mark.parametrize("portable", [False, True])
@pytest.mark.parametrize(
    ("activation", "one"), [("silu", 0.73105857863), ("gelu_tanh", 0.84119199060), ("gelu_erf", 0.84134474607)]
)
def test_by_hand(lab, activation, one, portable):
    gate, up = np.array([[1, 0, -1, 100, -100]]), np.array([[2, 7, 1, 3, 3]])
    found = activate(lab, activation, gate, up, portable=portable)
    np.testing.assert_allclose(found, [[2 * one, 0, one - 1, 300, 0]], rtol=1e-6, atol=1e-30)


def test_clipped_by_hand(lab):
    """gpt-oss: what is beside the gate counts one more."""
    found = activate(lab, "clipped", np.array([[1, 0, 8, -100, 2]]), np.array([[2, 7, 9, 3, -20]]))
    sigmoids = 1 / (1 + np.exp(-1.702 * np.array([1, 7, 2])))
    np.testing.assert_allclose(found[0, [0, 2, 4]], sigmoids * [3, 56, -12], rtol=1e-6)
    assert found[0, [1, 3]].tolist() == [0, 0]


def test_squares_by_hand(lab):
    found = activate(lab, "relu_squared", np.array([[3, 0.5, 0, -0.5, -3]]), np.array([[2, 4, 1, 1, 1]]))
    assert found.tolist() == [[18, 1, 0, 0, 0]]


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
        lab.close("activate", found, expected, np.abs(gate * up) + np.abs(expected) + 1e-6)

    check()


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_extremes_stay_numbers(lab, activation):
    """exp and tanh of any driver overflow somewhere: nothing finite may become infinite or not a number."""
    gate = np.array([[*np.linspace(-200, 200, 401), 1e4, -1e4, 1e18, -1e18, 3e38, -3e38, 1e-38, -1e-38]], np.float32)
    found = activate(lab, activation, gate, np.full_like(gate, 0.5))
    assert np.isfinite(found).all()
    assert (found[gate < -90] == 0).all()  # however far below: the twins say so, too
    with np.errstate(over="ignore", under="ignore"):
        assert (twins.activate(gate[gate < -90], np.float32(0.5), activation) == 0).all()
    if activation in ("relu_squared", "clipped"):
        return  # what lies above zero is not nearly gate * up
    big = (np.abs(gate) > 90) & (np.abs(gate) < 1e20)
    np.testing.assert_allclose(found[big], np.maximum(gate[big], 0) / 2, rtol=1e-6, atol=1e-12)
