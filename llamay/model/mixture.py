"""The operations of a layer whose feed-forward is a mixture of experts."""

import numpy as np

from llamay.arch import Config, Mixture
from llamay.errors import Unsupported
from llamay.model.claims import Claims
from llamay.tensor.program import (
    ExpertGated,
    ExpertResidual,
    Experts,
    Floats,
    Gated,
    Linear,
    Norm,
    Operation,
    Route,
    Ungated,
)


def feed_forward(claims: Claims, config: Config, mixture: Mixture, blk: str, norm: Norm) -> list[Operation]:
    """Router; gate and up of the chosen experts, and of the shared one where there is one; the sum of all."""
    hidden, used = config.hidden, mixture.used
    route = Route(
        norm=norm,
        linear=_router(claims, mixture, blk, hidden),
        experts=mixture.count,
        used=used,
        gating=mixture.gating,
        normalised=mixture.normalised,
        scale=mixture.scale,
        bias=_choice_bias(claims, mixture, f"{blk}.exp_probs_b.bias"),
        groups=mixture.groups,
        groups_used=mixture.groups_used,
    )
    gate = _experts(claims, mixture, f"{blk}.ffn_gate", mixture.width, hidden) if config.gated else None
    up = _experts(claims, mixture, f"{blk}.ffn_up", mixture.width, hidden)
    down = _experts(claims, mixture, f"{blk}.ffn_down", hidden, mixture.width)
    gated = ExpertGated(norm, gate, up, used, config.activation)
    if not mixture.shared_width:
        return [route, gated, ExpertResidual(down, used, None, config.residual_scale)]
    sizes = {"up": (mixture.shared_width, hidden), "down": (hidden, mixture.shared_width)}
    if config.gated:
        sizes["gate"] = sizes["up"]
    shared = {part: Linear((claims.matrix(f"{blk}.ffn_{part}_shexp.weight", *size),)) for part, size in sizes.items()}
    one: Operation = Ungated(norm, shared["up"], config.activation)
    if config.gated:
        one = Gated(norm, shared["gate"], shared["up"], config.activation)
    return [route, gated, one, ExpertResidual(down, used, shared["down"], config.residual_scale)]


def _choice_bias(claims: Claims, mixture: Mixture, name: str) -> Floats | None:
    """What is added to the sigmoids by which experts are chosen, where the file has it."""
    if not claims.has(name):
        return None
    if mixture.gating != "sigmoid":
        raise Unsupported(f"{name} is a bias on a softmax of experts; llamay runs those on sigmoids")
    return claims.vector(name, mixture.count)


def _router(claims: Claims, mixture: Mixture, blk: str, hidden: int) -> Linear:
    """A row for each expert, and one for the weight of the shared expert where that varies."""
    name, shared = f"{blk}.ffn_gate_inp", f"{blk}.ffn_gate_inp_shexp.weight"
    parts = [claims.matrix(f"{name}.weight", mixture.count, hidden)]
    bias = claims.vector(f"{name}.bias", mixture.count) if claims.has(f"{name}.bias") else None
    if mixture.shared_width and claims.has(shared):
        parts.append(claims.matrix(shared, 1, hidden))
        bias = None if bias is None else np.append(bias, np.float32(0))
    return Linear(tuple(parts), bias)


def _experts(claims: Claims, mixture: Mixture, name: str, rows: int, columns: int) -> Experts:
    """A linear of each expert, with its row of the biases where the file has them.

    The first files of mixtures had a tensor for each expert instead of one for all.
    """
    count, stacked = mixture.count, f"{name}_exps"
    if claims.has(f"{name}.0.weight") and not claims.has(f"{stacked}.weight"):
        apart = [claims.matrix(f"{name}.{expert}.weight", rows, columns) for expert in range(count)]
        odd = next((matrix for matrix in apart if matrix.type != apart[0].type), None)
        if odd is not None:
            raise Unsupported(f"tensor {odd.name} is {odd.type.name}; that of expert 0 {apart[0].type.name}: llamay runs equal types")
        return tuple(Linear((matrix,)) for matrix in apart)
    matrices = claims.experts(f"{stacked}.weight", count, rows, columns)
    if not claims.has(f"{stacked}.bias"):
        return tuple(Linear((matrix,)) for matrix in matrices)
    biases = claims.vector(f"{stacked}.bias", rows, count).reshape(count, rows)
    return tuple(Linear((matrix,), bias) for matrix, bias in zip(matrices, biases, strict=True))
