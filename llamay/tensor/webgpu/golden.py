"""What each operation of a program must give on a device, from made-up inputs and the model's own weights.

A trial fills the working buffers, runs one operation's commands and compares a part of
what they leave with the NumPy twins in float64: whole heads of q, k and v, whole rows of
attention, the first and the last rows of every other matrix.  Only the page that nobody
owns is written, so that a trial may run while sequences hold the others.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamay.tensor import twins
from llamay.tensor.batch import PAGE
from llamay.tensor.pools import LayerPages
from llamay.tensor.program import Attend, Embed, Gated, Head, Linear, Qkv, Residual
from llamay.tensor.twins.linear import Real
from llamay.tensor.webgpu.device import Buffer
from llamay.tensor.webgpu.launch import SPLIT
from llamay.tensor.webgpu.plan import Plan, next_norm
from llamay.tensor.webgpu.state import PROBE, ROWS_AT, SLOTS
from llamay.tensor.weights import linear_rows, part_rows

SUM = 3e-5  # largest error of a sum of products, in units of the magnitudes that were summed; one lost term shows
FUNCTION = 2e-4  # relative error that WGSL lets exp and tanh have, with room
SHARE = 1e-4  # error of a softmax's mean of values, in units of the largest value
LONG = (PROBE - 2) * PAGE  # a position beyond the first split of attention
FIRST, LAST = 48, 16  # rows of a matrix that are checked
Array = NDArray[Any]
Arrays = dict[str, Array]


@dataclass(frozen=True, slots=True, eq=False)
class Check:
    """One array of what was found, with what was expected and the largest difference allowed."""

    what: str
    found: Array
    expected: Array
    bound: Array

    @property
    def worst(self) -> tuple[float, int]:
        """The largest error in units of its bound, and where it is; an infinite one for what is no number."""
        with np.errstate(invalid="ignore", divide="ignore"):  # what is no number is an infinite error below
            apart = np.abs(self.found.astype(np.float64) - self.expected)
            error = np.where(apart == 0, 0, apart / self.bound)
        error = np.where(np.isfinite(error), error, np.inf).reshape(-1)
        at = int(error.argmax())
        return float(error[at]), at


@dataclass(frozen=True, slots=True, eq=False)
class Trial:
    """`arrange` writes the inputs, `read` gives what the commands left, `checks` compares that."""

    arrange: Callable[[], None]
    read: Callable[[], Arrays]
    checks: Callable[[Arrays], list[Check]]


class Golden:
    """Makes the trials of one plan; `rows` token rows each."""

    def __init__(self, plan: Plan, rows: int) -> None:
        self.plan, self.memory, self.device, self.rows = plan, plan.memory, plan.device, rows
        self.splits = LONG // SPLIT + 1
        first = plan.memory.head_streams[0]
        self.head_tiles = min(first.tiles, -(-FIRST // first.tile.height))  # of the head's that are run
        self._random = np.random.default_rng(11)

    def trial(self, at: int, *, long: bool) -> Trial:
        """The trial of operation `at`."""
        match self.plan.program.operations[at]:
            case Embed() as op:
                return self._embed(op, at)
            case Qkv() as op:
                return self._qkv(op)
            case Attend() as op:
                return self._attend(op, long)
            case Gated() as op:
                return self._gated(op)
            case Residual() as op:
                return self._residual(op, at)
            case Head() as op:
                return self._head(op)

    # -- buffers

    def _put(self, buffer: Buffer, values: Array, stride: int) -> None:
        """Rows [rows, n] of f32, `stride` floats apart."""
        full = np.zeros((self.rows, stride), np.float32)
        full[:, : values.shape[1]] = values
        self.device.write(buffer, full)

    def _get(self, buffer: Buffer, stride: int, columns: int) -> NDArray[np.float32]:
        found = self.device.read(buffer, np.float32, self.rows * stride)
        return found.reshape(self.rows, stride)[:, :columns]

    def _spoil(self, buffer: Buffer, stride: int, columns: int) -> None:
        """What is never written shows.  What pads a row stays zero: no kernel writes it, and linears read it."""
        self._put(buffer, np.full((self.rows, columns), np.nan, np.float32), stride)

    def _place(self, tokens: Array, positions: Array) -> None:
        """The batch's token rows, over the tables of pages that nobody owns."""
        words = np.zeros((self.rows, 4), np.uint32)
        words[:, 0], words[:, 1] = tokens, positions
        words[:, 2:] = self.plan.layout.probe_at, self.plan.layout.probe_at + PROBE
        self.device.write(self.memory.state, words, 4 * ROWS_AT)

    def _normal(self, columns: int) -> Real:
        return self._random.standard_normal((self.rows, columns)).astype(np.float32)

    def _normed_input(self, eps: float) -> tuple[Real, Real, Real]:
        """(x, sums of squares, the scale that norms x) of a linear whose input is normed."""
        hidden, partials = self.plan.program.hidden, self.memory.partials
        x = self._normal(hidden)
        sums = self._random.uniform(0.5, 1.5, (self.rows, partials)).astype(np.float32) * (hidden / partials)
        scale = 1 / np.sqrt(sums.astype(np.float64).sum(1, keepdims=True) / hidden + eps)
        return x, sums.astype(np.float32), scale

    def _put_normed(self, x: Real, sums: Real) -> None:
        self._put(self.memory.hw, x, self.memory.hidden)
        self.device.write(self.memory.sums, sums)

    # -- operations

    def _embed(self, op: Embed, at: int) -> Trial:
        hidden, memory = self.plan.program.hidden, self.memory
        tokens = np.linspace(0, op.table.rows - 1, self.rows).astype(np.int64)
        expected = np.concatenate([part_rows(op.table, token, token + 1) for token in tokens]) * op.scale
        next = next_norm(self.plan.program.operations, at).weight

        def arrange() -> None:
            self._place(tokens, np.zeros(self.rows))
            self._spoil(memory.h, memory.hidden, hidden)
            self._spoil(memory.sums, memory.partials, memory.partials)

        def read() -> Arrays:
            h, hw = (self._get(buffer, memory.hidden, hidden) for buffer in (memory.h, memory.hw))
            return {"h": h, "hw": hw, "sums": self._get(memory.sums, memory.partials, memory.partials)}

        def checks(found: Arrays) -> list[Check]:
            size = 1e-6 * np.abs(expected) + 1e-30
            return [
                Check("h", found["h"], expected, size),
                Check("hw", found["hw"], expected.astype(np.float64) * next, size * np.abs(next) + 1e-30),
                _squares(found),
            ]

        return Trial(arrange, read, checks)

    def _qkv(self, op: Qkv) -> Trial:
        memory, positions = self.memory, np.arange(self.rows) % PAGE
        x, sums, scale = self._normed_input(op.norm.eps)

        def arrange() -> None:
            self._place(np.zeros(self.rows), positions)
            self._put_normed(x, sums)
            self._spoil(memory.q, memory.attended, op.heads * op.head_dim)
            for pool, size in self._pages(op.layer):
                self.device.write(pool, np.zeros(size, np.uint8), pool.size - size)

        def read() -> Arrays:
            pages = LayerPages(op, 1, memory.cache, np.float32)
            (keys, key_size), (values, value_size) = self._pages(op.layer)
            raw = {
                "key words": self.device.read(keys, np.uint8, key_size, keys.size - key_size),
                "value words": self.device.read(values, np.uint8, value_size, values.size - value_size),
            }
            pages.write_keys([0], raw["key words"][None])
            pages.write_values([0], raw["value words"][None])
            k, v = _decoded(pages)
            found = {"q": self._get(memory.q, memory.attended, op.heads * op.head_dim)}
            return {**found, **raw, "k": k[0][:, positions].T, "v": v[-1][positions]}

        def checks(found: Arrays) -> list[Check]:
            (q, q_size), (k, k_size), (v, v_size) = _heads(op, x, scale, positions)
            kinds = (memory.cache.keys, memory.cache.values)
            key_bound, value_bound = (
                SUM * size + _rounding(kind, part, memory.cache.one_bit)
                for kind, part, size in zip(kinds, (k, v), (k_size, v_size), strict=True)
            )
            return [
                Check("q", found["q"][:, : op.head_dim], q, SUM * q_size + 1e-9),
                Check("k", found["k"], k, key_bound + 1e-9),
                Check("v", found["v"], v, value_bound + 1e-9),
            ]

        return Trial(arrange, read, checks)

    def _attend(self, op: Attend, long: bool) -> Trial:
        memory, layer = self.memory, self.plan.program.layers[op.layer]
        last = LONG if long else PAGE - 1
        positions = last - np.arange(self.rows) % PAGE
        pages = LayerPages(layer, 1, memory.cache, np.float32)
        self._fill(pages)
        keys, values = (part.astype(np.float64) for part in _decoded(pages))
        q = self._normal(op.heads * op.head_dim) * np.float32(op.head_dim**-0.5)

        def arrange() -> None:
            self._place(np.zeros(self.rows), positions)
            self._put(memory.q, q, memory.attended)
            self._spoil(memory.att, memory.attended, op.heads * op.head_dim)
            (key_pool, key_size), (value_pool, value_size) = self._pages(op.layer)
            self.device.write(key_pool, pages.read_keys([0]), key_pool.size - key_size)
            self.device.write(value_pool, pages.read_values([0]), value_pool.size - value_size)

        def read() -> Arrays:
            return {"attention": self._get(memory.att, memory.attended, op.heads * op.head_dim)}

        def checks(found: Arrays) -> list[Check]:
            rows = range(self.rows)
            expected = np.stack([_attended(op, q[row], keys, values, int(positions[row])) for row in rows])
            bound = np.full(1, SHARE * max(1.0, op.softcap) * np.abs(values).max())
            return [Check("attention", found["attention"], expected, bound)]

        return Trial(arrange, read, checks)

    def _gated(self, op: Gated) -> Trial:
        memory = self.memory
        x, sums, scale = self._normed_input(op.norm.eps)
        rows = _some(op.gate.rows)

        def arrange() -> None:
            self._put_normed(x, sums)
            self._spoil(memory.act, memory.branch, op.gate.rows)

        def read() -> Arrays:
            return {"act": self._get(memory.act, memory.branch, op.gate.rows)}

        def checks(found: Arrays) -> list[Check]:
            (gate, gate_size), (up, up_size) = (_product(x, part, rows, scale) for part in (op.gate, op.up))
            expected = twins.activate(gate, up, op.activation)
            bound = SUM * (gate_size * np.abs(up) + up_size * np.abs(gate)) + FUNCTION * np.abs(gate * up) + 1e-9
            return [Check("act", found["act"][:, rows], expected, bound)]

        return Trial(arrange, read, checks)

    def _residual(self, op: Residual, at: int) -> Trial:
        memory, hidden = self.memory, self.plan.program.hidden
        source, stride = self.plan.branch(at)
        next = next_norm(self.plan.program.operations, at).weight
        x, h, rows = self._normal(op.linear.columns), self._normal(hidden), _some(hidden)

        def arrange() -> None:
            self._put(source, x, stride)
            self._put(memory.h, h, memory.hidden)
            self._spoil(memory.sums, memory.partials, memory.partials)
            if op.post_norm is not None:
                self._spoil(memory.post, memory.hidden, hidden)

        def read() -> Arrays:
            parts = {"h": memory.h, "hw": memory.hw} | ({"y": memory.post} if op.post_norm is not None else {})
            found: Arrays = {name: self._get(buffer, memory.hidden, hidden) for name, buffer in parts.items()}
            return {**found, "sums": self._get(memory.sums, memory.partials, memory.partials)}

        def checks(found: Arrays) -> list[Check]:
            y, size = _product(x, op.linear, rows)
            if op.post_norm is None:
                expected, bound = h[:, rows] + y * op.scale, SUM * (size * abs(op.scale) + np.abs(h[:, rows]))
                own = [Check("h", found["h"][:, rows], expected, bound)]
            else:
                after = found["y"].astype(np.float64)
                expected = twins.norm_add(h, after, op.post_norm.weight, op.post_norm.eps, op.scale)
                bound = SUM * (np.abs(h) + np.abs(expected - h)) + 1e-9
                own = [Check("y", found["y"][:, rows], y, SUM * size + 1e-9), Check("h", found["h"], expected, bound)]
            weighted = found["h"].astype(np.float64) * next
            return [*own, Check("hw", found["hw"], weighted, 1e-6 * np.abs(weighted) + 1e-30), _squares(found)]

        return Trial(arrange, read, checks)

    def _head(self, op: Head) -> Trial:
        memory, vocabulary = self.memory, self.plan.program.vocabulary
        x, sums, scale = self._normed_input(op.norm.eps)
        count, width = min(self.rows, memory.slots), min(self.head_tiles * memory.head_streams[0].tile.height, vocabulary)
        rows = np.arange(min(FIRST, width))

        def arrange() -> None:
            self._put_normed(x, sums)
            self.device.write(memory.state, np.arange(SLOTS, dtype=np.uint32), 4 * self.plan.layout.outputs_at)
            for slot in range(count):
                self.device.write(memory.logits, np.full(width, np.nan, np.float32), 4 * slot * vocabulary)

        def read() -> Arrays:
            logits = [self.device.read(memory.logits, np.float32, width, 4 * slot * vocabulary) for slot in range(count)]
            best = self.device.read(memory.best, np.uint32, 2 * count * memory.head_tiles).reshape(count, -1, 2)
            return {"logits": np.stack(logits), "best": best[:, : self.head_tiles]}

        def checks(found: Arrays) -> list[Check]:
            y, size = _product(x, op.linear, rows, scale)
            expected = twins.head(y, op.scale, op.softcap)[:count]
            bound = SUM * size[:count] * abs(op.scale) + (FUNCTION * np.abs(expected) if op.softcap else 0) + 1e-9
            own = Check("logits", found["logits"][:, rows], expected, bound)
            tops = found["best"][:, :, 0].copy().view(np.float32)
            token = found["best"][np.arange(count), tops.argmax(axis=1), 1].astype(np.float64)
            best = found["logits"].argmax(axis=1).astype(np.float64)
            return [own, Check("the best token", token, best, np.full(1, 0.5))]

        return Trial(arrange, read, checks)

    # -- pages

    def _pages(self, layer: int) -> tuple[tuple[Buffer, int], tuple[Buffer, int]]:
        """The pools of keys and of values of a layer, each with the bytes of a page; the last page is nobody's."""
        memory = self.memory
        return (memory.keys[layer], memory.key_bytes[layer]), (memory.values[layer], memory.value_bytes[layer])

    def _fill(self, pages: LayerPages) -> None:
        """Made-up keys and values, as the format keeps them."""
        for array, scales in ((pages.keys, pages.key_scales), (pages.values, pages.value_scales)):
            if scales is None:
                array[...] = self._random.standard_normal(array.shape)
            else:
                array[...] = self._random.integers(-127, 128, array.shape)
                scales[...] = self._random.uniform(0.005, 0.02, scales.shape)


def _some(rows: int) -> NDArray[np.int64]:
    """The rows of a matrix that are checked: its first and its last."""
    return np.unique(np.concatenate([np.arange(min(FIRST, rows)), np.arange(max(0, rows - LAST), rows)]))


def _product(x: Real, linear: Linear, rows: NDArray[np.int64], scale: Real | float = 1.0) -> tuple[Real, Real]:
    """(scale * W x + b, the magnitudes that were summed) for some rows of W, in float64."""
    runs = np.split(rows, np.flatnonzero(np.diff(rows) != 1) + 1)
    weight = np.concatenate([linear_rows(linear, int(run[0]), int(run[-1]) + 1) for run in runs]).astype(np.float64)
    bias = np.zeros(len(rows)) if linear.bias is None else linear.bias[rows].astype(np.float64)
    wide = x.astype(np.float64)
    return twins.linear(wide, weight) * scale + bias, np.abs(wide) @ np.abs(weight.T) * scale + np.abs(bias)


def _heads(op: Qkv, x: Real, scale: Real, positions: NDArray[np.int64]) -> list[tuple[Real, Real]]:
    """The first head of q, the first of k and the last of v, each [T, hd] with the magnitudes in it."""
    heads = (0, op.heads, op.heads + 2 * op.kv_heads - 1)
    products = [_product(x, op.linear, np.arange(h * op.head_dim, (h + 1) * op.head_dim), scale) for h in heads]
    norms = (op.q_norm, op.k_norm, None)
    q, k, v = (_normed_head(*pair, norm) for pair, norm in zip(products, norms, strict=True))
    if op.rope is not None:
        turn = twins.rotation(positions.astype(np.int32), op.rope, np.float64)
        larger = max(1.0, op.rope.magnitude)
        q, k = (
            (twins.rope(part[:, None], *turn)[:, 0], larger * size.max(axis=-1, keepdims=True)) for part, size in (q, k)
        )
    return [(q[0] * op.scale, q[1] * op.scale), k, v]


def _normed_head(y: Real, size: Real, norm: Any) -> tuple[Real, Real]:
    """A head and the magnitudes in it, through its own norm where it has one."""
    if norm is None:
        return y, size
    normed = twins.rms_norm(y, norm.weight, norm.eps)
    root = np.sqrt(np.mean(np.square(y), axis=-1, keepdims=True) + norm.eps)
    return normed, (size.max(axis=-1, keepdims=True) / root + 1) * np.abs(norm.weight).max()


def _attended(op: Attend, q: Real, keys: Real, values: Real, position: int) -> Real:
    """[heads * hd] of one row, whose table repeats one page: keys [kv_heads, hd, 16], values [kv_heads, 16, hd]."""
    first = max(0, position + 1 - op.window) if op.window else 0
    slots = np.arange(first, position + 1) % PAGE
    heads = q.astype(np.float64).reshape(op.kv_heads, -1, op.head_dim)
    partial = twins.attention(heads, keys[:, :, slots], values[:, slots], None, op.softcap)
    return twins.attention_combine([partial]).reshape(-1)


def _decoded(pages: LayerPages) -> tuple[Real, Real]:
    """Keys [kv_heads, hd, 16] and values [kv_heads, 16, hd] that the pages stand for."""
    kept = pages.look(slice(0, PAGE), PAGE)
    keys = kept.keys if kept.key_scales is None else kept.keys * kept.key_scales[:, None]
    values = kept.values if kept.value_scales is None else kept.values * kept.value_scales[:, :, None]
    return keys, values


def _rounding(kind: str, kept: Real, one_bit: bool) -> Real:
    """How far a cache format may move a head [T, hd] that it keeps."""
    largest = np.abs(kept).max(axis=-1, keepdims=True)
    share, least = {"f32": (0.0, 0.0), "f16": (2.0**-11, 2.0**-24), "q8": (1.01 if one_bit else 1 / 127, 0.0)}[kind]
    moved: Real = share * largest + least
    return moved


def _squares(found: Arrays) -> Check:
    """The sums of squares that h leaves."""
    expected = np.square(found["h"].astype(np.float64)).sum(axis=1)
    return Check("sums of squares", found["sums"].astype(np.float64).sum(axis=1), expected, 1e-5 * expected + 1e-30)
