"""The twins of mixtures by hand-made numbers."""

import numpy as np
import pytest

from llamay.quant import TensorType
from llamay.tensor import twins
from llamay.tensor.program import Linear, Matrix, Norm, Route


def op_of(rows, experts, used, **more) -> Route:
    matrix = Matrix("router", TensorType.F32, rows, 4, lambda start, stop: np.empty(0, np.uint8))
    return Route(Norm(np.ones(4, np.float32), 0.0), Linear((matrix,)), experts, used, **more)


def test_route():
    logits = np.log([[1.0, 4.0, 2.0, 1.0], [3.0, 1.0, 3.0, 3.0]])
    chosen, weights = twins.route(logits, op_of(4, 4, 2))
    assert chosen.tolist() == [[1, 2], [0, 2]]
    np.testing.assert_allclose(weights, [[2 / 3, 1 / 3, 1], [0.5, 0.5, 1]])
    _, weights = twins.route(logits, op_of(4, 4, 2, normalised=False, scale=8.0))
    np.testing.assert_allclose(weights, [[4, 2, 1], [2.4, 2.4, 1]])


def test_route_by_sigmoids():
    logits = np.log([[1.0, 3.0, 3.0, 1 / 3]])  # sigmoids 1/2, 3/4, 3/4; of the shared expert 1/4
    chosen, weights = twins.route(logits, op_of(4, 3, 2, gating="sigmoid", normalised=False))
    assert chosen.tolist() == [[1, 2]]
    np.testing.assert_allclose(weights, [[0.75, 0.75, 0.25]])
    np.testing.assert_allclose(twins.route(logits, op_of(4, 3, 2, gating="sigmoid"))[1], [[0.5, 0.5, 0.25]])


def test_group_pairs():
    chosen = np.array([[2, 0], [2, 1], [0, 2]])
    assert twins.group_pairs(chosen, 3, 2) == [[1, 4], [3], [0, 2], [5]]
    assert twins.group_pairs(chosen, 4, 8) == [[1, 4], [3], [0, 2, 5]]


def test_expert_add():
    h, parts = np.array([[1.0, 2.0]]), np.array([[[1.0, 0.0], [0.0, 1.0], [100.0, 100.0]]])
    assert twins.expert_add(h, parts, np.array([[3.0, 5.0, 0.5]]), 2.0).tolist() == [[107, 112]]
    assert twins.expert_add(h, parts[:, :2], np.array([[3.0, 5.0, 0.5]])).tolist() == [[4, 7]]


def test_clipped_gates():
    gate, up = np.array([0.0, 1.0, 9.0, -1e3]), np.array([5.0, 2.0, 9.0, -9.0])
    with np.errstate(over="ignore"):  # 1 / (1 + inf) is the right 0
        found = twins.activate(gate, up, "clipped")
    np.testing.assert_allclose(found, [0, 3 / (1 + np.exp(-1.702)), 56 / (1 + np.exp(-11.914)), 0], atol=1e-30)


def test_a_sink_takes_its_share():
    """Two equal scores and a sink as large: a third each, of which the sink's leads to nothing."""
    values = np.array([[[3.0, 0.0], [0.0, 6.0]]])
    halves = [twins.Partial(np.zeros((1, 1, 1)), np.ones((1, 1, 1)), values[:, at : at + 1]) for at in range(2)]
    whole = twins.Partial(np.zeros((1, 1, 1)), np.full((1, 1, 1), 2.0), values.sum(1, keepdims=True))
    for partials in (halves, [whole]):
        np.testing.assert_allclose(twins.attention_combine(partials, np.zeros((1, 1, 1))), [[[1, 2]]])
    np.testing.assert_allclose(twins.attention_combine(halves, np.full((1, 1, 1), np.log(4.0))), [[[0.5, 1]]])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_types_stay(dtype):
    chosen, weights = twins.route(np.ones((2, 4), dtype), op_of(4, 4, 2))
    assert chosen.dtype == np.int64 and weights.dtype == dtype
    assert twins.expert_add(np.ones((2, 3), dtype), np.ones((2, 2, 3), dtype), weights).dtype == dtype
