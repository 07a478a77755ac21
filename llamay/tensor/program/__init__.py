"""The forward program: the short list of coarse operations a model is made of.

`model` builds one Program from a Config and its bound weights; an executor runs it.
Prefill and decode are the same program with other token counts.  Every matrix here
still holds its file's quantised bytes; every vector is float32.

Conventions: `H` hidden size, `hd` head size.  A linear is y = W x with W [rows, columns].
Two branches read h and are added to it: attention (Qkv, Attend, Residual) and feed_forward
(Gated or Ungated, Residual).  In place of both a layer may have a state space (Scan, Residual).  Each keeps what it left to itself, so both may be computed
before either is added, as a parallel block has it.
Rotary pairs are always neighbours (2i, 2i+1): `model` permutes the rows of q and k of
architectures whose pairs lie half a head apart (see `Matrix.order`), so no executor
knows two styles.
"""

from llamay.tensor.program.mixing import Attend, Latent, Lift, Qkv, Scan, ShortConv
from llamay.tensor.program.parts import (
    WHOLE,
    Activation,
    Branch,
    Bytes,
    Experts,
    Floats,
    Gating,
    HeadNorms,
    Linear,
    Matrix,
    Norm,
    NormKind,
    Pooling,
    Rope,
)
from llamay.tensor.program.rows import Embed, ExpertGated, ExpertResidual, Gated, Head, Pool, Residual, Route, Ungated
from llamay.tensor.program.whole import Layer, Operation, Program

__all__ = [
    "WHOLE",
    "Activation",
    "Attend",
    "Branch",
    "Bytes",
    "Embed",
    "ExpertGated",
    "ExpertResidual",
    "Experts",
    "Floats",
    "Gated",
    "Gating",
    "Head",
    "HeadNorms",
    "Latent",
    "Layer",
    "Lift",
    "Linear",
    "Matrix",
    "Norm",
    "NormKind",
    "Operation",
    "Pool",
    "Pooling",
    "Program",
    "Qkv",
    "Residual",
    "Rope",
    "Route",
    "Scan",
    "ShortConv",
    "Ungated",
]
