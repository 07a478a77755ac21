"""A Program compiled to flat command lists: pipelines, bind groups and grids, built once and replayed."""

from dataclasses import dataclass, field
from functools import partial
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamay.tensor.program import Attend, Embed, Gated, Head, Linear, Norm, Operation, Program, Qkv, Residual, Rope
from llamay.tensor.webgpu import choices, weights
from llamay.tensor.webgpu.device import Buffer, Device, Kernel, Texture
from llamay.tensor.webgpu.launch import SPLIT
from llamay.tensor.webgpu.state import RING, ROWS_AT, SLOTS, SLOTS_AT, StateLayout
from llamay.tensor.webgpu.weights import Stream

DIMS = 256  # bytes from one dispatch's numbers to the next: the portable uniform alignment
PARTS = 32 << 20  # bytes for the attention splits of one step


@dataclass(frozen=True, slots=True, eq=False)
class Command:
    """One dispatch: workgroups [x, ceil(tokens / per), splits if split]."""

    kernel: Kernel
    group: Any
    x: int
    per: int = 1
    outputs: bool = False  # its tokens are the output slots, not the rows
    split: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Where a list takes its rows and its output rows from, as words of the state."""

    rows_at: int
    outputs_at: int


def padded(columns: int) -> int:
    """Floats from one token's row to the next: whole units of 32."""
    return -(-columns // 32) * 32


@dataclass(slots=True, eq=False)
class _Dims:
    """The arena of per-dispatch numbers; filled while lists are built, uploaded before they run."""

    device: Device
    buffer: Buffer
    words: NDArray[np.uint32]
    used: int = 0
    known: dict[bytes, Buffer] = field(default_factory=dict)

    FIELDS = (
        "steps rows row0 tile0 x_stride y_stride partials width eps scale softcap heads kv_heads head_dim"
        " rope_half window rows_at outputs_at ring_at slots vocabulary partials_out"
    ).split()

    def slot(self, **values: float) -> Buffer:
        words = np.zeros(len(self.FIELDS), np.uint32)
        for name, value in values.items():
            at = self.FIELDS.index(name)
            words[at] = np.float32(value).view(np.uint32) if name in ("eps", "scale", "softcap") else value
        key = words.tobytes()
        if key not in self.known:
            start = self.used * DIMS // 4
            self.words[start : start + len(words)] = words
            self.known[key] = self.buffer.window(self.used * DIMS, 4 * len(self.FIELDS))
            self.device.write(self.buffer, words, self.used * DIMS)
            self.used += 1
        return self.known[key]


class Plan:
    """The device's copy of one Program: weights, working buffers, and its command lists.

    `rows` is how many token rows one step may have, `pages` the size of the page pool;
    one more page, the last, takes what padding rows write.
    """

    def __init__(self, device: Device, program: Program, rows: int, pages: int, layout: StateLayout) -> None:
        self.device, self.program, self.rows, self.layout = device, program, rows, layout
        self.launch = device.launch
        self.partials = -(-program.hidden // self.launch.tile.height)
        self._streams: dict[str, tuple[Stream, ...]] = {}
        self._turns: dict[int, Buffer] = {}
        self._vectors: dict[int, Buffer] = {}
        self._keep: list[object] = []  # ids above stay unique only while their objects live
        dims = 64 * (len(program.operations) + 8)
        self._dims = _Dims(device, device.buffer(dims * DIMS, 0x40 | 0x08), np.zeros(dims * DIMS // 4, np.uint32))
        self.state = device.upload(layout.fixed(pages))
        self._load()
        self.weight_bytes = sum(s.memory.size for streams in self._streams.values() for s in streams)
        self._work()
        before = device.allocated
        self.keys, self.values = self._pools(pages + 1)
        self.kv_bytes = device.allocated - before
        self._lists: dict[tuple[Any, ...], list[Command]] = {}

    # -- memory

    def _load(self) -> None:
        for op in self.program.operations:
            match op:
                case Embed(table=table):
                    self._stream(table.name, Linear((table,)), normed=True)
                case Gated(gate=gate, up=up):
                    name = gate.parts[0].name
                    woven = weights.load_gated(self.device, gate, up)
                    if woven is not None:
                        self._streams[name + "+up"] = woven
                    else:
                        self._stream(name, gate, normed=True)
                        self._stream(up.parts[0].name, up, normed=True)
                case Qkv(linear=linear) | Head(linear=linear):
                    self._stream(linear.parts[0].name, linear, normed=True)
                case Residual(linear=linear):
                    self._stream(linear.parts[0].name, linear, normed=False)

    def _stream(self, name: str, linear: Linear, *, normed: bool) -> tuple[Stream, ...]:
        if name not in self._streams:
            self._streams[name] = weights.load(self.device, linear, normed=normed)
        return self._streams[name]

    def _work(self) -> None:
        rows, ops = self.rows, self.program.operations
        attends = [op for op in ops if isinstance(op, Attend)]
        new = self.device.buffer
        self.hidden = padded(self.program.hidden)
        self.attended = max((padded(op.heads * op.head_dim) for op in attends), default=32)
        self.branch = max((padded(op.gate.rows) for op in ops if isinstance(op, Gated)), default=32)
        self.h = new(4 * rows * self.hidden)
        self.hw = new(4 * rows * self.hidden)
        self.sums = new(4 * rows * self.partials)
        self.q = new(4 * rows * self.attended)
        self.att = new(4 * rows * self.attended)
        self.act = new(4 * rows * self.branch)
        raw = [padded(op.linear.rows) for op in ops if isinstance(op, Qkv) and op.q_norm is not None]
        self.raw_stride = max(raw, default=0)
        self.raw = new(4 * rows * self.raw_stride)
        self.post = new(4 * rows * self.hidden if any(isinstance(op, Residual) and op.post_norm for op in ops) else 0)
        apart = any(isinstance(op, Gated) and op.gate.parts[0].name in self._streams for op in ops)
        self.up = new(4 * rows * self.branch if apart else 0)
        self.gate = new(4 * rows * self.branch if apart else 0)
        per_split = 4 * max((op.heads * op.head_dim for op in attends), default=1)
        self.parts = new(max(PARTS, per_split * 2 * 8))
        self.split_rows = self.parts.size // per_split  # rows * splits one step may have
        self.stats = new(8 * self.split_rows * max((op.heads for op in attends), default=1))
        head = self.head_streams
        self.head_tiles = sum(stream.tiles for stream in head)
        budget = max(1, (64 << 20) // (4 * self.program.vocabulary))
        self.slots = min(SLOTS, budget)
        height = max(self.launch.tokens)
        slots = -(-self.slots // height) * height
        self.logits = new(4 * slots * self.program.vocabulary)
        self.best = new(8 * slots * self.head_tiles)

    def _pools(self, pages: int) -> tuple[list[Buffer], list[Buffer]]:
        sizes = [4 * pages * 16 * op.kv_heads * op.head_dim for op in self.program.layers]
        return [self.device.buffer(size) for size in sizes], [self.device.buffer(size) for size in sizes]

    @property
    def head_streams(self) -> tuple[Stream, ...]:
        head = self.program.operations[-1]
        return self._streams[head.linear.parts[0].name] if isinstance(head, Head) else ()

    def _vector(self, values: NDArray[np.float32]) -> Buffer:
        if id(values) not in self._vectors:
            self._keep.append(values)
            out = np.zeros(padded(values.size), np.float32)
            out[: values.size] = values.reshape(-1)
            self._vectors[id(values)] = self.device.upload(out)
        return self._vectors[id(values)]

    def _turn_table(self, rope: Rope | None) -> Buffer:
        if rope is None:
            return self._vector(np.zeros(32, np.float32)) if 0 not in self._turns else self._turns[0]
        if id(rope) not in self._turns:
            self._keep.append(rope)
            angles = np.arange(self.program.context, dtype=np.float64)[:, None] * rope.frequencies[None]
            turns = np.stack([np.cos(angles), np.sin(angles)], -1) * rope.magnitude
            self._turns[id(rope)] = self.device.upload(turns.astype(np.float32))
        return self._turns[id(rope)]

    # -- command lists

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
        key = ("pick", batch, id(chosen))
        if key not in self._lists:
            dims = self.row_dims(batch=batch)
            kernel = self.device.kernel("pick", greedy=chosen is None, SLOTS_AT=SLOTS_AT, SLOTS=SLOTS, RING=RING)
            read = {"best": self.best} if chosen is None else {"chosen": chosen}
            group = self.device.bind(kernel, dims=dims, state=self.state, **read)
            self._lists[key] = [Command(kernel, group, x=0, outputs=True)]
        return self._lists[key][0]

    def row_dims(self, *, batch: bool) -> Buffer:
        """The numbers of a dispatch that only needs to know where rows, outputs and the ring lie."""
        source = self._source(batch)
        return self._dims.slot(
            rows_at=source.rows_at, outputs_at=source.outputs_at, ring_at=self.layout.ring_at, partials_out=self.head_tiles
        )

    def _source(self, batch: bool) -> Source:
        return Source(ROWS_AT, self.layout.outputs_at) if batch else Source(SLOTS_AT, self.layout.identity_at)

    def _build(self, tokens: int, source: Source, head: bool, long: bool) -> list[Command]:
        ops = self.program.operations
        out: list[Command] = []
        branch, stride = self.att, self.attended
        for at, op in enumerate(ops):
            match op:
                case Embed():
                    out += self._embed(op, source, _next_norm(ops, at))
                case Qkv():
                    out += self._qkv(op, source, tokens)
                case Attend():
                    out += self._attend(op, source, long)
                    branch, stride = self.att, self.attended
                case Gated():
                    out += self._gated(op, tokens)
                    branch, stride = self.act, self.branch
                case Residual():
                    out += self._residual(op, tokens, branch, stride, _next_norm(ops, at))
                case Head() if head:
                    out += self._head(op, source, tokens)
        return out

    def _linear(
        self, stream: Stream, tokens: int, epilogue: str, normed: bool, x_stride: int, dims: dict[str, float],
        buffers: dict[str, Buffer], **more: Any,
    ) -> Command:  # fmt: skip
        chosen = choices.linear(stream.type, self.launch, stream.tile, tokens, epilogue, bias=stream.bias, normed=normed, **more)
        kernel = self.device.kernel("linear", **chosen)
        height = stream.tile.height
        slot = self._dims.slot(
            steps=weights_steps(stream), rows=stream.rows, row0=stream.row0, tile0=stream.row0 // height,
            x_stride=x_stride // 4, partials=self.partials, width=self.program.hidden, **dims,
        )  # fmt: skip
        group = self.device.bind(kernel, dims=slot, w=stream.memory, **buffers)
        return Command(kernel, group, x=stream.tiles, per=tokens)

    def _embed(self, op: Embed, source: Source, norm: Norm) -> list[Command]:
        out = []
        for stream in self._streams[op.table.name]:
            kernel = self.device.kernel("embed", **choices.embed(stream.type, self.launch, stream.tile))
            dims = self._dims.slot(
                steps=weights_steps(stream), rows=stream.rows, row0=stream.row0, y_stride=self.hidden // 4,
                partials=self.partials, width=self.program.hidden, scale=op.scale, rows_at=source.rows_at,
            )  # fmt: skip
            group = self.device.bind(
                kernel, dims=dims, w=stream.memory, state=self.state, next=self._vector(norm.weight),
                h=self.h, hw=self.hw, sums=self.sums,
            )  # fmt: skip
            out.append(Command(kernel, group, x=1))
        return out

    def _qkv(self, op: Qkv, source: Source, tokens: int) -> list[Command]:
        rope_half = 0 if op.rope is None else len(op.rope.frequencies)
        heads = {"heads": op.heads, "kv_heads": op.kv_heads, "head_dim": op.head_dim, "rope_half": rope_half}
        store = {
            "state": self.state, "turns": self._turn_table(op.rope), "q_out": self.q,
            "keys": self.keys[op.layer], "values": self.values[op.layer],
        }  # fmt: skip
        ends = {"y_stride": self.attended // 4, "scale": op.scale, "rows_at": source.rows_at, **heads}
        streams = self._streams[op.linear.parts[0].name]
        if op.q_norm is None or op.k_norm is None:
            dims = {"eps": op.norm.eps, **ends}
            buffers = {"x": self.hw, "sums": self.sums, **store}
            return [self._linear(s, tokens, "qkv", True, self.hidden, dims, buffers) for s in streams]
        dims = {"eps": op.norm.eps, "y_stride": self.raw_stride // 4}
        buffers = {"x": self.hw, "sums": self.sums, "y": self.raw}
        out = [self._linear(s, tokens, "plain", True, self.hidden, dims, buffers) for s in streams]
        kernel = self.device.kernel("rope_store", S=self.launch.attention_lanes, reduce=self.launch.reduce)
        norms = self._pair(op.q_norm.weight, op.k_norm.weight)
        slot = self._dims.slot(x_stride=self.raw_stride // 4, eps=op.q_norm.eps, **ends)
        group = self.device.bind(kernel, dims=slot, qkv=self.raw, head_norms=norms, **store)
        return [*out, Command(kernel, group, x=op.heads + 2 * op.kv_heads)]

    def _pair(self, q: NDArray[np.float32], k: NDArray[np.float32]) -> Buffer:
        if id(q) not in self._vectors:
            self._keep += [q, k]
            self._vectors[id(q)] = self.device.upload(np.concatenate([q.reshape(-1), k.reshape(-1)]))
        return self._vectors[id(q)]

    def _attend(self, op: Attend, source: Source, long: bool) -> list[Command]:
        lanes = self.launch.attention_lanes
        quarter = op.head_dim // 4
        chunk = max(16, lanes)
        shape = {"S": lanes, "D4": quarter, "SPLIT": SPLIT}
        kernel = self.device.kernel(
            "attention", GQA=op.heads // op.kv_heads, C=chunk, TPL=chunk // lanes, VPL=-(-quarter // lanes),
            DSTEP=gcd(quarter, lanes), softcap=op.softcap > 0, splits=long, broadcast=self.launch.broadcast,
            reduce=self.launch.reduce, **shape,
        )  # fmt: skip
        dims = self._dims.slot(
            x_stride=self.attended // 4, y_stride=self.attended // 4, heads=op.heads, kv_heads=op.kv_heads,
            head_dim=op.head_dim, softcap=op.softcap, window=op.window, rows_at=source.rows_at,
        )  # fmt: skip
        target = {"out": self.parts, "stats": self.stats} if long else {"out": self.att}
        pages = {"keys": self.keys[op.layer], "values": self.values[op.layer]}
        group = self.device.bind(kernel, dims=dims, state=self.state, q=self.q, **pages, **target)
        first = Command(kernel, group, x=op.kv_heads, split=long)
        if not long:
            return [first]
        join = self.device.kernel("attention_combine", **shape)
        group = self.device.bind(join, dims=dims, state=self.state, parts=self.parts, stats=self.stats, out=self.att)
        return [first, Command(join, group, x=op.heads)]

    def _gated(self, op: Gated, tokens: int) -> list[Command]:
        name = op.gate.parts[0].name
        dims: dict[str, float] = {"eps": op.norm.eps}
        read = {"x": self.hw, "sums": self.sums}
        make = partial(self._linear, tokens=tokens, normed=True, x_stride=self.hidden)
        if name + "+up" in self._streams:
            return [
                make(
                    s, epilogue="gated", dims={**dims, "y_stride": self.branch // (s.tile.rows // 2)},
                    buffers={**read, "y": self.act}, activation=op.activation,
                )
                for s in self._streams[name + "+up"]
            ]  # fmt: skip
        dims["y_stride"] = self.branch // 4
        out = [make(s, epilogue="plain", dims=dims, buffers={**read, "y": self.gate}) for s in self._streams[name]]
        ups = self._streams[op.up.parts[0].name]
        out += [make(s, epilogue="plain", dims=dims, buffers={**read, "y": self.up}) for s in ups]
        kernel = self.device.kernel("activate", S=64, activation=op.activation)
        slot = self._dims.slot(width=op.gate.rows, x_stride=self.branch // 4)
        group = self.device.bind(kernel, dims=slot, gate=self.gate, up=self.up, y=self.act)
        return [*out, Command(kernel, group, x=-(-op.gate.rows // 64))]

    def _residual(self, op: Residual, tokens: int, branch: Buffer, stride: int, norm: Norm) -> list[Command]:
        streams = self._streams[op.linear.parts[0].name]
        after = {"next": self._vector(norm.weight), "h": self.h, "hw": self.hw, "sums": self.sums}
        if op.post_norm is None:
            dims: dict[str, float] = {"y_stride": self.hidden // 4, "scale": op.scale}
            return [self._linear(s, tokens, "residual", False, stride, dims, {"x": branch, **after}) for s in streams]
        dims = {"y_stride": self.hidden // 4}
        out = [self._linear(s, tokens, "plain", False, stride, dims, {"x": branch, "y": self.post}) for s in streams]
        kernel = self.device.kernel("norm_add", S=self.launch.attention_lanes, reduce=self.launch.reduce)
        slot = self._dims.slot(
            x_stride=self.hidden // 4, y_stride=self.hidden // 4, partials=self.partials, width=self.program.hidden,
            eps=op.post_norm.eps, scale=op.scale,
        )  # fmt: skip
        group = self.device.bind(kernel, dims=slot, y=self.post, post=self._vector(op.post_norm.weight), **after)
        return [*out, Command(kernel, group, x=1)]

    def _head(self, op: Head, source: Source, tokens: int) -> list[Command]:
        count = min(tokens, self.slots)
        out = []
        for s in self.head_streams:
            dims = {
                "y_stride": self.program.vocabulary, "eps": op.norm.eps, "scale": op.scale, "softcap": op.softcap,
                "outputs_at": source.outputs_at, "partials_out": self.head_tiles,
            }  # fmt: skip
            buffers = {
                "x": self.hw, "sums": self.sums, "state": self.state, "logits": self.logits, "best": self.best,
            }  # fmt: skip
            c = self._linear(s, count, "head", True, self.hidden, dims, buffers)
            out.append(Command(c.kernel, c.group, c.x, c.per, outputs=True))
        return out


def weights_steps(stream: Stream) -> int:
    """Inner steps of a stream's tiles."""
    from llamay.tensor.webgpu.formats import steps

    return steps(stream.format, stream.columns, stream.tile)


def _next_norm(ops: tuple[Operation, ...], at: int) -> Norm:
    """The norm that the operation after `at` applies to h: what writes h also prepares it."""
    for op in ops[at + 1 :]:
        if isinstance(op, Qkv | Gated | Head):
            return op.norm
    raise ValueError("a program ends with its head")

