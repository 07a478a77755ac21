"""Mixtures of experts on the device: their working buffers, and the commands that choose experts, run and add them.

The router's logits are one linear like others.  `route` chooses each row's experts; a pair
is a row with one of them, row * used + rank.  Of few rows a workgroup does one pair; of many,
`group_pairs` first puts pairs of one expert together, so that they share what is read of it.
Each pair is summed for itself in the one order of sums.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from llamay.tensor.program import ExpertGated, ExpertResidual, Norm, Program, Route
from llamay.tensor.webgpu.command import Command, groups
from llamay.tensor.webgpu.device import Device
from llamay.tensor.webgpu.formats import padded
from llamay.tensor.webgpu.storage import Buffer, Rows, texels
from llamay.tensor.webgpu.weights import Stream, woven

if TYPE_CHECKING:
    from llamay.tensor.webgpu.plan import Plan

LANES = 64  # invocations of kernels that need no subgroups


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """The buffers of a program's mixtures, small ones where it has none.  Strides are in floats."""

    scores: Buffer  # [row, logit]
    logits: int  # stride of scores
    chosen: Buffer  # [pair], experts
    weights: Buffer  # [row, used + 1]
    order: Buffer  # [group, tokens a workgroup], pairs
    act: Rows  # [pair, width]
    width: int  # stride of act
    gate: Buffer  # [pair, width], where gate and up lie apart
    up: Buffer
    out: Buffer  # [pair, hidden]
    shared: Buffer  # [row, hidden], what the shared expert gives

    @classmethod
    def of(cls, device: Device, program: Program, rows: int) -> "Pairs":
        """Buffers for steps of so many rows."""
        ops = program.operations
        routes = [op for op in ops if isinstance(op, Route)]
        gates = [op for op in ops if isinstance(op, ExpertGated)]
        shared = any(isinstance(op, ExpertResidual) and op.shared is not None for op in ops)
        apart = any(op.gate is not None and not woven(op.gate[0], op.up[0]) for op in gates)
        used = max((op.used for op in routes), default=0)
        experts = max((op.experts for op in routes), default=0)
        logits = max((padded(op.linear.rows) for op in routes), default=0)
        width = max((padded(op.up[0].rows) for op in gates), default=0)
        pairs, hidden = rows * used, padded(program.hidden)
        new = device.buffer
        places = max(groups(pairs, experts, tokens) * tokens for tokens in device.launch.tokens)
        return cls(
            scores=new(4 * rows * logits),
            logits=logits,
            chosen=new(4 * pairs),
            weights=new(4 * rows * (used + 1)),
            order=new(4 * places),
            act=device.rows(4 * pairs * width),
            width=width,
            gate=new(4 * pairs * width if apart else 0),
            up=new(4 * pairs * width if apart else 0),
            out=new(4 * pairs * hidden),
            shared=new(4 * rows * hidden if shared else 0),
        )


def widest(program: Program) -> int:
    """Floats that a row of a step takes of one binding: its pairs."""
    gates = [op for op in program.operations if isinstance(op, ExpertGated)]
    return max((op.used * max(padded(op.up[0].rows), padded(program.hidden)) for op in gates), default=0)


def crowded(program: Program, rows: int) -> bool:
    """Whether so many rows have a pair for each expert on average: with fewer, most groups would hold one pair."""
    return all(rows * op.used >= op.experts for op in program.operations if isinstance(op, Route))


def route(plan: "Plan", op: Route, tokens: int) -> list[Command]:
    """From h to each row's experts and weights."""
    pairs, device = plan.memory.pairs, plan.device
    dims = {"eps": op.norm.eps, "y_stride": pairs.logits // 4}
    buffers = {**plan.reads(op.norm), "y": pairs.scores}
    streams = plan.memory.streams(op.linear)
    out = [plan.linear(s, tokens, "plain", op.norm.kind == "rms", plan.memory.hidden, dims, buffers) for s in streams]
    kernel = device.kernel(
        "route", S=plan.launch.attention_lanes, reduce=plan.launch.reduce, gating=op.gating, normalised=op.normalised,
        varying=op.varying, experts=op.experts, used=op.used, biased=op.bias is not None, groups=op.groups,
        groups_used=op.groups_used, best=op.best,
    )  # fmt: skip
    slot = plan.dims.slot(x_stride=pairs.logits // 4, scale=op.scale)
    bias = {} if op.bias is None else {"bias": plan.memory.vector(op.bias)}
    group = device.bind(kernel, dims=slot, scores=pairs.scores, chosen=pairs.chosen, weights=pairs.weights, **bias)
    return [*out, Command(kernel, group, x=1)]


def gated(plan: "Plan", op: ExpertGated, together: int) -> list[Command]:
    """From h to the branches of all pairs, `together` of them a workgroup; several are first put in order."""
    memory, pairs = plan.memory, plan.memory.pairs
    read = plan.reads(op.norm)
    normed, width = op.norm.kind == "rms", memory.hidden
    out = []
    if together > 1:
        kernel = plan.device.kernel("group_pairs", S=LANES, MT=together, experts=len(op.up), used=op.used)
        group = plan.device.bind(kernel, dims=plan.dims.slot(), chosen=pairs.chosen, order=pairs.order)
        out.append(Command(kernel, group, x=1))
    if op.gate is None:
        dims: dict[str, float] = {"eps": op.norm.eps, "y_stride": pairs.width // 4}
        buffers = {**read, "y": pairs.act}
        streams = memory.streams(op.up[0])
        made = (_linear(plan, op, s, together, "activated", normed, width, op.used, dims, buffers, op.activation) for s in streams)
        return [*out, *made]
    woven = memory.woven(op)
    if woven is not None:
        for s in woven:
            dims = {"eps": op.norm.eps, "y_stride": pairs.width // (s.tile.rows // 2)}
            buffers = {**read, "y": pairs.act}
            out.append(_linear(plan, op, s, together, "gated", normed, width, op.used, dims, buffers, op.activation))
        return out
    dims = {"eps": op.norm.eps, "y_stride": pairs.width // 4}
    out += [
        _linear(plan, op, s, together, "plain", normed, width, op.used, dims, {**read, "y": y})
        for part, y in ((op.gate, pairs.gate), (op.up, pairs.up))
        for s in memory.streams(part[0])
    ]
    joined = plan.activated(op.activation, op.up[0].rows, pairs.width, pairs.gate, pairs.up, pairs.act)
    return [*out, replace(joined, used=op.used, experts=len(op.up))]


def residual(plan: "Plan", op: ExpertResidual, tokens: int, together: int, norm: Norm) -> list[Command]:
    """From the branches to h, and what the next operation reads; `together` pairs a workgroup."""
    memory, pairs, launch = plan.memory, plan.memory.pairs, plan.launch
    dims: dict[str, float] = {"y_stride": memory.hidden // 4}
    read = {"x": pairs.act, "y": pairs.out}
    out = [
        _linear(plan, op, s, together, "plain", False, pairs.width, 1, dims, read) for s in memory.streams(op.down[0])
    ]
    parts = {"y": pairs.out, "weights": pairs.weights}
    if op.shared is not None:
        read = {"x": memory.act, "y": pairs.shared}
        out += [plan.linear(s, tokens, "plain", False, memory.branch, dims, read) for s in memory.streams(op.shared)]
        parts["shared_y"] = pairs.shared
    kernel = plan.device.kernel(
        "expert_add", S=launch.attention_lanes, reduce=launch.reduce, used=op.used, shared=op.shared is not None,
        texels=texels(hw=memory.hw),
    )
    slot = plan.dims.slot(
        x_stride=memory.hidden // 4, y_stride=memory.hidden // 4, partials=memory.partials, width=plan.program.hidden,
        scale=op.scale,
    )  # fmt: skip
    after = {"next": memory.vector(norm.weight), "h": memory.h, "hw": memory.hw, "sums": memory.sums}
    group = plan.device.bind(kernel, dims=slot, **parts, **after)
    return [*out, Command(kernel, group, x=1)]


def _linear(
    plan: "Plan", op: ExpertGated | ExpertResidual, stream: Stream, together: int, epilogue: str, normed: bool,
    x_stride: int, spread: int, dims: dict[str, float], buffers: Mapping[str, Rows], activation: str = "",
) -> Command:  # fmt: skip
    """A linear of the pairs; `spread` of them read one row of x."""
    pairs = plan.memory.pairs
    numbers = {
        **dims, "expert0": stream.expert0, "experts": stream.experts, "tiles": stream.tiles, "spread": spread,
    }  # fmt: skip
    listed = {"chosen": pairs.chosen} | ({"order": pairs.order} if together > 1 else {})
    more = {"activation": activation} if activation else {}
    command = plan.linear(
        stream, together, epilogue, normed, x_stride, numbers, {**buffers, **listed}, experts=True, **more
    )
    experts = op.up if isinstance(op, ExpertGated) else op.down
    return replace(command, used=op.used, experts=len(experts))
