"""ALiBi's slopes, for numbers of heads that are a power of two and others."""

import numpy as np
import pytest

from llamay.arch import slopes


def test_by_hand():
    assert slopes(4, 8.0).tolist() == [2**-2, 2**-4, 2**-6, 2**-8]
    assert slopes(1, 8.0).tolist() == [2**-8]
    assert slopes(2, 4.0).tolist() == [2**-2, 2**-4]
    assert slopes(3, 8.0).tolist() == [2**-4, 2**-8, 2**-2]  # the third is the first of four heads


@pytest.mark.parametrize("heads", [6, 12, 20, 71, 112])
def test_more_than_a_power_of_two_take_every_other_slope_of_twice_as_many(heads):
    whole = 1 << (heads.bit_length() - 1)
    found = slopes(heads, 8.0)
    assert found.shape == (heads,) and found.dtype == np.float32
    assert np.array_equal(found[:whole], slopes(whole, 8.0))
    assert np.array_equal(found[whole:], slopes(2 * whole, 8.0)[::2][: heads - whole])
