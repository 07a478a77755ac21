"""The maths of every kernel in NumPy, one function each, under the kernel's name.

The functions compute in the type of their arrays: float64 as the twins that kernels are
checked against, float32 as the NumPy executor.  `T` tokens, `H` hidden size, `hd` head size.
"""

from llamay.tensor.twins.attention import SPLIT, Partial, attention, attention_combine
from llamay.tensor.twins.cache import halves, shrink
from llamay.tensor.twins.linear import activate, embed, head, linear, norm_add, residual, rms_norm, softcap
from llamay.tensor.twins.rope import rope, rope_store, rotation
from llamay.tensor.twins.sampling import pick

__all__ = [
    "SPLIT",
    "Partial",
    "activate",
    "attention",
    "attention_combine",
    "embed",
    "halves",
    "head",
    "linear",
    "norm_add",
    "pick",
    "residual",
    "rms_norm",
    "rope",
    "rope_store",
    "rotation",
    "shrink",
    "softcap",
]
