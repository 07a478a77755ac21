"""State spaces on the device: their working buffers, and the commands from h to what the output projection reads."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from llamay.errors import Unsupported
from llamay.tensor.program import Program, Scan, ShortConv
from llamay.tensor.webgpu.command import Command
from llamay.tensor.webgpu.device import Device
from llamay.tensor.webgpu.formats import check_multiples, padded
from llamay.tensor.webgpu.storage import Buffer

if TYPE_CHECKING:
    from llamay.tensor.webgpu.plan import Plan
    from llamay.wgsl import Choice

MOST_STATES = 256  # of a channel: a lane holds them all
LANES = 64  # of a workgroup, in whole subgroups of eight where values are handed round in those
EACH = 4  # channels a lane convolves where each read costs as much as in software
ROWS = 8  # rows a lane of a linear may do at most, which are written whole


@dataclass(frozen=True, slots=True, eq=False)
class Spaces:
    """The buffers of a program's state spaces, small ones where it has none.  Strides are in floats."""

    raw: Buffer  # [row, what enters]; in mamba steps take the place of x
    entered: int  # stride of raw
    mixed: Buffer  # [row, channel], convolved; then whether the row's page has the state before it
    channels: int  # stride of mixed
    selected: Buffer  # [row, (latent of steps, B, C)]
    select: int  # stride of selected

    @classmethod
    def of(cls, device: Device, program: Program, rows: int) -> "Spaces":
        """Buffers for steps of so many rows."""
        ops = [op for op in program.operations if isinstance(op, Scan)]
        entered = widest(program)
        channels = max((padded(op.channels + 1) for op in ops), default=0)
        select = max((padded(op.select.rows) for op in ops if op.select is not None), default=0)
        new = device.buffer
        return cls(new(4 * rows * entered), entered, new(4 * rows * channels), channels, new(4 * rows * select), select)


def widest(program: Program) -> int:
    """Floats that a row of a step takes of one binding: what enters."""
    return max((padded(op.enter.rows) for op in program.operations if isinstance(op, Scan | ShortConv)), default=0)


def refuse_ragged(op: Scan) -> None:
    """Raises Unsupported for sizes that are not what the kernels take."""
    sizes = [("states of a channel", op.states, 4), ("channels of a group", op.inner // op.groups, ROWS)]
    if op.step is not None:
        sizes.append(("values that steps are made of", op.step.columns, 4))
    check_multiples("a state space", sizes)
    if op.states > MOST_STATES:
        raise Unsupported(
            f"a state space has {op.states} states of a channel; in WGSL at most {MOST_STATES}, -device numpy takes any number"
        )


def commands(plan: "Plan", op: Scan, rows_at: int, tokens: int) -> list[Command]:
    """From h to the layer's pages and to what the branch's output projection reads."""
    memory, device, launch = plan.memory, plan.device, plan.launch
    spaces, lanes = memory.spaces, LANES
    normed = op.norm.kind == "rms"
    dims: dict[str, float] = {"eps": op.norm.eps, "y_stride": spaces.entered // 4}
    buffers = {**plan.reads(op.norm), "y": spaces.raw}
    out = [plan.linear(s, tokens, "plain", normed, memory.hidden, dims, buffers) for s in memory.streams(op.enter)]
    rows = plan.dims.slot(rows_at=rows_at, windowed=op.layer in memory.windowed)
    shape: dict[str, Choice] = {
        "S": lanes, "CHANNELS": op.channels, "KEPT": op.kept, "STRIDE": spaces.entered, "MIXED": spaces.channels,
        "GOING_AT": op.channels,
    }  # fmt: skip
    each = EACH if launch.broadcast else 1
    kernel = device.kernel("convolve", K=len(op.kernel), INPUTS_AT=op.convolved_at, EACH=each, **shape)
    group = device.bind(
        kernel, dims=rows, state=memory.state, raw=spaces.raw, taps=memory.joined(op.kernel, op.bias), mixed=spaces.mixed,
        tokens=memory.values[op.layer],
    )  # fmt: skip
    out.append(Command(kernel, group, x=-(-op.channels // (lanes * each))))
    beside, stride, steps_at = spaces.mixed, spaces.channels, op.inner + op.channels
    if op.select is not None and op.step is not None:
        beside, stride, steps_at = spaces.selected, spaces.select, op.convolved_at
        dims, buffers = {"y_stride": stride // 4}, {"x": spaces.mixed, "y": beside}
        out += [plan.linear(s, tokens, "plain", False, spaces.channels, dims, buffers) for s in memory.streams(op.select)]
        if op.part_eps is not None:
            out.append(_part_norm(plan, op, op.part_eps))
        dims, buffers = {"y_stride": spaces.entered // 4}, {"x": beside, "y": spaces.raw}
        out += [plan.linear(s, tokens, "plain", False, stride, dims, buffers) for s in memory.streams(op.step)]
    kernel = device.kernel(
        "scan", N4=op.states // 4, INNER=op.inner, HEADS=op.heads, GROUPS=op.groups, DECAYS=len(op.decay),
        SHARED=op.shared, SHARED_STRIDE=stride // 4, SHARED_AT=op.shared_at // 4, GATE_AT=op.gate_at, STEPS_AT=steps_at,
        OUT=memory.attended, broadcast=launch.broadcast, **shape,
    )  # fmt: skip
    group = device.bind(
        kernel, dims=rows, state=memory.state, raw=spaces.raw, mixed=spaces.mixed, shared_of=beside,
        numbers=memory.joined(op.decay, op.skip, op.step_bias), y=memory.att if op.gate_norm is None else memory.q, states=memory.keys[op.layer],
        tokens=memory.values[op.layer],
    )  # fmt: skip
    out.append(Command(kernel, group, x=-(-op.inner // lanes)))
    if op.gate_norm is None:
        return out
    kernel, stride = device.kernel("rms_norm", S=launch.attention_lanes, reduce=launch.reduce), memory.attended // 4
    slot = plan.dims.slot(x_stride=stride, y_stride=stride, width=op.inner // op.groups, eps=op.gate_norm.eps)
    group = device.bind(kernel, dims=slot, x=memory.q, weight=memory.vector(op.gate_norm.weight), y=memory.att)
    return [*out, Command(kernel, group, x=op.groups)]


def short(plan: "Plan", op: ShortConv, rows_at: int, tokens: int) -> list[Command]:
    """A short convolution, from h to the layer's pages and to what the branch's output projection reads."""
    memory, device, spaces = plan.memory, plan.device, plan.memory.spaces
    dims: dict[str, float] = {"eps": op.norm.eps, "y_stride": spaces.entered // 4}
    buffers, normed = {**plan.reads(op.norm), "y": spaces.raw}, op.norm.kind == "rms"
    out = [plan.linear(s, tokens, "plain", normed, memory.hidden, dims, buffers) for s in memory.streams(op.enter)]
    each = EACH if plan.launch.broadcast else 1
    kernel = device.kernel(
        "short_convolve", S=LANES, EACH=each, K=len(op.kernel), KEPT=op.inner, STRIDE=spaces.entered, OUT=memory.attended
    )
    group = device.bind(
        kernel, dims=plan.dims.slot(rows_at=rows_at, windowed=op.layer in memory.windowed), state=memory.state, raw=spaces.raw,
        taps=memory.joined(op.kernel), y=memory.att, tokens=memory.keys[op.layer],
    )  # fmt: skip
    return [*out, Command(kernel, group, x=-(-op.inner // (LANES * each)))]


def _part_norm(plan: "Plan", op: Scan, eps: float) -> Command:
    """The latent of the steps, B and C, normed where they lie."""
    memory, launch, (first, *others) = plan.memory, plan.launch, op.parts
    kernel = plan.device.kernel(
        "part_norm", S=launch.attention_lanes, reduce=launch.reduce, FIRST=first // 4, OTHERS=others[0] // 4
    )
    slot = plan.dims.slot(x_stride=memory.spaces.select // 4, eps=eps)
    return Command(kernel, plan.device.bind(kernel, dims=slot, x=memory.spaces.selected), x=len(op.parts))
