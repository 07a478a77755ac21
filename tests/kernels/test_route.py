"""route.wgsl: which experts a row gets and by how much: ties, numbers that are none, every way of weighing."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llamay.quant import TensorType
from llamay.tensor import twins
from llamay.tensor.program import Linear, Matrix, Norm, Route

NORM = Norm(np.ones(4, np.float32), 1e-6)
WAYS = [("softmax", True, False), ("softmax", False, True), ("sigmoid", True, False), ("sigmoid", False, False)]


def op_of(experts, used, gating="softmax", normalised=True, varying=False, scale=1.0) -> Route:
    matrix = Matrix("router", TensorType.F32, experts + varying, 4, lambda start, stop: np.empty(0, np.uint8))
    return Route(NORM, Linear((matrix,)), experts, used, gating, normalised, scale)


def route(lab, variant, scores, op, extra=0):
    """(chosen [T, used], weights [T, used + 1]); rows of scores are `extra` floats longer."""
    count, logits = scores.shape
    stride = lab.up(logits, 32) + extra
    rows = np.full((count, stride), np.nan, np.float32)
    rows[:, :logits] = scores
    choices = {
        **variant.attention, "experts": op.experts, "used": op.used, "gating": op.gating, "normalised": op.normalised,
        "varying": op.varying, "biased": op.bias is not None, "groups": op.groups, "groups_used": op.groups_used,
        "best": op.best,
    }  # fmt: skip
    found = lab.run(
        variant, "route", choices, (1, count, 1), {"x_stride": stride // 4, "scale": op.scale},
        {"scores": rows} | ({} if op.bias is None else {"bias": op.bias}),
        {"chosen": lab.poisoned(count, op.used, dtype=np.uint32), "weights": lab.poisoned(count, op.used + 1)},
    )  # fmt: skip
    return found["chosen"], found["weights"]


def test_by_hand(lab, variant):
    scores = np.log(np.array([[1, 4, 2, 1], [3, 1, 3, 3]])).astype(np.float32)
    chosen, weights = route(lab, variant, scores, op_of(4, 2, scale=10))
    assert chosen.tolist() == [[1, 2], [0, 2]]  # of equal ones the lower
    np.testing.assert_allclose(weights, [[20 / 3, 10 / 3, 1], [5, 5, 1]], rtol=1e-6)
    _, weights = route(lab, variant, scores, op_of(4, 2, normalised=False))
    np.testing.assert_allclose(weights, [[0.5, 0.25, 1], [0.3, 0.3, 1]], rtol=1e-6)


def test_the_shared_expert_has_a_sigmoid_of_its_own(lab, variant):
    scores = np.array([[0, 1, 2, np.log(3)]], np.float32)
    chosen, weights = route(lab, variant, scores, op_of(3, 1, varying=True, scale=4))
    assert chosen.tolist() == [[2]]
    np.testing.assert_allclose(weights, [[4, 0.75]], rtol=1e-6)


def test_sigmoids_that_all_vanish_leave_numbers(lab, variant):
    scores = np.full((1, 5), -1e4, np.float32)
    _, weights = route(lab, variant, scores, op_of(5, 2, "sigmoid"))
    assert np.isfinite(weights).all()


def test_order_of_what_is_hard_to_order(lab, variant):
    """Zeros of both signs are equal, infinities are numbers, and what is none comes last, the lower first."""
    nan, inf = np.nan, np.inf
    scores = np.array([[nan, -0.0, 0.0, -nan, -inf, inf, -1e-45, 1e-45]], np.float32)
    chosen, _ = route(lab, variant, scores, op_of(8, 8))
    assert chosen.tolist() in ([[5, 7, 1, 2, 6, 4, 0, 3]], [[5, 1, 2, 6, 7, 4, 0, 3]])  # a device may take the tiny for zero
    chosen, _ = route(lab, variant, np.full((2, 8), nan, np.float32), op_of(8, 3))
    assert chosen.tolist() == [[0, 1, 2]] * 2


@pytest.mark.parametrize(("gating", "normalised", "varying"), WAYS)
def test_twin(lab, variant, gating, normalised, varying):
    if variant.name == "lanes":
        return  # compiling is what this costs
    shapes = [(60, 4), (3, 3)] if variant.name == "own" else [(60, 4)]

    @settings(max_examples=8)
    @given(
        shape=st.sampled_from(shapes), count=st.integers(1, 5), spread=st.sampled_from([0.1, 3.0, 60.0]),
        ties=st.booleans(), extra=st.sampled_from([0, 4, 32]), seed=st.integers(0, 2**32 - 1),
    )  # fmt: skip
    @example(shape=shapes[0], count=1, spread=1.0, ties=True, extra=0, seed=0)
    def check(shape, count, spread, ties, extra, seed):
        op = op_of(*shape, gating, normalised, varying, scale=1.5)
        random = np.random.default_rng(seed)
        scores = (random.standard_normal((count, op.linear.rows)) * spread).astype(np.float32)
        if ties:
            scores = np.round(scores)
        chosen, weights = route(lab, variant, scores, op, extra)
        expected, shares = twins.route(scores.astype(np.float64), op)
        assert np.array_equal(chosen, expected)
        lab.close("route", weights, shares, np.abs(shares) * (1 + spread) + 1e-9)
        for row in range(count):  # alone: the same bits
            assert np.array_equal(route(lab, variant, scores[row : row + 1], op)[1][0], weights[row])

    check()


def test_a_bias_chooses_and_weighs_nothing(lab, variant):
    scores = np.log(np.array([[1, 3, 1 / 3, 1]], np.float32))  # sigmoids of 1/2, 3/4, 1/4 and 1/2
    op = replace(op_of(4, 2, "sigmoid", scale=2.5), bias=np.array([0, -1, 0.5, 0], np.float32))
    chosen, weights = route(lab, variant, scores, op)
    assert chosen.tolist() == [[2, 0]]
    np.testing.assert_allclose(weights, [[2.5 / 3, 5 / 3, 1]], rtol=1e-6)


def test_groups_by_hand(lab, variant):
    """By the best logit the second group is out, by the sum of its two best sigmoids it is the first."""
    scores = np.array([[3, -9, 2, 2, -9, 1]], np.float32)
    op = replace(op_of(6, 2), groups=3, groups_used=1)
    assert route(lab, variant, scores, op)[0].tolist() == [[0, 1]]
    op = replace(op_of(6, 2, "sigmoid"), groups=3, groups_used=1)
    assert route(lab, variant, scores, op)[0].tolist() == [[2, 3]]
    equal = np.zeros((1, 6), np.float32)
    assert route(lab, variant, equal, replace(op, groups_used=2))[0].tolist() == [[0, 1]]  # the lower group of equals


@pytest.mark.parametrize(("gating", "biased", "groups", "kept"), [("sigmoid", True, 8, 4), ("softmax", False, 5, 3)])
def test_twin_of_groups(lab, gating, biased, groups, kept):
    @settings(max_examples=8)
    @given(count=st.integers(1, 5), ties=st.booleans(), lost=st.booleans(), seed=st.integers(0, 2**32 - 1))
    @example(count=2, ties=True, lost=True, seed=0)
    def check(count, ties, lost, seed):
        random = np.random.default_rng(seed)
        op = replace(op_of(40, 6, gating, scale=2.5), groups=groups, groups_used=kept)
        if biased:
            op = replace(op, bias=np.round(random.standard_normal(40) * 4).astype(np.float32) / 8)
        scores = random.standard_normal((count, 40)).astype(np.float32) * 3
        if ties:
            scores = np.round(scores)
        if lost:
            scores[0, 3] = np.nan
        chosen, weights = route(lab, lab.variant("own"), scores, op)
        expected, shares = twins.route(scores.astype(np.float64), op)
        if not (ties and biased):  # sigmoids are rounded: sums that are equal in one precision need not be in another
            assert np.array_equal(chosen, expected)
            fine = np.isfinite(shares)
            lab.close("route", weights[fine], shares[fine], np.abs(shares[fine]) * 4 + 1e-9)
        for row in range(count):
            assert np.array_equal(route(lab, lab.variant("own"), scores[row : row + 1], op)[0][0], chosen[row])

    check()
