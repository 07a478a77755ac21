"""A Program compiled to flat command lists: pipelines, bind groups and grids, built once and replayed."""

from dataclasses import dataclass, replace
from functools import partial
from math import gcd
from typing import Any

from llamay.tensor.program import Attend, Embed, Gated, Head, Linear, Norm, Operation, Qkv, Residual
from llamay.tensor.webgpu import choices
from llamay.tensor.webgpu.device import Buffer, Kernel
from llamay.tensor.webgpu.dims import Dims
from llamay.tensor.webgpu.formats import UNIT
from llamay.tensor.webgpu.launch import SPLIT
from llamay.tensor.webgpu.memory import Memory
from llamay.tensor.webgpu.state import RING, ROWS_AT, SLOTS, SLOTS_AT, TAKEN_AT, StateLayout
from llamay.tensor.webgpu.weights import Stream


@dataclass(frozen=True, slots=True, eq=False)
class Command:
    """One dispatch: workgroups [x, ceil(tokens / per), splits if split]."""

    kernel: Kernel
    group: Any
    x: int
    per: int = 1
    outputs: bool = False  # its tokens are the output slots, not the rows
    split: bool = False
    load: int = 0  # bytes of weights, or of keys and values, that a workgroup reads at most


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
        self._dims = Dims(self.device, 64 * (len(self.program.operations) + 8))
        self._lists: dict[tuple[Any, ...], list[Command]] = {}
        self._picks: dict[tuple[bool, bool], tuple[Buffer | None, Command]] = {}
        self._made: dict[tuple[int, int, Source, bool], list[Command]] = {}  # by operation

    def commands(self, tokens: int, *, batch: bool, head: bool, long: bool) -> list[Command]:
        """The list of one step: `tokens` of them a workgroup, rows from the batch or from the slots.

        `head` adds the logits of the output rows; `long` that some position lies beyond
        the first attention split.
        """
        key = (tokens, batch, head, long)
        if key not in self._lists:
            self._lists[key] = self._build(tokens, self._source(batch), head, long)
        return self._lists[key]

    def pick(self, *, batch: bool, chosen: Buffer | None = None) -> Command:
        """Takes each slot's token: the greedy one, or what a sampler left in `chosen`."""
        key = (batch, chosen is None)
        if key not in self._picks or self._picks[key][0] is not chosen:  # a sampler that grew has another
            dims = self.row_dims(batch=batch)
            kernel = self.device.kernel(
                "pick", greedy=chosen is None, SLOTS_AT=SLOTS_AT, TAKEN_AT=TAKEN_AT, SLOTS=SLOTS, RING=RING
            )
            read = {"best": self.memory.best} if chosen is None else {"chosen": chosen}
            group = self.device.bind(kernel, dims=dims, state=self.memory.state, **read)
            self._picks[key] = chosen, Command(kernel, group, x=0, outputs=True)
        return self._picks[key][1]

    def row_dims(self, *, batch: bool) -> Buffer:
        """The numbers of a dispatch that only needs to know where rows, outputs and the ring lie."""
        source = self._source(batch)
        return self._dims.slot(
            rows_at=source.rows_at,
            outputs_at=source.outputs_at,
            ring_at=self.layout.ring_at,
            partials_out=self.memory.head_tiles,
        )

    def _source(self, batch: bool) -> Source:
        return Source(ROWS_AT, self.layout.outputs_at) if batch else Source(SLOTS_AT, self.layout.identity_at)

    def _build(self, tokens: int, source: Source, head: bool, long: bool) -> list[Command]:
        last = len(self.program.operations) - (0 if head else 1)  # the head comes last
        return [command for at in range(last) for command in self._operation(at, tokens, source, long)]

    def operation(self, at: int, tokens: int, *, long: bool) -> list[Command]:
        """The commands of one operation of the program over the batch's rows."""
        return self._operation(at, tokens, self._source(batch=True), long)

    def branch(self, at: int) -> tuple[Buffer, int]:
        """What the operation `at`, a Residual, reads, and its stride in floats."""
        before = next(op for op in reversed(self.program.operations[:at]) if isinstance(op, Attend | Gated))
        memory = self.memory
        return (memory.att, memory.attended) if isinstance(before, Attend) else (memory.act, memory.branch)

    def _operation(self, at: int, tokens: int, source: Source, long: bool) -> list[Command]:
        op = self.program.operations[at]
        attends = isinstance(op, Attend)
        key = (at, 1 if attends or isinstance(op, Embed) else tokens, source, long and attends)
        if key not in self._made:
            self._made[key] = self._make(at, tokens, source, long)
        return self._made[key]

    def _make(self, at: int, tokens: int, source: Source, long: bool) -> list[Command]:
        ops = self.program.operations
        match ops[at]:
            case Embed() as op:
                return self._embed(op, source, next_norm(ops, at))
            case Qkv() as op:
                return self._qkv(op, source, tokens)
            case Attend() as op:
                return self._attend(op, source, long)
            case Gated() as op:
                return self._gated(op, tokens)
            case Residual() as op:
                return self._residual(op, tokens, *self.branch(at), next_norm(ops, at))
            case Head() as op:
                return self._head(op, source, tokens)

    def _linear(
        self, stream: Stream, tokens: int, epilogue: str, normed: bool, x_stride: int, dims: dict[str, float],
        buffers: dict[str, Buffer], **more: Any,
    ) -> Command:  # fmt: skip
        chosen = choices.linear(
            stream.type, self.launch, stream.tile, tokens, epilogue, bias=stream.bias, normed=normed, **more
        )
        kernel = self.device.kernel("linear", **chosen)
        height = stream.tile.height
        slot = self._dims.slot(
            steps=stream.steps, units=-(-stream.columns // UNIT), rows=stream.rows, row0=stream.row0,
            tile0=stream.row0 // height,
            x_stride=x_stride // 4, partials=self.memory.partials, width=self.program.hidden, **dims,
        )  # fmt: skip
        group = self.device.bind(kernel, dims=slot, w=stream.memory, **buffers)
        return Command(kernel, group, x=stream.tiles, per=tokens, load=stream.memory.size // stream.tiles)

    def _embed(self, op: Embed, source: Source, norm: Norm) -> list[Command]:
        out = []
        for stream in self.memory.streams(Linear((op.table,))):
            kernel = self.device.kernel("embed", **choices.embed(stream.type, self.launch, stream.tile))
            dims = self._dims.slot(
                units=-(-stream.columns // UNIT), rows=stream.rows, row0=stream.row0, y_stride=self.memory.hidden // 4,
                partials=self.memory.partials, width=self.program.hidden, scale=op.scale, rows_at=source.rows_at,
            )  # fmt: skip
            group = self.device.bind(
                kernel, dims=dims, w=stream.memory, state=self.memory.state, next=self.memory.vector(norm.weight),
                h=self.memory.h, hw=self.memory.hw, sums=self.memory.sums,
            )  # fmt: skip
            out.append(Command(kernel, group, x=1))
        return out

    def _qkv(self, op: Qkv, source: Source, tokens: int) -> list[Command]:
        rope_half = 0 if op.rope is None else len(op.rope.frequencies)
        heads = {"heads": op.heads, "kv_heads": op.kv_heads, "head_dim": op.head_dim, "rope_half": rope_half}
        store = {
            "state": self.memory.state, "turns": self.memory.turns(op.rope), "q_out": self.memory.q,
            "keys": self.memory.keys[op.layer], "values": self.memory.values[op.layer],
        }  # fmt: skip
        ends: dict[str, float] = {
            "y_stride": self.memory.attended // 4, "scale": op.scale, "rows_at": source.rows_at,
            "windowed": op.layer in self.memory.windowed, **heads,
        }  # fmt: skip
        streams = self.memory.streams(op.linear)
        cache = {"key_format": self.memory.cache.keys, "value_format": self.memory.cache.values}
        if not self.memory.by_head(op):
            dims = {"eps": op.norm.eps, **ends}
            buffers = {"x": self.memory.hw, "sums": self.memory.sums, **store}
            return [self._linear(s, tokens, "qkv", True, self.memory.hidden, dims, buffers, **cache) for s in streams]
        dims = {"eps": op.norm.eps, "y_stride": self.memory.raw_stride // 4}
        buffers = {"x": self.memory.hw, "sums": self.memory.sums, "y": self.memory.raw}
        out = [self._linear(s, tokens, "plain", True, self.memory.hidden, dims, buffers) for s in streams]
        kernel = self.device.kernel(
            "rope_store", S=self.launch.attention_lanes, reduce=self.launch.reduce,
            head_normed=op.q_norm is not None, one_bit=self.memory.cache.one_bit, **cache,
        )  # fmt: skip
        if op.q_norm is not None and op.k_norm is not None:
            store["head_norms"] = self.memory.pair(op.q_norm.weight, op.k_norm.weight)
            ends["eps"] = op.q_norm.eps
        slot = self._dims.slot(x_stride=self.memory.raw_stride // 4, **ends)
        group = self.device.bind(kernel, dims=slot, qkv=self.memory.raw, **store)
        return [*out, Command(kernel, group, x=op.heads + 2 * op.kv_heads)]

    def _attend(self, op: Attend, source: Source, long: bool) -> list[Command]:
        lanes = self.launch.attention_lanes
        quarter = op.head_dim // 4
        chunk = max(16, lanes)
        shape = {"S": lanes, "D4": quarter, "SPLIT": SPLIT}
        kernel = self.device.kernel(
            "attention", GQA=op.heads // op.kv_heads, C=chunk, TPL=chunk // lanes, VPL=-(-quarter // lanes),
            DSTEP=gcd(quarter, lanes), softcap=op.softcap > 0, splits=long, broadcast=self.launch.broadcast,
            reduce=self.launch.reduce, key_format=self.memory.cache.keys, value_format=self.memory.cache.values, **shape,
        )  # fmt: skip
        dims = self._dims.slot(
            x_stride=self.memory.attended // 4, y_stride=self.memory.attended // 4, heads=op.heads, kv_heads=op.kv_heads,
            head_dim=op.head_dim, softcap=op.softcap, window=op.window, rows_at=source.rows_at,
            windowed=op.layer in self.memory.windowed,
        )  # fmt: skip
        target = {"out": self.memory.parts, "stats": self.memory.stats} if long else {"out": self.memory.att}
        pages = {"keys": self.memory.keys[op.layer], "values": self.memory.values[op.layer]}
        group = self.device.bind(kernel, dims=dims, state=self.memory.state, q=self.memory.q, **pages, **target)
        load = SPLIT * self.memory.cache.token_bytes(op.head_dim)
        first = Command(kernel, group, x=op.kv_heads, split=long, load=load)
        if not long:
            return [first]
        join = self.device.kernel("attention_combine", **shape)
        group = self.device.bind(
            join,
            dims=dims,
            state=self.memory.state,
            parts=self.memory.parts,
            stats=self.memory.stats,
            out=self.memory.att,
        )
        return [first, Command(join, group, x=op.heads)]

    def _gated(self, op: Gated, tokens: int) -> list[Command]:
        woven = self.memory.woven(op)
        dims: dict[str, float] = {"eps": op.norm.eps}
        read = {"x": self.memory.hw, "sums": self.memory.sums}
        make = partial(self._linear, tokens=tokens, normed=True, x_stride=self.memory.hidden)
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
        kernel = self.device.kernel("activate", S=64, activation=op.activation)
        slot = self._dims.slot(width=op.gate.rows, x_stride=self.memory.branch // 4)
        group = self.device.bind(kernel, dims=slot, gate=self.memory.gate, up=self.memory.up, y=self.memory.act)
        return [*out, Command(kernel, group, x=-(-op.gate.rows // 64))]

    def _residual(self, op: Residual, tokens: int, branch: Buffer, stride: int, norm: Norm) -> list[Command]:
        streams = self.memory.streams(op.linear)
        after = {
            "next": self.memory.vector(norm.weight),
            "h": self.memory.h,
            "hw": self.memory.hw,
            "sums": self.memory.sums,
        }
        if op.post_norm is None:
            dims: dict[str, float] = {"y_stride": self.memory.hidden // 4, "scale": op.scale}
            return [self._linear(s, tokens, "residual", False, stride, dims, {"x": branch, **after}) for s in streams]
        dims = {"y_stride": self.memory.hidden // 4}
        out = [
            self._linear(s, tokens, "plain", False, stride, dims, {"x": branch, "y": self.memory.post}) for s in streams
        ]
        kernel = self.device.kernel("norm_add", S=self.launch.attention_lanes, reduce=self.launch.reduce)
        slot = self._dims.slot(
            x_stride=self.memory.hidden // 4, y_stride=self.memory.hidden // 4, partials=self.memory.partials, width=self.program.hidden,
            eps=op.post_norm.eps, scale=op.scale,
        )  # fmt: skip
        group = self.device.bind(
            kernel, dims=slot, y=self.memory.post, post=self.memory.vector(op.post_norm.weight), **after
        )
        return [*out, Command(kernel, group, x=1)]

    def _head(self, op: Head, source: Source, tokens: int) -> list[Command]:
        count = min(tokens, self.memory.slots)
        out = []
        for s in self.memory.head_streams:
            dims = {
                "y_stride": self.program.vocabulary, "eps": op.norm.eps, "scale": op.scale, "softcap": op.softcap,
                "outputs_at": source.outputs_at, "partials_out": self.memory.head_tiles,
            }  # fmt: skip
            buffers = {
                "x": self.memory.hw, "sums": self.memory.sums, "state": self.memory.state, "logits": self.memory.logits, "best": self.memory.best,
            }  # fmt: skip
            c = self._linear(s, count, "head", True, self.memory.hidden, dims, buffers)
            out.append(replace(c, outputs=True))
        return out


def next_norm(ops: tuple[Operation, ...], at: int) -> Norm:
    """The norm that the operation after `at` applies to h: what writes h also prepares it."""
    for op in ops[at + 1 :]:
        if isinstance(op, Qkv | Gated | Head):
            return op.norm
    raise ValueError("a program ends with its head")
