"""The table of architectures: each row says in data how one family differs from the plain llama block."""

from dataclasses import dataclass
from typing import Literal

Pairs = Literal["neighbours", "halves"]
Activation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, slots=True)
class Architecture:
    """One row.  The defaults are llama's block: pre-norms, neighbouring rotary pairs, SwiGLU."""

    names: tuple[str, ...]  # what `general.architecture` says, and so the prefix of the keys
    pairs: Pairs = "neighbours"  # which two dimensions of a head turn together
    activation: Activation = "silu"
    head_norms: bool = False  # an RMS norm of each head of q and k before rope
    post_norms: bool = False  # an RMS norm of each branch before it is added
    scaled_embedding: bool = False  # embeddings times sqrt(hidden)
    softcaps: bool = False  # attention and final logits may be capped
    sliding: tuple[bool, ...] = ()  # which layers look through the window, repeated over the layers
    window: int = 0  # window where the file gives none; 0: full attention then
    sliding_base: float | None = None  # rope base of sliding layers where the file gives none
    wide_layers: int = 0  # with this many layers the softmax scale is (hidden / heads)^-0.5


ARCHITECTURES: tuple[Architecture, ...] = (
    Architecture(names=("llama", "mistral", "azmx")),
    Architecture(names=("qwen2",), pairs="halves"),
    Architecture(names=("qwen3",), pairs="halves", head_norms=True),
    Architecture(names=("gemma",), pairs="halves", activation="gelu_tanh", scaled_embedding=True),
    Architecture(
        names=("gemma2",),
        pairs="halves",
        activation="gelu_tanh",
        scaled_embedding=True,
        post_norms=True,
        softcaps=True,
        sliding=(True, False),
        window=4096,
        wide_layers=46,
    ),
    Architecture(
        names=("gemma3",),
        pairs="halves",
        activation="gelu_tanh",
        scaled_embedding=True,
        post_norms=True,
        head_norms=True,
        sliding=(True, True, True, True, True, False),
        sliding_base=10000.0,
        wide_layers=62,
    ),
)

BY_NAME: dict[str, Architecture] = {name: row for row in ARCHITECTURES for name in row.names}
