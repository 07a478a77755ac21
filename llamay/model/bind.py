"""From a file and its Config to a Program: the walk over the GGUF names of a transformer's blocks."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from llamay.arch import Config, Rotary, frequencies, slopes
from llamay.errors import MalformedFile, Unsupported
from llamay.gguf import File
from llamay.model import latent, mixture, space
from llamay.model.claims import Audit, Claims, Stored
from llamay.model.finish import Dense, Finish
from llamay.tensor.program import (
    Attend,
    Embed,
    Floats,
    Gated,
    Head,
    Layer,
    Linear,
    Matrix,
    Norm,
    Operation,
    Pool,
    Pooling,
    Program,
    Qkv,
    Residual,
    Rope,
    Ungated,
)
from llamay.tensor.weights import part_rows

Order = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """A program and the account of the tensors it came from."""

    program: Program
    audit: Audit
    finish: Finish  # of what the program pools


def bind(file: File, config: Config, context: int | None = None) -> Bound:
    """Claims the file's tensors for the config's network.

    `context` is how many positions are to be used, all that the model takes where it is not
    given: a file with factors of rope for short and for long contexts is read for that.
    Raises MalformedFile or Unsupported naming the tensor, what was found and what was expected.
    Nothing is read but the vectors (norms, biases, rope divisors); matrices stay in the file.
    """
    return bind_tensors(file.tensors, config, context)


def bind_tensors(tensors: Mapping[str, Stored], config: Config, context: int | None = None) -> Bound:
    """As `bind`, of tensors that need not lie in a file."""
    claims = Claims(tensors)
    table = claims.matrix("token_embd.weight", config.vocabulary, config.hidden)
    none = Norm(np.ones(config.hidden, np.float32), config.eps, kind="none")
    long = _long(config, context or config.context)
    block = _Block(claims, config, _ropes(claims, config, long), none)
    operations: list[Operation] = [_embed(claims, config, table)]
    for layer in range(config.layers):
        operations += block.operations(layer)
    if config.single:
        operations = _counted(operations)
    operations.append(_pool(claims, config, config.pooling, none) if config.pooling else _head(claims, config, table))
    finish = _finish(claims, config) if config.pooling else Finish()
    program = Program(tuple(operations), config.hidden, config.vocabulary, config.context, ".long" if long else "")
    return Bound(program, claims.audit(), finish)


def _counted(operations: list[Operation]) -> list[Operation]:
    """The operations with the layers that have pages counted up, where others have none."""
    paged = sorted({op.layer for op in operations if isinstance(op, Layer)})
    if not paged:
        raise MalformedFile("all layers are feed-forwards, expected some with attention or a state space: no token would see another")
    places = {layer: place for place, layer in enumerate(paged)}
    return [replace(op, layer=places[op.layer]) if isinstance(op, Layer | Attend) else op for op in operations]


def head_order(heads: int, head_dim: int, rotated: int) -> Order:
    """The row order that makes rotary pairs neighbours, where the file has them half the rotated part apart.

    Row 2i of a head's loaded rows is its file's row i, row 2i+1 is i + rotated/2; rows from `rotated` on stay.
    """
    half = rotated // 2
    head = np.arange(head_dim)
    head[:rotated] = np.stack([np.arange(half), np.arange(half) + half], axis=1).reshape(-1)
    return (np.arange(heads)[:, None] * head_dim + head).reshape(-1)


def _long(config: Config, context: int) -> bool:
    """Whether a context of that many positions takes the long one of two factors of rope."""
    scalings = (rotary.scaling for rotary in config.rotary if rotary is not None)
    return any(s is not None and s.kind == "longrope" and context > s.original_context for s in scalings)


def _ropes(claims: Claims, config: Config, long: bool) -> tuple[Rope | None, ...]:
    """A Rope for each layer that has one; layers with equal settings share one."""
    divisors, first = None, next((rotary for rotary in config.rotary if rotary is not None), None)
    if first is not None:
        if first.scaling is not None and first.scaling.kind == "longrope":
            both = [_divisors(claims, f"rope_factors_{length}.weight", first) for length in ("short", "long")]
            divisors = both[long]
        elif claims.has("rope_freqs.weight"):
            divisors = _divisors(claims, "rope_freqs.weight", first)

    @cache
    def rope(rotary: Rotary) -> Rope:
        return Rope(*frequencies(rotary, divisors))

    return tuple(None if rotary is None else rope(rotary) for rotary in config.rotary)


def _divisors(claims: Claims, name: str, rotary: Rotary) -> NDArray[np.float64]:
    """What the frequency of each pair is divided by."""
    found = claims.vector(name, rotary.dimensions // 2).astype(np.float64)
    if not (found > 0).all():
        raise MalformedFile(f"{name} holds a value that is not a positive number")
    return found


def _embed(claims: Claims, config: Config, table: Matrix) -> Embed:
    positions = norm = None
    if config.learned_positions:
        positions = claims.matrix("position_embd.weight", config.context, config.hidden)
    if config.embedding_norm:
        norm = _norm(claims, config, "token_embd_norm")
    kinds = claims.rows("token_types.weight", config.hidden) if config.kinds and claims.has("token_types.weight") else None
    return Embed(table, config.embedding_scale, positions, norm, kinds)


def _norm(claims: Claims, config: Config, name: str) -> Norm:
    """A norm of h."""
    bias = _bias(claims, name, config.hidden) if config.norms == "layer" else None
    return Norm(claims.vector(f"{name}.weight", config.hidden), config.eps, config.norms, bias)


def _head(claims: Claims, config: Config, table: Matrix) -> Head:
    norm = _norm(claims, config, "token_embd_norm" if config.short_conv and not claims.has("output_norm.weight") else "output_norm")
    matrix = table if config.tied else claims.matrix("output.weight", config.vocabulary, config.hidden)
    linear = Linear((matrix,), _bias(claims, "output", config.vocabulary))
    return Head(norm, linear, config.logit_scale, config.final_softcap)


def _pool(claims: Claims, config: Config, pooling: Pooling, none: Norm) -> Pool:
    """A mean is one of normed rows; where a single row is taken its norm can wait until that is done."""
    late = config.after_norms or pooling != "mean"
    return Pool(none if late else _norm(claims, config, "output_norm"), pooling)


def _finish(claims: Claims, config: Config) -> Finish:
    """What is left to do with a pooled row: a decoder's last norm, linears, and a head."""
    normed = config.after_norms or config.pooling == "mean"
    norm = None if normed else _norm(claims, config, "output_norm")
    if not config.ranks:
        return Finish(norm, linears=_linears(claims, config))
    dense = _dense(claims, "cls", config.hidden, config.hidden) if claims.has("cls.weight") else None
    labels = len(config.labels) or 1
    scores = _dense(claims, "cls.output", labels, config.hidden)
    if labels > 1 and not {"yes", "no"} <= set(config.labels):
        raise Unsupported(f"the head gives {labels} labels ({', '.join(config.labels)[:80]}); one, or yes and no, can be ranked by")
    return Finish(norm, dense, scores, config.labels)


def _linears(claims: Claims, config: Config) -> tuple[Dense, ...]:
    """Two linears that some models put behind the mean, as sentence-transformers' modules 2 and 3."""
    if not (claims.has("dense_2.weight") or claims.has("dense_3.weight")):
        return ()
    wide = claims.rows("dense_2.weight", config.hidden)
    return Dense(part_rows(wide, 0, wide.rows), None), _dense(claims, "dense_3", config.hidden, wide.rows)


def _dense(claims: Claims, name: str, rows: int, columns: int) -> Dense:
    matrix = claims.matrix(f"{name}.weight", rows, columns)
    return Dense(part_rows(matrix, 0, rows), _bias(claims, name, rows))


def _bias(claims: Claims, name: str, length: int) -> Floats | None:
    """The bias of a linear or a norm, where the file has one."""
    return claims.vector(f"{name}.bias", length) if claims.has(f"{name}.bias") else None


@dataclass(frozen=True, slots=True)
class _Block:
    """Builds the operations of one layer at a time."""

    claims: Claims
    config: Config
    ropes: tuple[Rope | None, ...]
    none: Norm  # of a branch that reads h as it is

    def operations(self, layer: int) -> list[Operation]:
        """Both branches: attention added before feed-forward reads h, or in a parallel block after.

        A state space stands in place of attention, or of both, a short convolution in place of attention.
        """
        config, blk = self.config, f"blk.{layer}"
        if config.single and (config.kv_heads[layer] or config.feed_forward[layer]):
            norm = self._pre_norm(f"{blk}.attn_norm")
            return self._attention(layer, norm) if config.kv_heads[layer] else self._feed_forward(layer, norm)
        if not config.kv_heads[layer]:
            instead = space.instead(self.claims, config, layer, self._pre_norm(f"{blk}.attn_norm"))
            if not config.feed_forward[layer]:
                return instead
            return [*instead, *self._feed_forward(layer, self._pre_norm(f"{blk}.{config.ffn_norm}"))]
        before, after = self._norms(blk)
        *attention, attended = self._attention(layer, before)
        *feed_forward, fed = self._feed_forward(layer, after)
        if config.parallel:
            return [*attention, *feed_forward, attended, fed]
        return [*attention, attended, *feed_forward, fed]

    def _norms(self, blk: str) -> tuple[Norm, Norm]:
        """What the attention branch and the feed-forward branch read h through.

        A parallel block may have one norm for both; Falcon's that has two calls attention's attn_norm_2.
        """
        attention, feed_forward = f"{blk}.attn_norm", f"{blk}.{self.config.ffn_norm}"
        if not self.config.parallel or self.claims.has(f"{feed_forward}.weight"):
            return self._pre_norm(attention), self._pre_norm(feed_forward)
        shared = self._pre_norm(attention)
        second = f"{blk}.attn_norm_2"
        return (self._pre_norm(second) if self.claims.has(f"{second}.weight") else shared), shared

    def _attention(self, layer: int, norm: Norm) -> list[Operation]:
        """Norm, q/k/v, attention, output projection."""
        config, rope = self.config, self.ropes[layer]
        if config.latents is not None and rope is not None:
            return latent.attention(self.claims, config, config.latents, layer, norm, rope)
        heads, kv_heads, head_dim = config.heads[layer], config.kv_heads[layer], config.head_dim
        blk = f"blk.{layer}"
        if config.late_norms and rope is not None and rope.magnitude != 1:
            raise Unsupported(f"this {config.architecture} file scales its rope, before norms of heads; without that {config.architecture} runs")
        qkv = Qkv(
            layer=layer,
            norm=norm,
            linear=self._qkv(layer),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            scale=config.attention_scale,
            rope=rope,
            q_norm=self._head_norm(layer, heads, f"{blk}.attn_q_norm"),
            k_norm=self._head_norm(layer, kv_heads, f"{blk}.attn_k_norm"),
            late=config.late_norms,
        )
        bias = slopes(heads, config.alibi) if config.alibi else None
        sinks = self.claims.vector(f"{blk}.attn_sinks.weight", heads) if config.sinks else None
        window, cap = config.windows[layer], config.attention_softcap
        attend = Attend(layer, heads, kv_heads, head_dim, window, cap, bias, config.both_ways, sinks)
        output = self._linear(f"{blk}.attn_output", config.hidden, heads * head_dim)
        post_norm = self._post_norm(f"{blk}.post_attention_norm")
        after, sum_norm = self._after_norm(f"{blk}.attn_output_norm"), None
        if config.post_norm_qk and self.claims.has(f"{blk}.attn_norm_2.weight"):
            after, sum_norm = _norm(self.claims, config, f"{blk}.attn_norm_2"), after
        return [qkv, attend, Residual("attention", output, post_norm, config.residual_scale, after, sum_norm)]

    def _feed_forward(self, layer: int, norm: Norm) -> list[Operation]:
        """Norm, up and where there is one the gate, activation, down."""
        config = self.config
        width, blk = config.feed_forward[layer], f"blk.{layer}"
        if config.mixture is not None and layer >= config.mixture.dense:
            return mixture.feed_forward(self.claims, config, config.mixture, blk, norm)
        wide: Operation
        if config.gated:
            wide = Gated(norm, *self._gate_and_up(blk, width), config.activation)
        else:
            wide = Ungated(norm, self._linear(f"{blk}.ffn_up", width, config.hidden), config.activation)
        down = self._linear(f"{blk}.ffn_down", config.hidden, width)
        post_norm = self._post_norm(f"{blk}.post_ffw_norm")
        after = self._after_norm(f"{blk}.layer_output_norm")
        return [wide, Residual("feed_forward", down, post_norm, config.residual_scale, after)]

    def _gate_and_up(self, blk: str, width: int) -> tuple[Linear, Linear]:
        """Gate and up, of a tensor each or, in some architectures, one above the other in ffn_up.

        Up is the upper one in jina-embeddings-v2-base-code, whose tensor converters leave as it was.
        """
        gate_name, up_name, hidden = f"{blk}.ffn_gate", f"{blk}.ffn_up", self.config.hidden
        if not self.config.fused_gate or self.claims.has(f"{gate_name}.weight"):
            return self._linear(gate_name, width, hidden), self._linear(up_name, width, hidden)
        matrices, biases = self._parts(up_name, [], (width, width))
        first, second = (Linear((matrix,), bias) for matrix, bias in zip(matrices, biases, strict=True))
        return (second, first) if self._post_norm_qk(blk) else (first, second)

    def _qkv(self, layer: int) -> Linear:
        """q, k and v as one linear; q and k in rotary order."""
        config, blk = self.config, f"blk.{layer}"
        heads = (config.heads[layer], config.kv_heads[layer], config.kv_heads[layer])
        names = [f"{blk}.attn_{part}" for part in "qkv"]
        matrices, biases = self._parts(f"{blk}.attn_qkv", names, tuple(count * config.head_dim for count in heads))
        # only now: a hostile count made no tensor fit
        orders = [self._order(layer, heads[0]), self._order(layer, heads[1]), None]
        parts = [replace(matrix, order=order) for matrix, order in zip(matrices, orders, strict=True)]
        turned = [
            bias if bias is None or order is None else bias[order] for bias, order in zip(biases, orders, strict=True)
        ]
        return Linear(tuple(parts), _stacked(parts, turned))

    def _parts(self, fused: str, names: list[str], rows: tuple[int, ...]) -> tuple[list[Matrix], list[Floats | None]]:
        """Matrices over the hidden size and their biases: one above the other in `fused`, or, where there are names for them, of a tensor each."""
        claims = self.claims
        if names and not claims.has(f"{fused}.weight"):
            sizes = list(zip(names, rows, strict=True))
            matrices = [claims.matrix(f"{name}.weight", count, self.config.hidden) for name, count in sizes]
            return matrices, [_bias(claims, name, count) for name, count in sizes]
        stacked = list(claims.stacked(f"{fused}.weight", rows, self.config.hidden))
        bias = _bias(claims, fused, sum(rows))
        if bias is None:
            return stacked, [None] * len(rows)
        return stacked, list(np.split(bias, np.cumsum(rows)[:-1]))

    def _order(self, layer: int, heads: int) -> Order | None:
        rotary = self.config.rotary[layer]
        if rotary is None or self.config.pairs == "neighbours":
            return None
        return head_order(heads, self.config.head_dim, rotary.dimensions)

    def _linear(self, name: str, rows: int, columns: int) -> Linear:
        return Linear((self.claims.matrix(f"{name}.weight", rows, columns),), _bias(self.claims, name, rows))

    def _pre_norm(self, name: str) -> Norm:
        return _norm(self.claims, self.config, name) if self.config.pre_norms else self.none

    def _post_norm(self, name: str) -> Norm | None:
        return _norm(self.claims, self.config, name) if self.config.post_norms else None

    def _after_norm(self, name: str) -> Norm | None:
        return _norm(self.claims, self.config, name) if self.config.after_norms else None

    def _post_norm_qk(self, blk: str) -> bool:
        """Whether a layer is as in jina-embeddings-v2-base-code, with a layer norm of all heads of q and one of k."""
        return self.config.post_norm_qk and any(self.claims.has(f"{blk}.attn_{part}_norm.weight") for part in "qk")

    def _head_norm(self, layer: int, heads: int, name: str) -> Norm | None:
        """The norm of each head of q or of k, or of all `heads` together."""
        config, claims = self.config, self.claims
        if config.own_head_norms and claims.has(f"{name}.weight"):
            weight = claims.vector(f"{name}.weight", config.head_dim, heads)
            order = self._order(layer, heads)
            return Norm(weight if order is None else weight[order], config.eps, "layer")
        if self._post_norm_qk(f"blk.{layer}"):  # heads that no rope turns
            weight, bias = claims.vector(f"{name}.weight", heads * config.head_dim), _bias(claims, name, heads * config.head_dim)
            return Norm(weight, config.eps, "layer", np.zeros_like(weight) if bias is None else bias)
        if not (config.head_norms or config.whole_norms):
            return None
        together = heads if config.whole_norms else 1
        weight = claims.vector(f"{name}.weight", together * config.head_dim)
        order = self._order(layer, together)
        return Norm(weight if order is None else weight[order], config.eps)


def _stacked(parts: list[Matrix], biases: list[Floats | None]) -> Floats | None:
    """The biases of fused parts, zeros for a part without; None where no part has one."""
    if all(bias is None for bias in biases):
        return None
    pieces = [
        np.zeros(part.rows, np.float32) if bias is None else bias for part, bias in zip(parts, biases, strict=True)
    ]
    return np.concatenate(pieces)
