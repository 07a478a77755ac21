"""The operations that stand in place of attention: the scan of a selective state space, a short convolution; and what leaves them."""

from llamay.arch import Config, StateSpace
from llamay.model.claims import Claims
from llamay.tensor.program import Linear, Norm, Operation, Residual, Scan, ShortConv


def instead(claims: Claims, config: Config, layer: int, norm: Norm) -> list[Operation]:
    """What a layer without heads of keys has in place of attention."""
    if config.space is None:
        return short(claims, config, config.short_conv, layer, norm)
    return block(claims, config, config.space, layer, norm)


def block(claims: Claims, config: Config, sizes: StateSpace, layer: int, norm: Norm) -> list[Operation]:
    """Both operations of a layer."""
    blk, inner, hidden, selects = f"blk.{layer}", sizes.inner, config.hidden, bool(sizes.rank)
    shared = 2 * sizes.groups * sizes.states
    enter = Linear((claims.matrix(f"{blk}.ssm_in.weight", sizes.entered, hidden),))
    select = step = gate_norm = None
    if selects:
        select = Linear((claims.matrix(f"{blk}.ssm_x.weight", sizes.rank + shared, inner),))
        step = Linear((claims.matrix(f"{blk}.ssm_dt.weight", inner, sizes.rank),))
        decay, skip = claims.vector(f"{blk}.ssm_a", sizes.states, inner), claims.vector(f"{blk}.ssm_d", inner)
    else:
        weight = claims.vector(f"{blk}.ssm_norm.weight", inner // sizes.groups, sizes.groups)
        gate_norm = Norm(weight, config.eps)
        decay, skip = (claims.vector(f"{blk}.ssm_{name}", 1, sizes.heads) for name in "ad")
    kernel = claims.vector(f"{blk}.ssm_conv1d.weight", sizes.kernel, sizes.convolved)
    scan = Scan(
        layer=layer,
        norm=norm,
        enter=enter,
        kernel=kernel.reshape(sizes.convolved, sizes.kernel).T.copy(),
        bias=claims.vector(f"{blk}.ssm_conv1d.bias", sizes.convolved),
        decay=decay.reshape(sizes.heads, -1).T.copy(),
        skip=skip,
        step_bias=claims.vector(f"{blk}.ssm_dt.bias", sizes.heads),
        inner=inner,
        states=sizes.states,
        groups=sizes.groups,
        select=select,
        step=step,
        part_eps=config.eps if sizes.normed else None,
        gate_norm=gate_norm,
    )
    return [scan, Residual("attention", Linear((claims.matrix(f"{blk}.ssm_out.weight", hidden, inner),)), None, config.residual_scale)]


def short(claims: Claims, config: Config, taken: int, layer: int, norm: Norm) -> list[Operation]:
    """A short convolution over `taken` positions, and the projection of what it leaves."""
    blk, hidden = f"blk.{layer}.shortconv", config.hidden
    enter = Linear((claims.matrix(f"{blk}.in_proj.weight", 3 * hidden, hidden),))
    kernel = claims.vector(f"{blk}.conv.weight", taken, hidden).reshape(hidden, taken).T.copy()
    leave = Linear((claims.matrix(f"{blk}.out_proj.weight", hidden, hidden),))
    return [ShortConv(layer, norm, enter, kernel), Residual("attention", leave, None, config.residual_scale)]
