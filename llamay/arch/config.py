"""What an architecture's metadata come to: one frozen description of the network, checked against its tensors."""

from dataclasses import dataclass

from llamay.arch.table import Activation, Pairs


@dataclass(frozen=True, slots=True)
class Scaling:
    """How rotary frequencies are stretched beyond the context the model was first trained for."""

    kind: str  # "linear" or "yarn"
    factor: float
    original_context: int = 0  # yarn: positions of the first training
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    extrapolation: float = 1.0  # yarn: share of the unscaled frequencies in the mix
    attention: float = 1.0  # yarn: extra factor on cos and sin


@dataclass(frozen=True, slots=True)
class Rotary:
    """The rotary embedding of one layer."""

    base: float
    dimensions: int  # of each head, from its first
    scaling: Scaling | None = None


@dataclass(frozen=True, slots=True)
class Config:
    """Everything the forward program needs besides the weights.  Tuples have one entry a layer."""

    architecture: str
    layers: int
    hidden: int
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    head_dim: int  # of keys and of values
    feed_forward: tuple[int, ...]
    context: int  # positions the model was made for
    vocabulary: int  # rows of the embedding table
    eps: float
    rotary: tuple[Rotary, ...]
    windows: tuple[int, ...]  # positions a layer sees, itself included; 0: all
    pairs: Pairs
    activation: Activation
    head_norms: bool
    post_norms: bool
    tied: bool  # the output matrix is the embedding table
    attention_scale: float
    embedding_scale: float = 1.0
    attention_softcap: float = 0.0  # 0: off
    final_softcap: float = 0.0  # 0: off
    unread_keys: tuple[str, ...] = ()  # keys of this architecture in the file that change nothing here
