"""The commands at a program's ends: from tokens to h, and from h to logits or to vectors of whole texts."""

from dataclasses import replace
from typing import TYPE_CHECKING

from llamay.tensor.program import Embed, Head, Linear, Norm, Pool
from llamay.tensor.webgpu import choices
from llamay.tensor.webgpu.command import Command
from llamay.tensor.webgpu.formats import UNIT
from llamay.tensor.webgpu.storage import texels

if TYPE_CHECKING:
    from llamay.tensor.webgpu.plan import Plan, Source

COLUMNS = 64  # of a vector that a workgroup pools


def embed(plan: "Plan", op: Embed, source: "Source", norm: Norm) -> list[Command]:
    """From a row's token to h, and what the first operation reads."""
    out = []
    next = plan.memory.ones if op.norm is not None else norm.weight
    for stream in plan.memory.streams(Linear((op.table,))):
        chosen = choices.embed(stream.type, plan.launch, stream.tile, positions=op.positions is not None, kinds=op.kinds is not None)
        kernel = plan.device.kernel("embed", texels=texels(hw=plan.memory.hw), **chosen)
        dims = plan.dims.slot(
            units=-(-stream.columns // UNIT), rows=stream.rows, row0=stream.row0, y_stride=plan.memory.hidden // 4,
            partials=plan.memory.partials, width=plan.program.hidden, scale=op.scale, rows_at=source.rows_at,
        )  # fmt: skip
        group = plan.device.bind(
            kernel, dims=dims, **stream.bound, state=plan.memory.state, next=plan.memory.vector(next),
            h=plan.memory.h, hw=plan.memory.hw, sums=plan.memory.sums,
            **({} if op.positions is None else {"positions": plan.memory.table(op.positions)}),
            **({} if op.kinds is None else {"kinds": plan.memory.table(op.kinds)}),
        )  # fmt: skip
        out.append(Command(kernel, group, x=1))
    if op.norm is not None:
        out.append(plan.layer_norm(op.norm, source, into_h=True))
    return out


def head(plan: "Plan", op: Head, source: "Source", tokens: int) -> list[Command]:
    """From h of the output rows to logits and the best of each tile."""
    count = min(tokens, plan.memory.slots)
    out = []
    for s in plan.memory.head_streams:
        dims = {
            "y_stride": plan.program.vocabulary, "eps": op.norm.eps, "scale": op.scale, "softcap": op.softcap,
            "outputs_at": source.outputs_at, "partials_out": plan.memory.head_tiles,
        }  # fmt: skip
        buffers = {
            **plan.reads(op.norm), "state": plan.memory.state, "logits": plan.memory.logits, "best": plan.memory.best,
        }  # fmt: skip
        c = plan.linear(s, count, "head", op.norm.kind == "rms", plan.memory.hidden, dims, buffers)
        out.append(replace(c, outputs=True))
    return out


def pool(plan: "Plan", op: Pool, source: "Source") -> Command:
    """From h to a vector of each sequence."""
    memory, width = plan.memory, plan.program.hidden
    normed = op.norm.kind == "rms"
    rows = plan.reads(op.norm) if normed else {"h": memory.h}
    kernel = plan.device.kernel("pool", S=COLUMNS, pooling=op.pooling, normed=normed, texels=texels(**rows))
    dims = plan.dims.slot(
        x_stride=memory.hidden, y_stride=width, width=width, rows_at=source.rows_at, outputs_at=source.outputs_at,
        partials=memory.partials, eps=op.norm.eps,
    )  # fmt: skip
    group = plan.device.bind(kernel, dims=dims, state=memory.state, logits=memory.logits, **rows)
    return Command(kernel, group, x=-(-width // COLUMNS), outputs=True)
