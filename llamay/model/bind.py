"""From a file and its Config to a Program: the walk over the GGUF names of a transformer's blocks."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from llamay.arch import Config, Rotary, frequencies
from llamay.errors import MalformedFile
from llamay.gguf import File
from llamay.model.claims import Audit, Claims, Stored
from llamay.tensor.program import (
    Attend,
    Embed,
    Floats,
    Gated,
    Head,
    Linear,
    Matrix,
    Norm,
    Operation,
    Program,
    Qkv,
    Residual,
    Rope,
)

Order = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Bound:
    """A program and the account of the tensors it came from."""

    program: Program
    audit: Audit


def bind(file: File, config: Config) -> Bound:
    """Claims the file's tensors for the config's network.

    Raises MalformedFile or Unsupported naming the tensor, what was found and what was expected.
    Nothing is read but the vectors (norms, biases, rope divisors); matrices stay in the file.
    """
    return bind_tensors(file.tensors, config)


def bind_tensors(tensors: Mapping[str, Stored], config: Config) -> Bound:
    """As `bind`, of tensors that need not lie in a file."""
    claims = Claims(tensors)
    table = claims.matrix("token_embd.weight", config.vocabulary, config.hidden)
    block = _Block(claims, config, _ropes(claims, config))
    operations: list[Operation] = [Embed(table, config.embedding_scale)]
    for layer in range(config.layers):
        operations += block.attention(layer)
        operations += block.feed_forward(layer)
    operations.append(_head(claims, config, table))
    program = Program(tuple(operations), config.hidden, config.vocabulary, config.context)
    return Bound(program, claims.audit())


def head_order(heads: int, head_dim: int, rotated: int) -> Order:
    """The row order that makes rotary pairs neighbours, where the file has them half the rotated part apart.

    Row 2i of a head's loaded rows is its file's row i, row 2i+1 is i + rotated/2; rows from `rotated` on stay.
    """
    half = rotated // 2
    head = np.arange(head_dim)
    head[:rotated] = np.stack([np.arange(half), np.arange(half) + half], axis=1).reshape(-1)
    return (np.arange(heads)[:, None] * head_dim + head).reshape(-1)


def _ropes(claims: Claims, config: Config) -> tuple[Rope, ...]:
    """A Rope for each layer; layers with equal settings share one."""
    divisors = None
    if claims.has("rope_freqs.weight"):
        divisors = claims.vector("rope_freqs.weight", config.rotary[0].dimensions // 2).astype(np.float64)
        if not (np.isfinite(divisors).all() and (divisors > 0).all()):
            raise MalformedFile("rope_freqs.weight holds a value that is not a positive number")

    @cache
    def rope(rotary: Rotary) -> Rope:
        return Rope(*frequencies(rotary, divisors))

    return tuple(rope(rotary) for rotary in config.rotary)


def _head(claims: Claims, config: Config, table: Matrix) -> Head:
    norm = Norm(claims.vector("output_norm.weight", config.hidden), config.eps)
    matrix = table if config.tied else claims.matrix("output.weight", config.vocabulary, config.hidden)
    return Head(norm, Linear((matrix,), _bias(claims, "output", config.vocabulary)), softcap=config.final_softcap)


def _bias(claims: Claims, name: str, length: int) -> Floats | None:
    """The bias of a linear, where the file has one."""
    return claims.vector(f"{name}.bias", length) if claims.has(f"{name}.bias") else None


@dataclass(frozen=True, slots=True)
class _Block:
    """Builds the operations of one layer at a time."""

    claims: Claims
    config: Config
    ropes: tuple[Rope, ...]

    def attention(self, layer: int) -> list[Operation]:
        """Norm, q/k/v, attention, output projection."""
        config = self.config
        heads, kv_heads, head_dim = config.heads[layer], config.kv_heads[layer], config.head_dim
        blk = f"blk.{layer}"
        qkv = Qkv(
            layer=layer,
            norm=self._norm(f"{blk}.attn_norm"),
            linear=self._qkv(layer),
            heads=heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            scale=config.attention_scale,
            rope=self.ropes[layer],
            q_norm=self._head_norm(layer, f"{blk}.attn_q_norm"),
            k_norm=self._head_norm(layer, f"{blk}.attn_k_norm"),
        )
        attend = Attend(layer, heads, kv_heads, head_dim, config.windows[layer], config.attention_softcap)
        output = self._linear(f"{blk}.attn_output", config.hidden, heads * head_dim)
        return [qkv, attend, Residual(output, self._post_norm(f"{blk}.post_attention_norm"))]

    def feed_forward(self, layer: int) -> list[Operation]:
        """Norm, gate and up, activation, down."""
        config = self.config
        width, blk = config.feed_forward[layer], f"blk.{layer}"
        gated = Gated(
            norm=self._norm(f"{blk}.ffn_norm"),
            gate=self._linear(f"{blk}.ffn_gate", width, config.hidden),
            up=self._linear(f"{blk}.ffn_up", width, config.hidden),
            activation=config.activation,
        )
        down = self._linear(f"{blk}.ffn_down", config.hidden, width)
        return [gated, Residual(down, self._post_norm(f"{blk}.post_ffw_norm"))]

    def _qkv(self, layer: int) -> Linear:
        """q, k and v as one linear; q and k in rotary order."""
        config, blk = self.config, f"blk.{layer}"
        parts: list[Matrix] = []
        biases: list[Floats | None] = []
        for name, heads, turned in (
            (f"{blk}.attn_q", config.heads[layer], True),
            (f"{blk}.attn_k", config.kv_heads[layer], True),
            (f"{blk}.attn_v", config.kv_heads[layer], False),
        ):
            rows = heads * config.head_dim
            matrix = self.claims.matrix(f"{name}.weight", rows, config.hidden)
            order = self._order(layer, heads) if turned else None  # only now: a hostile count made no tensor fit
            bias = _bias(self.claims, name, rows)
            parts.append(replace(matrix, order=order))
            biases.append(bias if bias is None or order is None else bias[order])
        return Linear(tuple(parts), _stacked(parts, biases))

    def _order(self, layer: int, heads: int) -> Order | None:
        if self.config.pairs == "neighbours":
            return None
        return head_order(heads, self.config.head_dim, self.config.rotary[layer].dimensions)

    def _linear(self, name: str, rows: int, columns: int) -> Linear:
        return Linear((self.claims.matrix(f"{name}.weight", rows, columns),), _bias(self.claims, name, rows))

    def _norm(self, name: str) -> Norm:
        return Norm(self.claims.vector(f"{name}.weight", self.config.hidden), self.config.eps)

    def _post_norm(self, name: str) -> Norm | None:
        return self._norm(name) if self.config.post_norms else None

    def _head_norm(self, layer: int, name: str) -> Norm | None:
        if not self.config.head_norms:
            return None
        weight = self.claims.vector(f"{name}.weight", self.config.head_dim)
        order = self._order(layer, 1)
        return Norm(weight if order is None else weight[order], self.config.eps)


def _stacked(parts: list[Matrix], biases: list[Floats | None]) -> Floats | None:
    """The biases of fused parts, zeros for a part without; None where no part has one."""
    if all(bias is None for bias in biases):
        return None
    pieces = [
        np.zeros(part.rows, np.float32) if bias is None else bias for part, bias in zip(parts, biases, strict=True)
    ]
    return np.concatenate(pieces)
