"""pool.wgsl: one vector for each sequence, its rows' mean, its first or its last, whatever lies beside it."""

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from llamay.tensor import twins

S = 8


WEIGHT = np.linspace(0.5, 2.0, 128).astype(np.float32)  # of a norm


def pool(lab, variant, h, lengths, pooling, outputs=None, extra=0, normed=False):
    """The vectors [sequences, width] of sequences that lie one after the other, in the order of `outputs`."""
    width, ends = h.shape[1], np.cumsum(lengths)
    order = np.arange(len(lengths)) if outputs is None else outputs
    positions = np.concatenate([np.arange(length) for length in lengths])
    rows = np.full((len(h), width + extra), np.nan, np.float32)
    rows[:, :width] = h
    state = np.zeros((len(h), 4), np.uint32)
    state[:, 1] = positions
    words = np.concatenate([[9, 9], state.reshape(-1), (ends - 1)[order]]).astype(np.uint32)
    dims = {"x_stride": width + extra, "y_stride": width, "width": width, "rows_at": 2, "outputs_at": 2 + 4 * len(h)}
    groups = (-(-width // S), len(order), 1)
    read = {"h": rows}
    if normed:  # as who wrote h leaves it
        parts = np.zeros((len(h), 3), np.float32)
        parts[:, 0] = np.square(h[:, : width // 2]).sum(axis=1)
        parts[:, 2] = np.square(h[:, width // 2 :]).sum(axis=1)
        rows[:, :width] *= WEIGHT[:width]
        read, dims = {"x": rows, "sums": parts}, {**dims, "partials": 3, "eps": 1e-5}
    found = lab.run(
        variant, "pool", {"S": S, "pooling": pooling, "normed": normed}, groups, dims, {"state": words, **read},
        {"logits": lab.poisoned(len(order), width)},
    )  # fmt: skip
    return found["logits"]


@pytest.mark.parametrize(("pooling", "expected"), [("mean", [[3.0, 30], [5, 50]]), ("first", [[1.0, 10], [5, 50]]), ("last", [[5.0, 50], [5, 50]])])
def test_by_hand(lab, variant, pooling, expected):
    h = np.array([[1, 10], [3, 30], [5, 50], [5, 50]], np.float32)
    np.testing.assert_array_equal(pool(lab, variant, h, [3, 1], pooling), expected)


@given(
    lengths=st.lists(st.integers(1, 40), min_size=1, max_size=5),
    width=st.integers(1, 70),
    pooling=st.sampled_from(["mean", "first", "last"]),
    extra=st.sampled_from([0, 3, 32]),
    normed=st.booleans(),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=12)
@example(lengths=[300, 1], width=9, pooling="mean", extra=1, normed=False, seed=0)
@example(lengths=[70, 1, 3], width=64, pooling="mean", extra=32, normed=True, seed=0)
def test_twin(lab, variant, lengths, width, pooling, extra, normed, seed):
    random = np.random.default_rng(seed)
    if normed:  # rows of whole vec4s
        width, extra = lab.up(width, 4), lab.up(extra, 4)
    h = random.standard_normal((sum(lengths), width)).astype(np.float32)
    order = random.permutation(len(lengths))
    found = pool(lab, variant, h, lengths, pooling, order, extra, normed)
    positions = np.concatenate([np.arange(length) for length in lengths]).astype(np.int32)
    outputs = (np.cumsum(lengths) - 1).astype(np.int32)[order]
    rows = h.astype(np.float64)
    expected = twins.pool(twins.rms_norm(rows, WEIGHT[:width], 1e-5) if normed else rows, outputs, positions, pooling)
    lab.close("pool", found, expected, np.full(expected.shape, 4.0))
    ends = np.cumsum(lengths)
    for at, one in enumerate(order):  # alone: the same bits
        alone = pool(lab, variant, h[ends[one] - lengths[one] : ends[one]], [lengths[one]], pooling, normed=normed)
        assert np.array_equal(alone[0], found[at])
