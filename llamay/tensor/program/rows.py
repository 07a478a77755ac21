"""The operations that take each row for itself: into h, out of it, and the feed-forward branch."""

from dataclasses import dataclass

from llamay.tensor.program.parts import (
    Activation,
    Branch,
    Experts,
    Floats,
    Gating,
    Linear,
    Matrix,
    Norm,
    Pooling,
)


@dataclass(frozen=True, slots=True, eq=False)
class Embed:
    """h = norm(table[token] * scale + positions[position] + kinds[kind]), without what there is none of."""

    table: Matrix
    scale: float = 1.0
    positions: Matrix | None = None  # [context, H]
    norm: Norm | None = None  # a layer norm, and the next operation's is one too or none
    kinds: Matrix | None = None  # [kinds, H], by `Batch.kinds`


@dataclass(frozen=True, slots=True, eq=False)
class Residual:
    """h = after(h + scale * post_norm(linear(x))), x what the last operation of that branch left.

    With a `sum_norm`, a layer norm, it is after(h + sum_norm(h + scale * linear(x))).
    """

    branch: Branch
    linear: Linear
    post_norm: Norm | None = None
    scale: float = 1.0
    after: Norm | None = None  # a layer norm; the next operation reads h as it is
    sum_norm: Norm | None = None  # only where there is an `after` and no `post_norm`

    @property
    def apart(self) -> bool:
        """Whether what the linear makes is normed before h takes it."""
        return self.post_norm is not None or self.sum_norm is not None


@dataclass(frozen=True, slots=True, eq=False)
class Gated:
    """feed_forward = activation(gate(norm(h))) * up(norm(h))."""

    norm: Norm
    gate: Linear
    up: Linear
    activation: Activation


@dataclass(frozen=True, slots=True, eq=False)
class Ungated:
    """feed_forward = activation(up(norm(h)))."""

    norm: Norm
    up: Linear
    activation: Activation


@dataclass(frozen=True, slots=True, eq=False)
class Route:
    """Chooses `used` of the experts for each row, by the largest logits of linear(norm(h)); of equal ones the lower expert.

    An expert's weight is its share of a softmax over all logits, or the sigmoid of its own.
    `normalised` divides the weights of the chosen by their sum.  A logit behind those of the
    experts is the shared expert's, whose weight is its sigmoid; without one that weight is 1.
    """

    norm: Norm
    linear: Linear  # rows: a logit of each expert, then that of the shared expert where its weight varies
    experts: int
    used: int
    gating: Gating = "softmax"
    normalised: bool = True
    scale: float = 1.0  # of the weights of the chosen
    bias: Floats | None = None  # [experts], added to sigmoids before the largest are chosen; no part of weights
    groups: int = 0  # of as many neighbouring experts each, of which only those of `groups_used` are chosen; 0: none
    groups_used: int = 0  # the best by their best logit, or by the sum of their two best biased sigmoids

    @property
    def best(self) -> int:
        """How many of a group's experts say how good it is."""
        return min(2 if self.gating == "sigmoid" else 1, self.experts // max(1, self.groups))

    @property
    def varying(self) -> bool:
        """Whether the shared expert has a logit."""
        return self.linear.rows > self.experts


@dataclass(frozen=True, slots=True, eq=False)
class ExpertGated:
    """branch[s] = activation(gate_e(norm(h))) * up_e(norm(h)), where e is the row's expert of rank s.

    Without a gate it is activation(up_e(norm(h))).
    """

    norm: Norm
    gate: Experts | None
    up: Experts
    used: int
    activation: Activation


@dataclass(frozen=True, slots=True, eq=False)
class ExpertResidual:
    """h = h + scale * (sum over s of weight_s * down_e(branch[s]) + weight * shared(the last Gated output))."""

    down: Experts
    used: int
    shared: Linear | None = None
    scale: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Head:
    """logits = softcap(linear(norm(h)) * scale), of the rows asked for only."""

    norm: Norm
    linear: Linear
    scale: float = 1.0
    softcap: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """A vector [H] for each row asked for, in place of logits: its sequence's rows of h, pooled.

    mean and first need the row to be the last of its sequence, all of which the batch holds.
    """

    norm: Norm  # of kind none or rms, of each row before they are pooled
    pooling: Pooling
