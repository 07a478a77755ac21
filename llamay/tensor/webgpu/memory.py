"""What a Program holds on the device: weight streams, vectors, working buffers and the page pools."""

import numpy as np
from numpy.typing import NDArray

from llamay.errors import Unsupported
from llamay.tensor.batch import PAGE
from llamay.tensor.cache import CACHE_FORMATS, CacheFormat
from llamay.tensor.program import Attend, Embed, Gated, Head, Linear, Program, Qkv, Residual, Rope
from llamay.tensor.webgpu import weights
from llamay.tensor.webgpu.device import Buffer, Device
from llamay.tensor.webgpu.state import SLOTS, StateLayout
from llamay.tensor.webgpu.weights import Stream

PARTS = 32 << 20  # bytes for the attention splits of one step
LOGITS = 64 << 20  # bytes for the logits of one step, but at least one row
SOFTWARE = 4  # a software adapter, whose memory is the machine's, gets this part of them
TURNS = 1024  # positions of a rope table computed at a time


def padded(columns: int) -> int:
    """Floats from one token's row to the next: whole units of 32."""
    return -(-columns // 32) * 32


def _refuse_ragged(program: Program) -> None:
    """Raises Unsupported for sizes that are not whole vec4s where a kernel takes four values at a time."""
    for op in program.operations:
        if isinstance(op, Qkv) and op.head_dim % 4:
            raise Unsupported(
                f"layer {op.layer} has heads of {op.head_dim} values; in WGSL they are multiples of 4, -device numpy takes any"
            )
        if isinstance(op, Residual) and op.post_norm is not None and program.hidden % 4:
            raise Unsupported(
                f"the norm behind a branch is of {program.hidden} values; in WGSL it takes multiples of 4, -device numpy any"
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
        self.state = device.upload(layout.fixed(pages, window_pages or pages))
        if loaded is None:
            self._load()
        else:
            self._streams = loaded._streams
        self.weight_bytes = sum(s.memory.size for streams in self._streams.values() for s in streams)
        self._work()
        before = device.allocated
        windows = {op.layer for op in program.operations if isinstance(op, Attend) and op.window}
        self.windowed = windows if window_pages else set()  # layers whose pages are those of the window group
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
        raw = [padded(op.linear.rows) for op in ops if isinstance(op, Qkv) and self.by_head(op)]
        self.raw_stride = max(raw, default=0)
        self.raw = new(4 * rows * self.raw_stride)
        self.post = new(4 * rows * self.hidden if any(isinstance(op, Residual) and op.post_norm for op in ops) else 0)
        apart = any(isinstance(op, Gated) and self.woven(op) is None for op in ops)
        self.up = new(4 * rows * self.branch if apart else 0)
        self.gate = new(4 * rows * self.branch if apart else 0)
        per_split = 4 * max((op.heads * op.head_dim for op in attends), default=1)
        share = SOFTWARE if self.device.adapter.software else 1
        self.parts = new(max(PARTS // share, per_split * 2 * 8))
        self.split_rows = self.parts.size // per_split  # rows * splits one step may have
        self.stats = new(8 * self.split_rows * max((op.heads for op in attends), default=1))
        head = self.head_streams
        self.head_tiles = sum(stream.tiles for stream in head)
        budget = max(1, LOGITS // share // (4 * self.program.vocabulary))
        self.slots = min(SLOTS, budget)
        height = max(self.device.launch.tokens)
        slots = -(-self.slots // height) * height
        self.logits = new(4 * slots * self.program.vocabulary)
        self.best = new(8 * slots * self.head_tiles)

    def _pools(self, pages: int, window_pages: int) -> tuple[list[Buffer], list[Buffer]]:
        ops, cache = self.program.layers, self.cache
        counts = [1 + (window_pages if op.layer in self.windowed else pages) for op in ops]
        self.key_bytes = [op.kv_heads * cache.key_bytes(op.head_dim) for op in ops]  # of one page, by layer
        self.value_bytes = [op.kv_heads * cache.value_bytes(op.head_dim) for op in ops]
        keys = [self.device.buffer(count * size) for count, size in zip(counts, self.key_bytes, strict=True)]
        values = [self.device.buffer(count * size) for count, size in zip(counts, self.value_bytes, strict=True)]
        return keys, values

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

    def woven(self, op: Gated) -> tuple[Stream, ...] | None:
        """The streams of gate and up woven together, None where they lie apart."""
        return self._streams.get(op.gate.parts[0].name + "+up")

    def vector(self, values: NDArray[np.float32]) -> Buffer:
        """A float vector, padded to whole units; each is uploaded once."""
        if id(values) not in self._vectors:
            self._keep.append(values)
            out = np.zeros(padded(values.size), np.float32)
            out[: values.size] = values.reshape(-1)
            self._vectors[id(values)] = self.device.upload(out)
        return self._vectors[id(values)]

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

    def pair(self, q: NDArray[np.float32], k: NDArray[np.float32]) -> Buffer:
        """Two vectors end to end."""
        if id(q) not in self._vectors:
            self._keep += [q, k]
            self._vectors[id(q)] = self.device.upload(np.concatenate([q.reshape(-1), k.reshape(-1)]))
        return self._vectors[id(q)]
