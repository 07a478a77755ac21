"""Twins of choosing a token."""

import numpy as np
from numpy.typing import NDArray

from llamay.tensor.twins.linear import Real


def pick(logits: Real) -> NDArray[np.int32]:
    """The largest logit's id in each row [outputs]; the lowest id among equals."""
    ids: NDArray[np.int32] = np.argmax(logits, axis=-1).astype(np.int32)
    return ids
