"""Rotary frequencies against the formulas, pair by pair."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from llamay.arch import Rotary, Scaling, frequencies


def test_plain():
    found, magnitude = frequencies(Rotary(10000.0, 8))
    np.testing.assert_allclose(found, [1, 0.1, 0.01, 0.001])
    assert magnitude == 1 and found.dtype == np.float64


def test_linear():
    found, magnitude = frequencies(Rotary(10000.0, 8, Scaling("linear", 4.0)))
    np.testing.assert_allclose(found, np.array([1, 0.1, 0.01, 0.001]) / 4)
    assert magnitude == 1


def test_divisors():
    found, _ = frequencies(Rotary(10000.0, 8), np.array([1.0, 1.0, 2.0, 8.0]))
    np.testing.assert_allclose(found, [1, 0.1, 0.005, 0.000125])


def test_yarn():
    """Fast pairs as they were, slow pairs divided by the factor, a ramp between; cos and sin a little larger."""
    rotary = Rotary(10000.0, 64, Scaling("yarn", 4.0, 4096))
    found, magnitude = frequencies(rotary)
    plain, _ = frequencies(Rotary(10000.0, 64))
    low = math.floor(64 * math.log(4096 / (32 * 2 * math.pi)) / (2 * math.log(10000)))
    high = math.ceil(64 * math.log(4096 / (2 * math.pi)) / (2 * math.log(10000)))
    assert 0 < low < high < 32
    assert magnitude == pytest.approx(0.1 * math.log(4) + 1)
    for pair in range(32):
        kept = 1 - min(max((pair - low) / (high - low), 0), 1)
        assert found[pair] == pytest.approx(plain[pair] * kept + plain[pair] / 4 * (1 - kept))


def test_yarn_without_extrapolation_is_linear():
    found, magnitude = frequencies(Rotary(10000.0, 8, Scaling("yarn", 4.0, 4096, extrapolation=0.0, attention=1.5)))
    np.testing.assert_allclose(found, np.array([1, 0.1, 0.01, 0.001]) / 4)
    assert magnitude == 1.5


@given(
    st.floats(1.001, 1e30), st.integers(1, 2048), st.floats(1e-6, 1e6), st.integers(1, 2**31 - 1),
    st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 1), st.sampled_from(["yarn", "linear"]),
)  # fmt: skip
def test_whatever_describe_lets_through_is_finite(base, pairs, factor, original, fast, slow, extrapolation, kind):
    rotary = Rotary(base, 2 * pairs, Scaling(kind, factor, original, fast, slow, extrapolation))
    found, magnitude = frequencies(rotary)
    assert found.shape == (pairs,) and np.isfinite(found).all() and math.isfinite(magnitude)
