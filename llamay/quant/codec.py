"""What turns blocks of a tensor type into values, and values into blocks."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Floats = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Codec:
    """`read` fills float32 [blocks, elements] from uint8 [blocks, bytes]; `write` makes the blocks of such values."""

    read: Callable[[Bytes, Floats], None]
    write: Callable[[Floats], Bytes]
