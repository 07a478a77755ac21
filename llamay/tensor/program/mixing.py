"""The operations in which positions meet: they write a layer's pages, read them, and leave the attention branch."""

from dataclasses import dataclass
from typing import ClassVar

from llamay.tensor.program.parts import WHOLE, Experts, Floats, HeadNorms, Linear, Norm, Rope


@dataclass(frozen=True, slots=True, eq=False)
class Qkv:
    """q, k, v = norm(h) through one fused linear; rope; k and v into the layer's pages.

    q and k pass through `q_norm` and `k_norm` before rope, or after it, as `head_norms` says.  q is
    multiplied by `scale` (the softmax scale) after rope.
    """

    layer: int
    norm: Norm
    linear: Linear  # rows: q heads, k heads, v heads
    heads: int
    kv_heads: int
    head_dim: int
    scale: float
    rope: Rope | None
    q_norm: Norm | None = None
    k_norm: Norm | None = None
    late: bool = False  # the norms come after rope, which must change no length

    @property
    def head_norms(self) -> HeadNorms:
        """What the norms of q and k are of, and of which shape their weights.

        each: RMS of each head, weights [hd]; late: the same after rope; all: RMS of all heads together, [heads * hd];
        layer: a layer norm of each head without bias, [heads * hd], a row for each; whole: one of all heads
        together, which has a bias.
        """
        if self.q_norm is None:
            return ""
        if self.late:
            return "late"
        if self.q_norm.kind == "layer":
            return "layer" if self.q_norm.bias is None else "whole"
        return "all" if len(self.q_norm.weight) > self.head_dim else "each"

    @property
    def value_dim(self) -> int:
        """Values that a kv head's page rows keep beside the key."""
        return self.head_dim


@dataclass(frozen=True, slots=True, eq=False)
class Latent:
    """One row of the layer's pages for all heads, and their queries: multi-head latent attention (arXiv 2405.04434).

    [a, c, r] = down(norm(h)).  The page keeps [rope(r), kv_norm(c), zeros], which is the key, and behind
    rope(r) the value.  A head's [n, t] of up(q_norm(a)), or of a itself where there is no `up`, becomes its
    query [rope(t), absorb(n), zeros] * scale: what makes keys of latents is absorbed by the queries.
    """

    layer: int
    norm: Norm
    down: Linear  # rows: a, c, r
    kv_norm: Norm  # [rank]
    absorb: Experts  # of each head [rank, own]
    turned: int  # values of r and of t
    scale: float
    rope: Rope
    q_norm: Norm | None = None
    up: Linear | None = None

    kv_heads: ClassVar[int] = 1
    value_dim: ClassVar[int] = 0  # a page keeps nothing beside the key

    @property
    def heads(self) -> int:
        return len(self.absorb)

    @property
    def rank(self) -> int:
        """Values of c."""
        return self.absorb[0].rows

    @property
    def own(self) -> int:
        """Values of n."""
        return self.absorb[0].columns

    @property
    def asked(self) -> int:
        """Values of a."""
        return self.down.rows - self.rank - self.turned

    @property
    def head_dim(self) -> int:
        """Of a key: zeros fill what is value to whole units."""
        return self.turned + -(-self.rank // WHOLE) * WHOLE


@dataclass(frozen=True, slots=True, eq=False)
class Attend:
    """softmax(mask(softcap(q k^T))) v over the layer's pages.

    Query head h uses kv head h // (heads / kv_heads).  Position i sees j <= i, and with
    a window w > 0 only j > i - w.  `softcap` c > 0 maps a logit s to c * tanh(s / c).
    With `slopes` (ALiBi, arXiv 2108.12409) head h adds slopes[h] * -|j - i| to its logits.
    `both_ways`: a position sees all of its sequence, whose rows are one batch then; with a window as far behind it as before it.
    A head's sink is one logit more in its softmax, whose share goes to no value.
    """

    layer: int
    heads: int
    kv_heads: int
    head_dim: int
    window: int = 0
    softcap: float = 0.0
    slopes: Floats | None = None  # [heads]
    both_ways: bool = False
    sinks: Floats | None = None  # [heads]
    values_at: int = 0  # where it is not 0, values are what stands in the keys from there on

    @property
    def value_dim(self) -> int:
        return self.head_dim - self.values_at


@dataclass(frozen=True, slots=True, eq=False)
class Lift:
    """attention = each head's values of it through a linear of the head's own."""

    linears: Experts


@dataclass(frozen=True, slots=True, eq=False)
class Scan:
    """attention = what a selective state space makes of norm(h): mamba (arXiv 2312.00752), mamba2 (arXiv 2405.21060).

    enter(norm(h)) has, side by side, what is convolved, the gate z and in mamba2 the steps.  Convolved,
    c = silu(bias + sum over k of kernel[k] * the input K - 1 - k positions before), each channel for
    itself; x are its first `inner` values.  B and C of each group, and the steps d of each head, follow
    x in c and stand in enter's rows (mamba2), or are made of x by `select`, and the steps of a part of
    that by `step` (mamba); with a `part_eps` that part, B and C go through an RMS norm without weights
    each first (FalconMamba, arXiv 2410.05355).  With d = softplus(d + step_bias), channel i of head h and state n
        S[i, n] = exp(d[h] * decay[n, h]) * S[i, n] + d[h] * x[i] * B[n]
        y[i] = (sum over n of S[i, n] * C[n] + skip[h] * x[i]) * silu(z[i])
    and with a `gate_norm` that norm of the channels of each group.

    A page holds S after the newest of its tokens, how many of them that are, and of each what the next ones
    need of it: the inputs of the convolution, x, d and B.  Where S is that of another token than the one before,
    it is made anew from the S of the page before, which is after all of that, and what is kept of the tokens.
    """

    layer: int
    norm: Norm
    enter: Linear  # rows: x, z (mamba); z, x, B, C, d (mamba2)
    kernel: Floats  # [K, channels]
    bias: Floats  # [channels], of the convolution
    decay: Floats  # [states, heads], or [1, heads] where all states of a head decay alike
    skip: Floats  # [heads]
    step_bias: Floats  # [heads]
    inner: int  # channels of x
    states: int  # of each channel
    groups: int = 1  # of heads that share B and C
    select: Linear | None = None  # x -> the latent of the steps, B, C
    step: Linear | None = None  # that latent -> d
    part_eps: float | None = None  # of the norms of what `select` makes; None: there are none
    gate_norm: Norm | None = None  # [inner]

    @property
    def heads(self) -> int:
        """Each has inner / heads channels."""
        return len(self.skip)

    @property
    def channels(self) -> int:
        """What is convolved."""
        return len(self.bias)

    @property
    def shared(self) -> int:
        """Values of B, and of C."""
        return self.groups * self.states

    @property
    def parts(self) -> tuple[int, ...]:
        """Values of each part of select's rows: the latent of the steps, B, C."""
        return () if self.step is None else (self.step.columns, self.shared, self.shared)

    @property
    def convolved_at(self) -> int:
        """Where in enter's rows what is convolved begins."""
        return 0 if self.select is not None else self.inner

    @property
    def gate_at(self) -> int:
        """Where z begins."""
        return self.inner if self.select is not None else 0

    @property
    def shared_at(self) -> int:
        """Where B begins, and behind it C: in select's rows, or among what was convolved."""
        return self.inner if self.step is None else self.step.columns

    @property
    def window(self) -> int:
        """Positions whose pages computing one needs, itself included: its page, and the whole one before with its S."""
        return 17

    @property
    def kept(self) -> int:
        """Values a page keeps of a token beside B."""
        return self.channels + self.inner + self.heads


@dataclass(frozen=True, slots=True, eq=False)
class ShortConv:
    """attention = c * conv(b * x), where [b, c, x] = enter(norm(h)) and conv is causal and each channel's own (LFM2).

    The page keeps b * x of each token, which is what the next ones need of it.
    """

    layer: int
    norm: Norm
    enter: Linear  # rows: b, c, x
    kernel: Floats  # [K, channels], the newest token's last

    @property
    def inner(self) -> int:
        """Channels."""
        return int(self.kernel.shape[1])

    @property
    def window(self) -> int:
        """Positions whose pages are kept: more than computing one needs, so that the last whole page can be found again."""
        return 17
