"""What a Program holds on the device: weight streams, vectors, working buffers and the page pools."""

import numpy as np
from numpy.typing import NDArray

from llamay.errors import OutOfMemory, Unsupported
from llamay.tensor.batch import PAGE
from llamay.tensor.cache import CACHE_FORMATS, CacheFormat
from llamay.tensor.program import (
    Attend,
    Embed,
    ExpertGated,
    ExpertResidual,
    Experts,
    Gated,
    Head,
    Latent,
    Lift,
    Linear,
    Matrix,
    Program,
    Qkv,
    Residual,
    Rope,
    Route,
    Scan,
    ShortConv,
    Ungated,
)
from llamay.tensor.webgpu import latent, scan, weights
from llamay.tensor.webgpu.device import Device
from llamay.tensor.webgpu.formats import RECAST, padded
from llamay.tensor.webgpu.launch import SPLIT
from llamay.tensor.webgpu.mixture import Pairs
from llamay.tensor.webgpu.state import SLOTS, StateLayout
from llamay.tensor.webgpu.storage import Buffer, Rows
from llamay.tensor.webgpu.weights import Stream
from llamay.tensor.weights import part_rows

PARTS = 32 << 20  # bytes for the attention splits of one step
LOGITS = 64 << 20  # bytes for the logits of one step, but at least one row
SOFTWARE = 4  # a software adapter, whose memory is the machine's, gets this part of them
TURNS = 1024  # positions of a rope table computed at a time


def _refuse_ragged(program: Program) -> None:
    """Raises Unsupported for sizes that are not whole vec4s where a kernel takes four values at a time."""
    for op in program.operations:
        if isinstance(op, Latent | Lift):
            latent.refuse_ragged(op)
        if isinstance(op, Scan):
            scan.refuse_ragged(op)
        if isinstance(op, Qkv) and op.head_dim % 4:
            raise Unsupported(
                f"layer {op.layer} has heads of {op.head_dim} values; in WGSL they are multiples of 4, -device numpy takes any"
            )
        if isinstance(op, Residual) and op.post_norm is not None and program.hidden % 4:
            raise Unsupported(
                f"the norm behind a branch is of {program.hidden} values; in WGSL it takes multiples of 4, -device numpy any"
            )
        layered = (isinstance(op, Head) and op.norm.kind == "layer") or (isinstance(op, Residual) and op.after is not None)
        if layered and program.hidden % 4:
            raise Unsupported(
                f"layer norms are of {program.hidden} values; in WGSL they take multiples of 4, -device numpy any"
            )


class Memory:
    """The device's copy of one Program's weights, and the buffers its steps work in.

    `rows` is how many token rows one step may have, `pages` the size of the page pool, and
    `window_pages` that of the pool of layers with a sliding window (0: they share the first).
    One page more, the last of each pool, takes what padding rows write.  Strides are in floats.
    The weights are those of `loaded` where that is given, on the same device.
    """

    def __init__(
        self,
        device: Device,
        program: Program,
        rows: int,
        pages: int,
        layout: StateLayout,
        window_pages: int = 0,
        cache: CacheFormat = CACHE_FORMATS["f32"],
        loaded: "Memory | None" = None,
    ) -> None:
        _refuse_ragged(program)
        self.device, self.program, self.rows, self.cache = device, program, rows, cache
        self.positions = min(program.context, pages * PAGE)  # a sequence may have
        self.partials = -(-program.hidden // device.launch.tile.height)
        self._streams: dict[str, tuple[Stream, ...]] = {}
        self._turns: dict[int, Buffer] = {}
        self._vectors: dict[int, Buffer] = {}
        self._keep: list[object] = []  # ids above stay unique only while their objects live
        self.ones = np.ones(program.hidden, np.float32)  # the weight of a norm that changes nothing
        self.state = device.upload(layout.fixed(pages, window_pages or pages))
        if loaded is None:
            self._load()
        else:
            self._streams = loaded._streams
        self.weight_bytes = sum(s.memory.size for streams in self._streams.values() for s in streams)
        formats = {stream.format.name for streams in self._streams.values() for stream in streams}
        self.recast = bool(formats & {format.name for format in RECAST.values()})  # some lie as nowhere but on software adapters
        self._work()
        before = device.allocated
        self.windowed = program.windowed if window_pages else frozenset[int]()  # layers whose pages are those of the window group
        self.keys, self.values = self._pools(pages, window_pages)
        self.kv_bytes = device.allocated - before

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
                case Latent(down=down, up=asked, absorb=absorb):
                    self._stream(down.parts[0].name, down, normed=True)
                    if asked is not None:
                        self._stream(asked.parts[0].name, asked, normed=True)
                    self._experts(absorb)
                case Scan(enter=enter, select=select, step=step):
                    for part in (enter, select, step):
                        if part is not None:
                            self._stream(part.parts[0].name, part, normed=True)
                case ShortConv(enter=enter):
                    self._stream(enter.parts[0].name, enter, normed=True)
                case Lift(linears=linears):
                    self._experts(linears)
                case Ungated(up=up):
                    self._stream(up.parts[0].name, up, normed=True)
                case Residual(linear=linear):
                    self._stream(linear.parts[0].name, linear, normed=False)
                case Route(linear=linear):
                    self._stream(linear.parts[0].name, linear, normed=True)
                case ExpertGated(gate=None, up=ups):
                    self._experts(ups)
                case ExpertGated(gate=gates, up=ups) if gates is not None:
                    name = gates[0].parts[0].name
                    woven = weights.load_expert_gates(self.device, gates, ups)
                    if woven is not None:
                        self._streams[name + "+up"] = woven
                    else:
                        self._experts(gates)
                        self._experts(ups)
                case ExpertResidual(down=down, shared=shared):
                    self._experts(down)
                    if shared is not None:
                        self._stream(shared.parts[0].name, shared, normed=True)

    def _stream(self, name: str, linear: Linear, *, normed: bool) -> tuple[Stream, ...]:
        if name not in self._streams:
            self._streams[name] = weights.load(self.device, linear, normed=normed)
        return self._streams[name]

    def _experts(self, experts: Experts) -> None:
        self._streams[experts[0].parts[0].name] = weights.load_experts(self.device, experts)

    def _work(self) -> None:
        rows, ops = self.rows, self.program.operations
        attends = [op for op in ops if isinstance(op, Attend)]
        new = self.device.buffer
        self.hidden = padded(self.program.hidden)
        left = [op.heads * op.head_dim if isinstance(op, Attend) else op.inner for op in ops if isinstance(op, Scan | ShortConv | Attend)]
        self.attended = max(map(padded, left), default=32)
        self.branch = max((padded(op.up.rows) for op in ops if isinstance(op, Gated | Ungated)), default=32)
        self.h = new(4 * rows * self.hidden)
        self.hw = self.device.rows(4 * rows * self.hidden)
        self.sums = new(4 * rows * self.partials)
        by_channel = any(isinstance(op, Scan | ShortConv) for op in ops)  # a scan writes value by value, where a texel is four
        self.att = (new if by_channel else self.device.rows)(4 * rows * self.attended)
        by_head = by_channel or any(isinstance(op, Latent) for op in ops)  # a linear writes queries
        self.q = (new if by_head else self.device.rows)(4 * rows * self.attended)
        self.act = self.device.rows(4 * rows * self.branch)
        self.pairs = Pairs.of(self.device, self.program, rows)
        self.latents = latent.Latents.of(self.device, self.program, rows)
        self.spaces = scan.Spaces.of(self.device, self.program, rows)
        raw = [padded(op.linear.rows) for op in ops if isinstance(op, Qkv) and self.by_head(op)]
        self.raw_stride = max(raw, default=0)
        self.raw = new(4 * rows * self.raw_stride)
        self.post = new(4 * rows * self.hidden if any(isinstance(op, Residual) and op.apart for op in ops) else 0)
        apart = any(isinstance(op, Gated) and self.woven(op) is None for op in ops)
        self.up = new(4 * rows * self.branch if apart else 0)
        self.gate = new(4 * rows * self.branch if apart else 0)
        per_split = 4 * max((op.heads * op.value_dim for op in attends), default=1)
        share = SOFTWARE if self.device.adapter.software else 1
        whole = rows * -(-min(rows, self.positions) // SPLIT) if self.program.both_ways else 16  # of a text in one step
        limit = self.device.limits["max-storage-buffer-binding-size"]
        if per_split * whole > limit:
            raise OutOfMemory(
                f"attention over {rows} tokens in one step takes {per_split * whole:,} bytes, and {self.device.name} binds "
                f"{limit:,}; a smaller context (-c) or -device numpy would do"
            )
        self.parts = new(max(PARTS // share, per_split * whole))
        self.split_rows = self.parts.size // per_split  # rows * splits one step may have
        self.stats = new(8 * self.split_rows * max((op.heads for op in attends), default=1))
        head = self.head_streams
        self.head_tiles = sum(stream.tiles for stream in head)
        budget = max(1, LOGITS // share // (4 * self.program.width))
        self.slots = min(SLOTS, budget)
        height = max(self.device.launch.tokens)
        slots = -(-self.slots // height) * height
        self.logits = new(4 * slots * self.program.width)
        self.best = new(8 * slots * self.head_tiles)

    def _pools(self, pages: int, window_pages: int) -> tuple[list[Rows], list[Rows]]:
        ops, cache = self.program.layers, self.cache
        counts = [1 + (window_pages if op.layer in self.windowed else pages) for op in ops]
        self.key_bytes = [cache.sizes(op)[0] for op in ops]  # of one page, by layer
        self.value_bytes = [cache.sizes(op)[1] for op in ops]
        keys, values = [], []
        for op, count, key, value in zip(ops, counts, self.key_bytes, self.value_bytes, strict=True):
            exact = not isinstance(op, Scan | ShortConv)
            keys.append(self._pool(count * key, exact and cache.keys == "f32"))
            values.append(self._pool(count * value, exact and cache.values == "f32"))
        return keys, values

    def _pool(self, size: int, vectors: bool) -> Rows:
        """A pool of pages; `vectors`: what is in it are vec4s of f32."""
        return self.device.rows(size) if vectors else self.device.buffer(size)

    def by_head(self, op: Qkv) -> bool:
        """Whether q, k and v are finished head by head in a dispatch of their own, not in the linear's epilogue."""
        return op.q_norm is not None or self.cache.scaled

    @property
    def head_streams(self) -> tuple[Stream, ...]:
        head = self.program.operations[-1]
        return self.streams(head.linear) if isinstance(head, Head) else ()

    def streams(self, linear: Linear) -> tuple[Stream, ...]:
        """The streams of a linear that was loaded on its own."""
        return self._streams[linear.parts[0].name]

    def woven(self, op: Gated | ExpertGated) -> tuple[Stream, ...] | None:
        """The streams of gate and up woven together, None where they lie apart."""
        gate = op.gate if isinstance(op, Gated) else op.gate[0] if op.gate is not None else op.up[0]
        return self._streams.get(gate.parts[0].name + "+up")

    def vector(self, values: NDArray[np.float32]) -> Buffer:
        """A float vector, padded to whole units; each is uploaded once."""
        if id(values) not in self._vectors:
            self._keep.append(values)
            out = np.zeros(padded(values.size), np.float32)
            out[: values.size] = values.reshape(-1)
            self._vectors[id(values)] = self.device.upload(out)
        return self._vectors[id(values)]

    def table(self, matrix: Matrix) -> Buffer:
        """A matrix in float32 [rows, columns], its rows as far as the pages' positions."""
        if id(matrix) not in self._vectors:
            self._keep.append(matrix)
            rows = min(matrix.rows, self.positions)
            size, limit = 4 * rows * matrix.columns, self.device.limits["max-storage-buffer-binding-size"]
            if size > limit:
                raise OutOfMemory(f"{matrix.name} takes {size:,} bytes for {rows:,} positions, a binding {limit:,}")
            self._vectors[id(matrix)] = buffer = self.device.buffer(size)
            for start in range(0, rows, TURNS):
                found = part_rows(matrix, start, min(start + TURNS, rows))
                self.device.write(buffer, found, 4 * start * matrix.columns)
        return self._vectors[id(matrix)]

    def turns(self, rope: Rope | None) -> Buffer:
        """(cos, sin) [position, pair] of a rope for every position the pages hold."""
        if rope is None:
            return self._turns.setdefault(0, self.device.buffer(16))
        if id(rope) not in self._turns:
            self._keep.append(rope)
            self._turns[id(rope)] = buffer = self.device.buffer(8 * self.positions * len(rope.frequencies))
            for start in range(0, self.positions, TURNS):  # some at a time: the float64 steps take much more room
                positions = np.arange(start, min(start + TURNS, self.positions), dtype=np.float64)
                angles = positions[:, None] * rope.frequencies[None]
                turns = np.stack([np.cos(angles), np.sin(angles)], -1) * rope.magnitude
                self.device.write(buffer, turns.astype(np.float32), 8 * start * len(rope.frequencies))
        return self._turns[id(rope)]

    def joined(self, *vectors: NDArray[np.float32]) -> Buffer:
        """Vectors end to end."""
        first = id(vectors[0])
        if first not in self._vectors:
            self._keep += vectors
            self._vectors[first] = self.device.upload(np.concatenate([vector.reshape(-1) for vector in vectors]))
        return self._vectors[first]
