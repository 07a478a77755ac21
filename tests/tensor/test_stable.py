"""Products whose rows do not depend on their number, also with a library whose kernels disagree."""

import numpy as np
import pytest

from llamay.tensor import stable
from llamay.tensor.stable import Stable, choose

SHAPES = {(288, 64), (64, 256), (256, 16), (320, 64)}


def rows_agree(product, columns: int, width: int) -> None:
    random = np.random.default_rng(5)
    x = random.standard_normal((2, 71, columns)).astype(np.float32)
    weight = random.standard_normal((2, columns, width)).astype(np.float32)
    whole = product(x, weight)
    assert whole.shape == (2, 71, width)
    np.testing.assert_allclose(whole, x.astype(np.float64) @ weight, rtol=0, atol=1e-3)
    for start, stop in ((0, 1), (70, 71), (3, 10), (13, 50), (0, 32)):
        assert np.array_equal(product(x[:, start:stop], weight), whole[:, start:stop]), (start, stop)
    turned = np.ascontiguousarray(weight.transpose(0, 2, 1)).transpose(0, 2, 1)  # same values, other strides
    assert np.array_equal(product(x, turned), whole)


@pytest.mark.parametrize("shape", sorted(SHAPES))
def test_any_number_of_rows(shape):
    rows_agree(choose(SHAPES, np.float32).product, *shape)


def test_choice_is_reproducible():
    first, second = choose(SHAPES, np.float32), choose(SHAPES, np.float32)
    assert first == second and first.groups
    assert choose({(288, 64)}, np.float64).fingerprint != first.fingerprint


def last_bit(result):
    return np.nextafter(result, np.float32(np.inf), dtype=result.dtype)


@pytest.mark.parametrize(
    ("spoilt", "expected"),
    [
        (lambda result, rows: last_bit(result) if rows == 2 else result, None),  # one size with other bits
        (lambda result, rows: last_bit(result) if rows >= 16 else result, None),  # a large-matrix kernel
        (lambda result, rows: result * np.float32(1 + rows / 8), (1,)),  # no two sizes agree
    ],
)
def test_disagreeing_kernels_are_left_out(spoilt, expected, monkeypatch):
    """A library whose bits depend on the number of rows: the sizes kept still agree with each other."""
    real = np.matmul

    def matmul(x, weight):
        return spoilt(real(x, weight), x.shape[-2])

    monkeypatch.setattr(stable.np, "matmul", matmul)
    chosen = choose(SHAPES, np.float32)
    if expected:
        assert chosen.groups == expected
        return
    assert chosen.groups and len({spoilt(np.float32(1), size) for size in chosen.groups}) == 1
    rows_agree(chosen.product, 288, 64)


def test_kernels_that_differ_by_row_are_left_out(monkeypatch):
    real = np.matmul

    def matmul(x, weight):
        result = real(x, weight)
        if x.shape[-2] > 4:
            result[..., 4:, :] = last_bit(result[..., 4:, :])
        return result

    monkeypatch.setattr(stable.np, "matmul", matmul)
    assert max(choose(SHAPES, np.float32).groups) <= 4


def test_a_lone_group_pads():
    rows_agree(Stable((8,), "").product, 64, 256)
