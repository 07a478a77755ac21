"""Latent attention on the device: its working buffers, and the commands around what pages keep.

Each head's linears lie in one stream, as those of experts do, and one dispatch does all heads: a workgroup
reads a head's part of a row and writes the head's part of another.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from llamay.tensor.program import Experts, Latent, Lift, Program
from llamay.tensor.webgpu.command import Command
from llamay.tensor.webgpu.device import Device
from llamay.tensor.webgpu.formats import check_multiples, padded
from llamay.tensor.webgpu.storage import Buffer, Rows, texels

if TYPE_CHECKING:
    from llamay.tensor.webgpu.plan import Plan
    from llamay.wgsl import Choice

ROWS = 8  # rows a lane may do at most, which are written whole


@dataclass(frozen=True, slots=True, eq=False)
class Latents:
    """The buffers of a program's latent attention, small ones where it has none.  Strides are in floats."""

    raw: Buffer  # [row, (a, c, r)]
    down: int  # stride of raw
    normed: Buffer  # [row, a]
    asked: int  # stride of normed
    queries: Buffer  # [row, head, (own, turned)]
    up: int  # stride of queries
    own: Buffer  # [row, head, own in whole units]
    lifted: Buffer  # [row, head, value]
    lift: int  # stride of lifted

    @classmethod
    def of(cls, device: Device, program: Program, rows: int) -> "Latents":
        """Buffers for steps of so many rows."""
        ops = [op for op in program.operations if isinstance(op, Latent)]
        lifts = [op for op in program.operations if isinstance(op, Lift)]
        down = max((padded(op.down.rows) for op in ops), default=0)
        asked = max((padded(op.asked) for op in ops if op.up is not None), default=0)
        up = max((padded(op.up.rows) for op in ops if op.up is not None), default=0)
        own = max((op.heads * padded(op.own) for op in ops), default=0)
        lift = max((padded(len(op.linears) * op.linears[0].rows) for op in lifts), default=0)
        new = device.buffer
        return cls(
            raw=new(4 * rows * down),
            down=down,
            normed=new(4 * rows * asked),
            asked=asked,
            queries=new(4 * rows * up),
            up=up,
            own=new(4 * rows * own),
            lifted=new(4 * rows * lift),
            lift=lift,
        )


def widest(program: Program) -> int:
    """Floats that a row of a step takes of one binding: its queries."""
    return max((padded(op.heads * op.head_dim) for op in program.operations if isinstance(op, Latent)), default=0)


def refuse_ragged(op: Latent | Lift) -> None:
    """Raises Unsupported for sizes that are not what the kernels take at a time."""
    sizes: tuple[tuple[str, int, int], ...] = (("rows of a head's values", op.linears[0].rows, 4),) if isinstance(op, Lift) else (
        ("values that turn", op.turned, 4), ("values of the latent", op.rank, 4),
        ("values of a head that do not turn", op.own, 4), ("rows that queries are made of", op.asked, ROWS),
    )  # fmt: skip
    check_multiples("latent attention", sizes)


def store(plan: "Plan", op: Latent, rows_at: int, tokens: int) -> list[Command]:
    """From h to the layer's pages and to q."""
    memory, device, launch = plan.memory, plan.device, plan.launch
    latents = memory.latents
    lanes: dict[str, Choice] = {"S": launch.attention_lanes, "reduce": launch.reduce}
    dims: dict[str, float] = {"eps": op.norm.eps, "y_stride": latents.down // 4}
    buffers = {**plan.reads(op.norm), "y": latents.raw}
    normed = op.norm.kind == "rms"
    out = [plan.linear(s, tokens, "plain", normed, memory.hidden, dims, buffers) for s in memory.streams(op.down)]
    asked, stride = latents.raw, latents.down
    if op.up is not None and op.q_norm is not None:
        kernel = device.kernel("rms_norm", **lanes)
        slot = plan.dims.slot(x_stride=stride // 4, y_stride=latents.asked // 4, width=op.asked, eps=op.q_norm.eps)
        weight = memory.vector(op.q_norm.weight)
        out.append(Command(kernel, device.bind(kernel, dims=slot, x=asked, weight=weight, y=latents.normed), x=1))
        dims, buffers = {"y_stride": latents.up // 4}, {"x": latents.normed, "y": latents.queries}
        out += [plan.linear(s, tokens, "plain", False, latents.asked, dims, buffers) for s in memory.streams(op.up)]
        asked, stride = latents.queries, latents.up
    own = padded(op.own) // 4
    kernel = device.kernel(
        "latent_store", RANK=op.rank // 4, TURNED=op.turned // 4, OWN=op.own // 4, OWN_AT=own, STRIDE=latents.down // 4,
        LATENTS_AT=op.asked // 4, key_format=memory.cache.keys, one_bit=memory.cache.one_bit, texels=texels(keys=memory.keys[op.layer]), **lanes,
    )  # fmt: skip
    slot = plan.dims.slot(
        x_stride=stride // 4, y_stride=memory.attended // 4, scale=op.scale, eps=op.kv_norm.eps, heads=op.heads, kv_heads=1,
        head_dim=op.head_dim, rope_half=len(op.rope.frequencies), rows_at=rows_at, windowed=op.layer in memory.windowed,
    )  # fmt: skip
    group = device.bind(
        kernel, dims=slot, latents=latents.raw, asked=asked, weight=memory.vector(op.kv_norm.weight), state=memory.state,
        turns=memory.turns(op.rope), q_out=memory.q, own=latents.own, keys=memory.keys[op.layer],
    )  # fmt: skip
    out.append(Command(kernel, group, x=op.heads + 1))
    numbers = {"y_stride": memory.attended // 4, "head_in": own, "head_out": op.head_dim // 4}
    read = {"x": latents.own, "y": memory.q}
    return [*out, *_by_head(plan, op.absorb, tokens, 4 * own * op.heads, numbers, read, op.turned)]


def lift(plan: "Plan", op: Lift, tokens: int) -> list[Command]:
    """From what attention left to the values that the output projection reads."""
    memory, first = plan.memory, op.linears[0]
    numbers = {"y_stride": memory.latents.lift // 4, "head_in": padded(first.columns) // 4, "head_out": first.rows // 4}
    read = {"x": memory.att, "y": memory.latents.lifted}
    return _by_head(plan, op.linears, tokens, memory.attended, numbers, read)


def _by_head(
    plan: "Plan", linears: Experts, tokens: int, x_stride: int, numbers: dict[str, int], buffers: Mapping[str, Rows],
    row0: int = 0,
) -> list[Command]:  # fmt: skip
    """A linear of each head, whose first row is `row0` of the head's part of y."""
    out = []
    for s in plan.memory.streams(linears[0]):
        dims: dict[str, float] = {**numbers, "row0": row0 + s.row0, "expert0": s.expert0, "tiles": s.tiles}
        command = plan.linear(s, tokens, "heads", False, x_stride, dims, buffers, heads=True)
        out.append(replace(command, x=s.tiles * s.experts))
    return out
