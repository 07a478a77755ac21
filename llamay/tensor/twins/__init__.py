"""The maths of every kernel in NumPy, one function each, under the kernel's name.

The functions compute in the type of their arrays: float64 as the twins that kernels are
checked against, float32 as the NumPy executor.  `T` tokens, `H` hidden size, `hd` head size.
"""

from llamay.tensor.twins.attention import SPLIT, Partial, attention, attention_combine
from llamay.tensor.twins.cache import halves, shrink
from llamay.tensor.twins.experts import expert_add, group_pairs, route, standing, weighed
from llamay.tensor.twins.latent import latent_store
from llamay.tensor.twins.linear import (
    activate,
    activated,
    embed,
    head,
    layer_norm,
    linear,
    norm,
    norm_add,
    part_norm,
    raised,
    residual,
    rms_norm,
    silu,
    softcap,
    sum_norm,
)
from llamay.tensor.twins.pool import pool
from llamay.tensor.twins.rope import rope, rope_store, rotation
from llamay.tensor.twins.sampling import pick
from llamay.tensor.twins.scan import advance, convolve, scan, short_convolve, softplus

__all__ = [
    "SPLIT",
    "Partial",
    "activate",
    "activated",
    "advance",
    "attention",
    "attention_combine",
    "convolve",
    "embed",
    "expert_add",
    "group_pairs",
    "halves",
    "head",
    "latent_store",
    "layer_norm",
    "linear",
    "norm",
    "norm_add",
    "part_norm",
    "pick",
    "pool",
    "raised",
    "residual",
    "rms_norm",
    "rope",
    "rope_store",
    "rotation",
    "route",
    "scan",
    "short_convolve",
    "shrink",
    "silu",
    "softcap",
    "softplus",
    "standing",
    "sum_norm",
    "weighed",
]
