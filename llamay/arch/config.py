"""What an architecture's metadata come to: one frozen description of the network, checked against its tensors."""

from dataclasses import dataclass
from typing import Literal

from llamay.arch.table import Norms, Pairs
from llamay.tensor.program import WHOLE, Activation, Gating


@dataclass(frozen=True, slots=True)
class Scaling:
    """How rotary frequencies are stretched beyond the context the model was first trained for."""

    kind: str  # "linear", "yarn" or "longrope"
    factor: float
    original_context: int = 0  # yarn, longrope: positions of the first training
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    extrapolation: float = 1.0  # yarn: share of the unscaled frequencies in the mix
    attention: float = 1.0  # yarn, longrope: extra factor on cos and sin
    whole: bool = True  # yarn: the ramp begins and ends at whole pairs


@dataclass(frozen=True, slots=True)
class Rotary:
    """The rotary embedding of one layer."""

    base: float
    dimensions: int  # of each head, from its first
    scaling: Scaling | None = None


@dataclass(frozen=True, slots=True)
class Mixture:
    """The experts that stand in each layer where others have one feed-forward."""

    count: int
    used: int  # of them by each token
    width: int  # of each
    shared_width: int  # of the one that every token uses beside them; 0: there is none
    gating: Gating
    normalised: bool  # the weights of the chosen sum to 1
    scale: float  # of those weights
    dense: int = 0  # first layers that have one feed-forward like others
    groups: int = 0  # of as many neighbouring experts each, of which a token uses some; 0: none
    groups_used: int = 0


@dataclass(frozen=True, slots=True)
class Latents:
    """The sizes of multi-head latent attention: what pages keep, and what a head's queries, keys and values are made of."""

    rank: int  # values of the latent of keys and values
    asked: int  # of the latent of queries; 0: they are made of h
    own: int  # of a head's query and key without those that turn
    turned: int  # of a head's query, and of the one key of all heads
    value: int  # of a head's value

    @property
    def row(self) -> int:
        """Values a page keeps of a token: the latent in whole units, which linears read."""
        return self.turned + -(-self.rank // WHOLE) * WHOLE


@dataclass(frozen=True, slots=True)
class StateSpace:
    """The sizes of a selective state space, which stands in place of attention in layers without heads of keys."""

    inner: int  # channels
    states: int  # of each channel
    kernel: int  # positions that the convolution sees, the own one included
    heads: int  # of neighbouring channels with steps of their own
    groups: int  # of neighbouring heads that share B and C
    rank: int  # values that steps are made of; 0: they are given
    normed: bool = False  # what steps are made of, B and C each go through a norm without weights

    @property
    def convolved(self) -> int:
        """Channels that are convolved: where steps are given, B and C are among them."""
        return self.inner + (0 if self.rank else 2 * self.shared)

    @property
    def shared(self) -> int:
        """Values of B, and of C."""
        return self.groups * self.states

    @property
    def kept(self) -> int:
        """Values a page keeps of a token beside B: what is convolved, of that the channels, the steps."""
        return self.convolved + self.inner + self.heads

    @property
    def entered(self) -> int:
        """Rows of the first matrix."""
        return self.inner + self.convolved + (0 if self.rank else self.heads)


@dataclass(frozen=True, slots=True)
class Config:
    """Everything the forward program needs besides the weights.  Tuples have one entry a layer."""

    architecture: str
    layers: int
    hidden: int
    heads: tuple[int, ...]
    kv_heads: tuple[int, ...]
    head_dim: int  # of keys and of values; of latents a page's row, which is both
    feed_forward: tuple[int, ...]
    context: int  # positions the model was made for
    vocabulary: int  # rows of the embedding table
    eps: float
    rotary: tuple[Rotary | None, ...]  # None: the layer knows no positions but their order
    windows: tuple[int, ...]  # positions a layer sees, itself included; 0: all
    pairs: Pairs
    activation: Activation
    head_norms: bool
    whole_norms: bool
    pre_norms: bool
    post_norms: bool
    fused_gate: bool  # gate may lie above up in one tensor
    ffn_norm: str  # the tensor that norms what the feed-forward reads
    sinks: bool  # each head has a logit that leads to no value
    tied: bool  # the output matrix is the embedding table
    attention_scale: float
    norms: Norms = "rms"
    late_norms: bool = False
    own_head_norms: bool = False
    post_norm_qk: bool = False
    parallel: bool = False
    gated: bool = True
    learned_positions: bool = False
    embedding_norm: bool = False
    alibi: float = 0.0  # largest slope's exponent; 0: off
    embedding_scale: float = 1.0
    residual_scale: float = 1.0  # of each branch as it is added
    logit_scale: float = 1.0
    attention_softcap: float = 0.0  # 0: off
    final_softcap: float = 0.0  # 0: off
    both_ways: bool = False
    after_norms: bool = False
    kinds: bool = False
    pooling: Literal["", "mean", "first", "last"] = ""  # how rows become the vector of a text; empty: it generates text
    ranks: bool = False  # a head makes a score of that vector
    labels: tuple[str, ...] = ()  # of the head, where the file names them
    mixture: Mixture | None = None
    latents: Latents | None = None
    space: StateSpace | None = None
    single: bool = False
    short_conv: int = 0  # positions that a short convolution sees, in layers without heads of keys
    unread_keys: tuple[str, ...] = ()  # keys of this architecture in the file that change nothing here

    @property
    def value_dim(self) -> int:
        """What pages keep of a kv head's value beside its key."""
        return 0 if self.latents is not None else self.head_dim
