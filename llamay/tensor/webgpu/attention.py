"""The commands of attention: one dispatch up to its first split of positions, two beyond."""

from math import gcd
from typing import TYPE_CHECKING

from llamay.tensor.program import Attend
from llamay.tensor.webgpu.command import Command
from llamay.tensor.webgpu.launch import SPLIT
from llamay.tensor.webgpu.storage import texels

if TYPE_CHECKING:
    from llamay.tensor.webgpu.plan import Plan


def attend(plan: "Plan", op: Attend, rows_at: int, joint: int, long: bool) -> list[Command]:
    """From q and the layer's pages to what the branch adds, `joint` tokens a workgroup; `long`: over several splits."""
    memory, device, launch = plan.memory, plan.device, plan.launch
    lanes = launch.attention_lanes
    quarter = op.head_dim // 4
    chunk = max(16, lanes)
    pieces, queries = launch.queries(op.heads // op.kv_heads, op.value_dim)
    shape = {"M": joint, "S": lanes, "SPLIT": SPLIT}
    own = not op.values_at
    value_format = memory.cache.values if own else memory.cache.keys
    rows = {"q": memory.q, "keys": memory.keys[op.layer], "out": memory.parts if long else memory.att}
    if own:
        rows["values"] = memory.values[op.layer]
    sinks = {} if op.sinks is None else {"sinks": memory.vector(op.sinks)}
    beside = {"stats": memory.stats} if long else dict(sinks)
    if op.slopes is not None:
        beside["slopes"] = memory.vector(op.slopes)
    kernel = device.kernel(
        "attention", sinks=op.sinks is not None and not long, GQA=queries, pieces=pieces,
        C=chunk, TPL=chunk // lanes, D4=quarter, VPL=-(-op.value_dim // (4 * lanes)), values_at=op.values_at // 4,
        DSTEP=gcd(quarter, lanes), softcap=op.softcap > 0, splits=long, broadcast=launch.broadcast,
        reduce=launch.reduce, key_format=memory.cache.keys, value_format=value_format,
        sloped=op.slopes is not None, both_ways=op.both_ways, texels=texels(**rows), **shape,
    )  # fmt: skip
    dims = plan.dims.slot(
        x_stride=memory.attended // 4, y_stride=memory.attended // 4, heads=op.heads, kv_heads=op.kv_heads,
        head_dim=op.head_dim, softcap=op.softcap, window=op.window, rows_at=rows_at,
        windowed=op.layer in memory.windowed,
    )  # fmt: skip
    group = device.bind(kernel, dims=dims, state=memory.state, **rows, **beside)
    load = SPLIT * memory.cache.token_bytes(op.head_dim, op.value_dim if own else 0)
    first = Command(kernel, group, x=op.kv_heads * pieces, per=joint, split=long, load=load)
    if not long:
        return [first]
    join = device.kernel(
        "attention_combine", both_ways=op.both_ways, sinks=op.sinks is not None, D4=op.value_dim // 4,
        texels=texels(out=memory.att), **shape,
    )  # fmt: skip
    group = device.bind(
        join,
        dims=dims,
        state=memory.state,
        parts=memory.parts,
        stats=memory.stats,
        out=memory.att,
        **sinks,
    )
    return [first, Command(join, group, x=op.heads)]
