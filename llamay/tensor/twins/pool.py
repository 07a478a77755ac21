"""Twin of the pool kernel."""

import numpy as np
from numpy.typing import NDArray

from llamay.tensor.program import Pooling
from llamay.tensor.twins.linear import Real


def pool(h: Real, outputs: NDArray[np.int32], positions: NDArray[np.int32], pooling: Pooling) -> Real:
    """One vector [H] for each output row of h [T, H], which is the last of its sequence.

    mean: of all rows of the sequence, added one after the other.  first, last: that row.
    """
    vectors = np.empty((len(outputs), h.shape[1]), h.dtype)
    for at, row in enumerate(outputs.tolist()):
        first = row - int(positions[row])
        if pooling == "mean":
            vectors[at] = np.add.reduce(h[first : row + 1], axis=0) / h.dtype.type(row + 1 - first)
        else:
            vectors[at] = h[first if pooling == "first" else row]
    return vectors
