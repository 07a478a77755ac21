"""Details of a model's file as lists show them; neither weights nor vocabulary are read for them."""

import functools
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from llamay import gguf
from llamay.errors import LlamayError

TYPES = {  # general.file_type -> how people call it
    0: "F32", 1: "F16", 2: "Q4_0", 3: "Q4_1", 7: "Q8_0", 8: "Q5_0", 9: "Q5_1", 10: "Q2_K", 11: "Q3_K_S", 12: "Q3_K_M",
    13: "Q3_K_L", 14: "Q4_K_S", 15: "Q4_K_M", 16: "Q5_K_S", 17: "Q5_K_M", 18: "Q6_K", 19: "IQ2_XXS", 20: "IQ2_XS",
    21: "Q2_K_S", 22: "IQ3_XS", 23: "IQ3_XXS", 24: "IQ1_S", 25: "IQ4_NL", 26: "IQ3_S", 27: "IQ3_M", 28: "IQ2_S",
    29: "IQ2_M", 30: "IQ4_XS", 31: "IQ1_M", 32: "BF16", 36: "TQ1_0", 37: "TQ2_0", 38: "MXFP4", 39: "NVFP4", 40: "Q1_0",
    41: "Q2_0",
}  # fmt: skip
UNITS = ((10**9, "B", 1), (10**6, "M", 2), (10**3, "K", 0))


@dataclass(frozen=True, slots=True)
class Details:
    """What a file says of itself in a few words; empty for one that cannot be read."""

    architecture: str = ""
    parameters: int = 0
    quantization: str = ""


def of(path: Path) -> Details:
    """The details of a file, read once while it does not change."""
    try:
        found = path.stat()
    except OSError:
        return Details()  # removed a moment ago
    return _read(path, found.st_size, found.st_mtime_ns)


def counted(number: int) -> str:
    """A number of weights as people say it: 134.52M, 7.6B."""
    for size, unit, digits in UNITS:
        if number >= size:
            return f"{number // size}{unit}" if number % size == 0 else f"{number / size:.{digits}f}{unit}"
    return str(number)


@functools.lru_cache(maxsize=256)
def _read(path: Path, size: int, modified: int) -> Details:
    try:
        with gguf.open(path) as file:
            weights: Counter[str] = Counter()
            for tensor in file.tensors.values():
                weights[tensor.type.name] += tensor.rows * tensor.columns
            kind = TYPES.get(file.get("general.file_type", int, -1)) or max(weights, key=lambda key: weights[key], default="")
            return Details(file.get("general.architecture", str, ""), weights.total(), kind)
    except LlamayError:
        return Details()  # a damaged file is listed, and refused by its reasons when it is asked for
