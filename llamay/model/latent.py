"""The operations of a layer with multi-head latent attention."""

import numpy as np

from llamay.arch import Config, Latents
from llamay.model.claims import Claims
from llamay.quant import TensorType, dequantize
from llamay.tensor.program import (
    Attend,
    Bytes,
    Experts,
    Latent,
    Lift,
    Linear,
    Matrix,
    Norm,
    Operation,
    Residual,
    Rope,
)


def attention(claims: Claims, config: Config, sizes: Latents, layer: int, norm: Norm, rope: Rope) -> list[Operation]:
    """Latents and queries, attention over latents, each head's values, output projection."""
    blk, heads, hidden = f"blk.{layer}", config.heads[layer], config.hidden
    rows = heads * (sizes.own + sizes.turned)
    if sizes.asked:
        asked = claims.matrix(f"{blk}.attn_q_a.weight", sizes.asked, hidden)
        q_norm = Norm(claims.vector(f"{blk}.attn_q_a_norm.weight", sizes.asked), config.eps)
        up = Linear((claims.matrix(f"{blk}.attn_q_b.weight", rows, sizes.asked),))
    else:
        asked, q_norm, up = claims.matrix(f"{blk}.attn_q.weight", rows, hidden), None, None
    kept = claims.matrix(f"{blk}.attn_kv_a_mqa.weight", sizes.rank + sizes.turned, hidden)
    absorb, lift = _heads(claims, sizes, blk, heads)
    return [
        Latent(
            layer=layer,
            norm=norm,
            down=Linear((asked, kept)),
            kv_norm=Norm(claims.vector(f"{blk}.attn_kv_a_norm.weight", sizes.rank), config.eps),
            absorb=absorb,
            turned=sizes.turned,
            scale=config.attention_scale,
            rope=rope,
            q_norm=q_norm,
            up=up,
        ),
        Attend(layer, heads, 1, sizes.row, values_at=sizes.turned),
        Lift(lift),
        Residual("attention", Linear((claims.matrix(f"{blk}.attn_output.weight", hidden, heads * sizes.value),))),
    ]


def _heads(claims: Claims, sizes: Latents, blk: str, heads: int) -> tuple[Experts, Experts]:
    """Of each head what queries absorb [rank, own], and what makes its values [value, rank].

    The first files of this attention have both in one tensor, as what makes keys and values of a latent.
    """
    fused = f"{blk}.attn_kv_b.weight"
    if claims.has(fused) and not claims.has(f"{blk}.attn_k_b.weight"):
        parts = claims.stacked(fused, (sizes.own, sizes.value) * heads, sizes.rank)
        return _linears(tuple(map(transposed, parts[::2]))), _linears(parts[1::2])
    keys = claims.experts(f"{blk}.attn_k_b.weight", heads, sizes.rank, sizes.own)
    return _linears(keys), _linears(claims.experts(f"{blk}.attn_v_b.weight", heads, sizes.value, sizes.rank))


def _linears(matrices: tuple[Matrix, ...]) -> Experts:
    return tuple(Linear((matrix,)) for matrix in matrices)


def transposed(matrix: Matrix) -> Matrix:
    """The matrix with rows for columns, in float32: blocks of a row cannot be cut across."""

    def read(start: int, stop: int) -> Bytes:
        found = dequantize(matrix.type, matrix.take(np.arange(matrix.rows)))
        return np.ascontiguousarray(found[:, start:stop].T, np.float32).view(np.uint8)

    return Matrix(f"{matrix.name}^T", TensorType.F32, matrix.columns, matrix.rows, read)
