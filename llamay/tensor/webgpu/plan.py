"""A Program compiled to flat command lists: pipelines, bind groups and grids, built once and replayed."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from llamay.tensor.program import (
    Attend,
    Embed,
    ExpertGated,
    ExpertResidual,
    Gated,
    Head,
    Latent,
    Lift,
    Norm,
    Operation,
    Pool,
    Qkv,
    Residual,
    Route,
    Scan,
    ShortConv,
    Ungated,
)
from llamay.tensor.webgpu import attention, choices, ends, latent, mixture, scan
from llamay.tensor.webgpu.command import Command
from llamay.tensor.webgpu.dims import Dims
from llamay.tensor.webgpu.formats import UNIT
from llamay.tensor.webgpu.memory import Memory
from llamay.tensor.webgpu.state import RING, ROWS_AT, SLOTS, SLOTS_AT, TAKEN_AT, StateLayout
from llamay.tensor.webgpu.storage import Buffer, Rows, texels
from llamay.tensor.webgpu.weights import Stream

LANES = 64  # of a workgroup that joins gate and up, four rows each


@dataclass(frozen=True, slots=True)
class Source:
    """Where a list takes its rows and its output rows from, as words of the state."""

    rows_at: int
    outputs_at: int


class Plan:
    """The command lists of one Program over its device memory."""

    def __init__(self, memory: Memory, layout: StateLayout) -> None:
        self.memory, self.layout = memory, layout
        self.device, self.program = memory.device, memory.program
        self.launch = memory.device.launch
        self.dims = Dims(self.device, 64 * (len(self.program.operations) + 8))
        self._lists: dict[tuple[Any, ...], list[Command]] = {}
        self._picks: dict[tuple[bool, bool], tuple[Buffer | None, Command]] = {}
        self._made: dict[tuple[int, int, Source, bool, int], list[Command]] = {}  # by operation

    def commands(
        self, tokens: int, *, batch: bool, head: bool, long: bool, joint: int = 1, pairs: int = 1
    ) -> list[Command]:
        """The list of one step: `tokens` of them a workgroup, rows from the batch or from the slots.

        `head` adds the logits of the output rows; `long` that some position lies beyond
        the first attention split; `joint` tokens share what attention reads, and `pairs` of
        token and expert what is read of that expert.
        """
        key = (tokens, batch, head, long, joint, pairs)
        if key not in self._lists:
            self._lists[key] = self._build(tokens, self._source(batch), head, long, joint, pairs)
        return self._lists[key]

    def pick(self, *, batch: bool, chosen: Buffer | None = None) -> Command:
        """Takes each slot's token: the greedy one, or what a sampler left in `chosen`."""
        key = (batch, chosen is None)
        if key not in self._picks or self._picks[key][0] is not chosen:  # a sampler that grew has another
            dims = self.row_dims(batch=batch)
            kernel = self.device.kernel(
                "pick", greedy=chosen is None, SLOTS_AT=SLOTS_AT, TAKEN_AT=TAKEN_AT, SLOTS=SLOTS, RING=RING
            )
            read = {"best": self.memory.best} if chosen is None else {"chosen": chosen, "logits": self.memory.logits}
            group = self.device.bind(kernel, dims=dims, state=self.memory.state, **read)
            self._picks[key] = chosen, Command(kernel, group, x=0, outputs=True)
        return self._picks[key][1]

    def row_dims(self, *, batch: bool) -> Buffer:
        """The numbers of a dispatch that only needs to know where rows, outputs and the ring lie."""
        source = self._source(batch)
        return self.dims.slot(
            rows_at=source.rows_at,
            outputs_at=source.outputs_at,
            ring_at=self.layout.ring_at,
            partials_out=self.memory.head_tiles,
            vocabulary=self.program.vocabulary,
        )

    def _source(self, batch: bool) -> Source:
        return Source(ROWS_AT, self.layout.outputs_at) if batch else Source(SLOTS_AT, self.layout.identity_at)

    def _build(self, tokens: int, source: Source, head: bool, long: bool, joint: int, pairs: int) -> list[Command]:
        last = len(self.program.operations) - (0 if head else 1)  # the head comes last
        return [command for at in range(last) for command in self._operation(at, tokens, source, long, joint, pairs)]

    def operation(self, at: int, tokens: int, *, long: bool, joint: int = 1, pairs: int = 1) -> list[Command]:
        """The commands of one operation of the program over the batch's rows."""
        return self._operation(at, tokens, self._source(batch=True), long, joint, pairs)

    def branch(self, at: int) -> tuple[Rows, int]:
        """What the operation `at`, a Residual, reads, and its stride in floats."""
        op, memory = self.program.operations[at], self.memory
        assert isinstance(op, Residual)
        if op.branch == "feed_forward":
            return memory.act, memory.branch
        lifted = isinstance(self.program.operations[at - 1], Lift)
        return (memory.latents.lifted, memory.latents.lift) if lifted else (memory.att, memory.attended)

    def normed(self, at: int) -> Norm | None:
        """The norm that a dispatch of its own applies before the operation `at`; None where none is needed.

        The writer of h prepares an RMS norm and the linear finishes it; a layer norm that an
        earlier operation applied to the same h is still in hw.
        """
        ops = self.program.operations
        norm = _norm_of(ops[at])
        if norm is None or norm.kind != "layer":
            return None
        for op in reversed(ops[:at]):
            if isinstance(op, Residual | Embed):
                return norm
            if _norm_of(op) is norm:
                return None
        raise ValueError("a program begins with its embedding")

    def _operation(self, at: int, tokens: int, source: Source, long: bool, joint: int, pairs: int) -> list[Command]:
        op = self.program.operations[at]
        if isinstance(op, Attend):
            tokens = min(joint, self.launch.joint(op.heads // op.kv_heads, op.value_dim))
        pairs = pairs if isinstance(op, ExpertGated | ExpertResidual) else 1
        key = (at, 1 if isinstance(op, Embed) else tokens, source, long and isinstance(op, Attend), pairs)
        if key not in self._made:
            self._made[key] = self._make(at, tokens, source, long, pairs)
        return self._made[key]

    def _make(self, at: int, tokens: int, source: Source, long: bool, pairs: int) -> list[Command]:
        ops, norm = self.program.operations, self.normed(at)
        before = [] if norm is None else [self.layer_norm(norm, source, outputs=isinstance(ops[at], Head))]
        match ops[at]:
            case Embed() as op:
                return ends.embed(self, op, source, next_norm(ops, at))
            case Qkv() as op:
                return [*before, *self._qkv(op, source, tokens)]
            case Latent() as op:
                return [*before, *latent.store(self, op, source.rows_at, tokens)]
            case Scan() as op:
                return [*before, *scan.commands(self, op, source.rows_at, tokens)]
            case ShortConv() as op:
                return [*before, *scan.short(self, op, source.rows_at, tokens)]
            case Attend() as op:
                return attention.attend(self, op, source.rows_at, tokens, long)
            case Lift() as op:
                return latent.lift(self, op, tokens)
            case Gated() as op:
                return [*before, *self._gated(op, tokens)]
            case Ungated() as op:
                return [*before, *self._ungated(op, tokens)]
            case Residual() as op:
                after = [] if op.after is None else [self.layer_norm(op.after, source, into_h=True)]
                return [*self._residual(op, tokens, *self.branch(at), next_norm(ops, at)), *after]
            case Route() as op:
                return [*before, *mixture.route(self, op, tokens)]
            case ExpertGated() as op:
                return [*before, *mixture.gated(self, op, pairs)]
            case ExpertResidual() as op:
                return mixture.residual(self, op, tokens, pairs, next_norm(ops, at))
            case Head() as op:
                return [*before, *ends.head(self, op, source, tokens)]
            case Pool() as op:
                return [ends.pool(self, op, source)]

    def linear(
        self, stream: Stream, tokens: int, epilogue: str, normed: bool, x_stride: int, dims: dict[str, float],
        buffers: Mapping[str, Rows], **more: Any,
    ) -> Command:  # fmt: skip
        """One dispatch of a linear."""
        chosen = choices.linear(
            stream.type, self.launch, stream.tile, tokens, epilogue, bias=stream.bias, normed=normed,
            texels=texels(**buffers), **more
        )
        kernel = self.device.kernel("linear", **chosen)
        height = stream.tile.height
        own = {
            "steps": stream.steps, "units": -(-stream.columns // UNIT), "rows": stream.rows, "row0": stream.row0,
            "tile0": stream.row0 // height, "x_stride": x_stride // 4, "partials": self.memory.partials,
            "width": self.program.hidden,
        }  # fmt: skip
        slot = self.dims.slot(**{**own, **dims})
        group = self.device.bind(kernel, dims=slot, **stream.bound, **buffers)
        return Command(kernel, group, x=stream.tiles, per=tokens, load=stream.load)

    def activated(self, activation: str, width: int, stride: int, gate: Rows, up: Rows, y: Rows) -> Command:
        """gate and up of `width` rows each, kept apart, joined into y; strides are in floats."""
        kernel = self.device.kernel("activate", S=LANES, activation=activation, texels=texels(y=y))
        slot = self.dims.slot(width=width, x_stride=stride // 4)
        group = self.device.bind(kernel, dims=slot, gate=gate, up=up, y=y)
        return Command(kernel, group, x=-(-width // (4 * LANES)))

    def reads(self, norm: Norm) -> dict[str, Rows]:
        """What a linear reads whose input h is normed; the writer of h multiplied it by an RMS norm's weight."""
        if norm.kind == "none":
            return {"x": self.memory.h}
        return {"x": self.memory.hw} | ({"sums": self.memory.sums} if norm.kind == "rms" else {})

    def layer_norm(self, norm: Norm, source: Source, *, outputs: bool = False, into_h: bool = False) -> Command:
        """h normed into hw, of the output rows alone where `outputs`; `into_h`: hw normed into h."""
        memory = self.memory
        biased = norm.bias is not None
        dims = self.dims.slot(
            x_stride=memory.hidden // 4, width=self.program.hidden, eps=norm.eps,
            outputs_at=source.outputs_at if outputs else 0,
        )  # fmt: skip
        x, y = (memory.hw, memory.h) if into_h else (memory.h, memory.hw)
        kernel = self.device.kernel(
            "layer_norm", S=self.launch.attention_lanes, reduce=self.launch.reduce, bias=biased, outputs=outputs,
            texels=texels(x=x, y=y),
        )  # fmt: skip
        buffers = {"x": x, "y": y, "weight": memory.vector(norm.weight)}
        if norm.bias is not None:
            buffers["bias"] = memory.vector(norm.bias)
        if outputs:
            buffers["state"] = memory.state
        return Command(kernel, self.device.bind(kernel, dims=dims, **buffers), x=1, outputs=outputs)

    def _qkv(self, op: Qkv, source: Source, tokens: int) -> list[Command]:
        rope_half = 0 if op.rope is None else len(op.rope.frequencies)
        heads = {"heads": op.heads, "kv_heads": op.kv_heads, "head_dim": op.head_dim, "rope_half": rope_half}
        store: dict[str, Rows] = {
            "state": self.memory.state, "turns": self.memory.turns(op.rope), "q_out": self.memory.q,
            "keys": self.memory.keys[op.layer], "values": self.memory.values[op.layer],
        }  # fmt: skip
        ends: dict[str, float] = {
            "y_stride": self.memory.attended // 4, "scale": op.scale, "rows_at": source.rows_at,
            "windowed": op.layer in self.memory.windowed, **heads,
        }  # fmt: skip
        streams = self.memory.streams(op.linear)
        cache = {"key_format": self.memory.cache.keys, "value_format": self.memory.cache.values}
        normed, width = op.norm.kind == "rms", self.memory.hidden
        if not self.memory.by_head(op):
            dims = {"eps": op.norm.eps, **ends}
            buffers = {**self.reads(op.norm), **store}
            return [self.linear(s, tokens, "qkv", normed, width, dims, buffers, **cache) for s in streams]
        dims = {"eps": op.norm.eps, "y_stride": self.memory.raw_stride // 4}
        buffers = {**self.reads(op.norm), "y": self.memory.raw}
        out = [self.linear(s, tokens, "plain", normed, width, dims, buffers) for s in streams]
        kernel = self.device.kernel(
            "rope_store", S=self.launch.attention_lanes, reduce=self.launch.reduce,
            head_norms=op.head_norms, one_bit=self.memory.cache.one_bit, texels=texels(**store), **cache,
        )  # fmt: skip
        if op.q_norm is not None and op.k_norm is not None:
            biases = (norm.bias for norm in (op.q_norm, op.k_norm) if norm.bias is not None)
            store["norms"] = self.memory.joined(op.q_norm.weight, op.k_norm.weight, *biases)
            ends["eps"] = op.q_norm.eps
        slot = self.dims.slot(x_stride=self.memory.raw_stride // 4, **ends)
        group = self.device.bind(kernel, dims=slot, qkv=self.memory.raw, **store)
        return [*out, Command(kernel, group, x=op.heads + 2 * op.kv_heads)]

    def _gated(self, op: Gated, tokens: int) -> list[Command]:
        woven = self.memory.woven(op)
        dims: dict[str, float] = {"eps": op.norm.eps}
        read = self.reads(op.norm)
        make = partial(self.linear, tokens=tokens, normed=op.norm.kind == "rms", x_stride=self.memory.hidden)
        if woven is not None:
            return [
                make(
                    s, epilogue="gated", dims={**dims, "y_stride": self.memory.branch // (s.tile.rows // 2)},
                    buffers={**read, "y": self.memory.act}, activation=op.activation,
                )
                for s in woven
            ]  # fmt: skip
        dims["y_stride"] = self.memory.branch // 4
        out = [
            make(s, epilogue="plain", dims=dims, buffers={**read, "y": self.memory.gate})
            for s in self.memory.streams(op.gate)
        ]
        ups = self.memory.streams(op.up)
        out += [make(s, epilogue="plain", dims=dims, buffers={**read, "y": self.memory.up}) for s in ups]
        memory = self.memory
        return [*out, self.activated(op.activation, op.gate.rows, memory.branch, memory.gate, memory.up, memory.act)]

    def _ungated(self, op: Ungated, tokens: int) -> list[Command]:
        dims: dict[str, float] = {"eps": op.norm.eps, "y_stride": self.memory.branch // 4}
        buffers = {**self.reads(op.norm), "y": self.memory.act}
        normed, width = op.norm.kind == "rms", self.memory.hidden
        return [
            self.linear(s, tokens, "activated", normed, width, dims, buffers, activation=op.activation)
            for s in self.memory.streams(op.up)
        ]

    def _residual(self, op: Residual, tokens: int, branch: Rows, stride: int, norm: Norm) -> list[Command]:
        streams = self.memory.streams(op.linear)
        after = {
            "next": self.memory.vector(norm.weight),
            "h": self.memory.h,
            "hw": self.memory.hw,
            "sums": self.memory.sums,
        }
        if not op.apart:
            dims: dict[str, float] = {"y_stride": self.memory.hidden // 4, "scale": op.scale}
            return [self.linear(s, tokens, "residual", False, stride, dims, {"x": branch, **after}) for s in streams]
        dims = {"y_stride": self.memory.hidden // 4}
        out = [
            self.linear(s, tokens, "plain", False, stride, dims, {"x": branch, "y": self.memory.post}) for s in streams
        ]
        if op.post_norm is None:
            return [*out, self._sum_norm(op)]
        kernel = self.device.kernel(
            "norm_add", S=self.launch.attention_lanes, reduce=self.launch.reduce, texels=texels(hw=self.memory.hw)
        )
        slot = self.dims.slot(
            x_stride=self.memory.hidden // 4, y_stride=self.memory.hidden // 4, partials=self.memory.partials, width=self.program.hidden,
            eps=op.post_norm.eps, scale=op.scale,
        )  # fmt: skip
        group = self.device.bind(
            kernel, dims=slot, y=self.memory.post, post=self.memory.vector(op.post_norm.weight), **after
        )
        return [*out, Command(kernel, group, x=1)]

    def _sum_norm(self, op: Residual) -> Command:
        """h and the branch normed together and added to h, into hw."""
        memory, norm = self.memory, op.sum_norm
        assert norm is not None
        kernel = self.device.kernel(
            "sum_norm", S=self.launch.attention_lanes, reduce=self.launch.reduce, bias=norm.bias is not None, texels=texels(hw=memory.hw)
        )
        slot = self.dims.slot(x_stride=memory.hidden // 4, width=self.program.hidden, eps=norm.eps, scale=op.scale)
        biased = {} if norm.bias is None else {"bias": memory.vector(norm.bias)}
        group = self.device.bind(kernel, dims=slot, y=memory.post, h=memory.h, weight=memory.vector(norm.weight), hw=memory.hw, **biased)
        return Command(kernel, group, x=1)


def next_norm(ops: tuple[Operation, ...], at: int) -> Norm:
    """The norm that the operation after `at` applies to h: what writes h also prepares it."""
    norms = (_norm_of(op) for op in ops[at + 1 :])
    return next(norm for norm in norms if norm is not None)  # a program ends with its head


def _norm_of(op: Operation) -> Norm | None:
    """The norm through which an operation reads h."""
    return op.norm if isinstance(op, Qkv | Latent | Scan | ShortConv | Gated | Ungated | Route | ExpertGated | Head | Pool) else None
