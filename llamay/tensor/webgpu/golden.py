"""What each operation of a program must give on a device, from made-up inputs and the model's own weights.

A trial fills the working buffers, runs one operation's commands and compares a part of
what they leave with the NumPy twins in float64: whole heads of q, k and v, whole rows of
attention, the first and the last rows of every other matrix.  Only the page that nobody
owns is written, so that a trial may run while sequences hold the others.
"""

from functools import partial

import numpy as np

from llamay.tensor import twins
from llamay.tensor.batch import PAGE
from llamay.tensor.pools import LayerPages
from llamay.tensor.program import (
    Attend,
    Embed,
    ExpertGated,
    ExpertResidual,
    Gated,
    Head,
    Latent,
    Lift,
    Pool,
    Qkv,
    Residual,
    Route,
    Scan,
    ShortConv,
    Ungated,
)
from llamay.tensor.webgpu import golden_values
from llamay.tensor.webgpu.golden_scan import ScanTrials
from llamay.tensor.webgpu.golden_values import FIRST
from llamay.tensor.webgpu.plan import next_norm
from llamay.tensor.webgpu.state import SLOTS
from llamay.tensor.webgpu.trial import FUNCTION, LONG, SUM, Arrays, Check, Trial, squares
from llamay.tensor.weights import part_rows

SHARE = 1e-4  # error of a softmax's mean of values, in units of the largest value


class Golden(ScanTrials):
    """Makes the trials of one plan; `rows` token rows each."""

    def trial(self, at: int, *, long: bool, tokens: int = 1) -> Trial:
        """The trial of operation `at`; `tokens` a workgroup are tried."""
        match self.plan.program.operations[at]:
            case Embed() as op:
                return self._embed(op, at)
            case Qkv() as op:
                return self._qkv(op, at)
            case Latent() as op:
                return self._latent(op, at)
            case Lift() as op:
                return self._lift(op)
            case Scan() as op:
                return self._scan(op, at)
            case ShortConv() as op:
                return self._short(op, at)
            case Attend() as op:
                return self._attend(op, long)
            case Gated() as op:
                return self._gated(op, at)
            case Ungated() as op:
                return self._ungated(op, at)
            case Residual() as op:
                return self._residual(op, at)
            case Route() as op:
                return self._route(op, at)
            case ExpertGated() as op:
                return self._expert_gated(op, at)
            case ExpertResidual() as op:
                return self._expert_residual(op, at, tokens)
            case Head() as op:
                return self._head(op, at)
            case Pool() as op:
                return self._pool(op, at)

    # -- operations

    def _embed(self, op: Embed, at: int) -> Trial:
        hidden, memory = self.plan.program.hidden, self.memory
        tokens = np.linspace(0, op.table.rows - 1, self.rows).astype(np.int64)
        expected = np.concatenate([part_rows(op.table, token, token + 1) for token in tokens]) * op.scale
        next = next_norm(self.plan.program.operations, at).weight
        positions = np.arange(self.rows) % memory.positions
        if op.positions is not None:
            expected = expected + part_rows(op.positions, 0, int(positions.max()) + 1)[positions]
        kinds = np.arange(self.rows) % (1 if op.kinds is None else op.kinds.rows)
        if op.kinds is not None:
            expected = expected + part_rows(op.kinds, 0, op.kinds.rows)[kinds]

        def arrange() -> None:
            self._place(tokens, positions, kinds=kinds)
            self._spoil(memory.h, memory.hidden, hidden)
            self._spoil(memory.sums, memory.partials, memory.partials)

        def read() -> Arrays:
            h, hw = (self._get(buffer, memory.hidden, hidden) for buffer in (memory.h, memory.hw))
            return {"h": h, "hw": hw, "sums": self._get(memory.sums, memory.partials, memory.partials)}

        def checks(found: Arrays) -> list[Check]:
            if op.norm is not None:
                normed = twins.norm(expected.astype(np.float64), op.norm)
                return [Check("h", found["h"], normed, SUM * (np.abs(normed) + 1))]
            size = 1e-6 * np.abs(expected) + 1e-30
            return [
                Check("h", found["h"], expected, size),
                Check("hw", found["hw"], expected.astype(np.float64) * next, size * np.abs(next) + 1e-30),
                squares(found),
            ]

        return Trial(arrange, read, checks)

    def _qkv(self, op: Qkv, at: int) -> Trial:
        memory, positions = self.memory, np.arange(self.rows) % PAGE
        put, x, scale = self._reading(at, op.norm)

        def arrange() -> None:
            self._place(np.zeros(self.rows), positions)
            put()
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
            k, v = golden_values.decoded(pages)
            found = {"q": self._get(memory.q, memory.attended, op.heads * op.head_dim)}
            return {**found, **raw, "k": k[0][:, positions].T, "v": v[-1][positions]}

        def checks(found: Arrays) -> list[Check]:
            (q, q_size), (k, k_size), (v, v_size) = golden_values.heads(op, x, scale, positions)
            kinds = (memory.cache.keys, memory.cache.values)
            key_bound, value_bound = (
                SUM * size + golden_values.rounding(kind, part, memory.cache.one_bit)
                for kind, part, size in zip(kinds, (k, v), (k_size, v_size), strict=True)
            )
            return [
                Check("q", found["q"][:, : op.head_dim], q, SUM * q_size + 1e-9),
                Check("k", found["k"], k, key_bound + 1e-9),
                Check("v", found["v"], v, value_bound + 1e-9),
            ]

        return Trial(arrange, read, checks)

    def _attend(self, op: Attend, long: bool) -> Trial:
        memory = self.memory
        layer = next(one for one in self.plan.program.layers if one.layer == op.layer and isinstance(one, Qkv | Latent))
        last = LONG if long else PAGE - 1
        positions = last - np.arange(self.rows) % PAGE
        pages = LayerPages(layer, 1, memory.cache, np.float32)
        self._fill(pages)
        keys, values = (part.astype(np.float64) for part in golden_values.decoded(pages))
        q = self._normal(op.heads * op.head_dim) * np.float32(op.head_dim**-0.5)

        def arrange() -> None:
            self._place(np.zeros(self.rows), positions, last)
            self._put(memory.q, q, memory.attended)
            self._spoil(memory.att, memory.attended, op.heads * op.value_dim)
            (key_pool, key_size), (value_pool, value_size) = self._pages(op.layer)
            self.device.write(key_pool, pages.read_keys([0]), key_pool.size - key_size)
            if value_size:
                self.device.write(value_pool, pages.read_values([0]), value_pool.size - value_size)

        def read() -> Arrays:
            return {"attention": self._get(memory.att, memory.attended, op.heads * op.value_dim)}

        def checks(found: Arrays) -> list[Check]:
            attended = partial(golden_values.attended, op, keys=keys, values=values, last=last)
            expected = np.stack([attended(q[row], position=int(positions[row])) for row in range(self.rows)])
            bound = np.full(1, SHARE * max(1.0, op.softcap) * np.abs(values).max())
            return [Check("attention", found["attention"], expected, bound)]

        return Trial(arrange, read, checks)

    def _gated(self, op: Gated, at: int) -> Trial:
        memory = self.memory
        put, x, scale = self._reading(at, op.norm)
        rows = golden_values.some(op.gate.rows)

        def arrange() -> None:
            put()
            self._spoil(memory.act, memory.branch, op.gate.rows)

        def read() -> Arrays:
            return {"act": self._get(memory.act, memory.branch, op.gate.rows)}

        def checks(found: Arrays) -> list[Check]:
            (gate, gate_size), (up, up_size) = (golden_values.product(x, part, rows, scale) for part in (op.gate, op.up))
            expected = twins.activate(gate, up, op.activation)
            bound = SUM * (gate_size * np.abs(up) + up_size * np.abs(gate)) + FUNCTION * np.abs(gate * up) + 1e-9
            return [Check("act", found["act"][:, rows], expected, bound)]

        return Trial(arrange, read, checks)

    def _ungated(self, op: Ungated, at: int) -> Trial:
        memory = self.memory
        put, x, scale = self._reading(at, op.norm)
        rows = golden_values.some(op.up.rows)

        def arrange() -> None:
            put()
            self._spoil(memory.act, memory.branch, op.up.rows)

        def read() -> Arrays:
            return {"act": self._get(memory.act, memory.branch, op.up.rows)}

        def checks(found: Arrays) -> list[Check]:
            up, size = golden_values.product(x, op.up, rows, scale)
            expected = twins.activated(up, op.activation)
            bound = SUM * size * (1.2 + 2 * np.abs(up)) + FUNCTION * np.abs(up) + 1e-9  # the steepest is a square's
            return [Check("act", found["act"][:, rows], expected, bound)]

        return Trial(arrange, read, checks)

    def _residual(self, op: Residual, at: int) -> Trial:
        memory, hidden = self.memory, self.plan.program.hidden
        source, stride = self.plan.branch(at)
        next = next_norm(self.plan.program.operations, at).weight
        x, h, rows = self._normal(op.linear.columns), self._normal(hidden), golden_values.some(hidden)

        def arrange() -> None:
            self._put(source, x, stride)
            self._put(memory.h, h, memory.hidden)
            self._spoil(memory.sums, memory.partials, memory.partials)
            if op.apart:
                self._spoil(memory.post, memory.hidden, hidden)

        def read() -> Arrays:
            parts = {"h": memory.h, "hw": memory.hw} | ({"y": memory.post} if op.apart else {})
            found: Arrays = {name: self._get(buffer, memory.hidden, hidden) for name, buffer in parts.items()}
            return {**found, "sums": self._get(memory.sums, memory.partials, memory.partials)}

        def checks(found: Arrays) -> list[Check]:
            normed: list[Check] = []
            if op.after is not None:  # which left the sum where it was normed from
                wanted = twins.norm(found["hw"].astype(np.float64), op.after)
                normed = [Check("h", found["h"], wanted, SUM * (np.abs(wanted) + 1))]
                found = {**found, "h": found["hw"]}
            y, size = golden_values.product(x, op.linear, rows)
            if op.sum_norm is not None:
                how, branch = op.sum_norm, found["y"].astype(np.float64)
                again = twins.sum_norm(h.astype(np.float64), branch, how.weight, how.bias, how.eps, op.scale)
                summed = Check("hw", found["hw"], again, SUM * (np.abs(again) + np.abs(h) + np.abs(how.weight)))
                return [Check("y", found["y"][:, rows], y, SUM * size + 1e-9), summed, *normed]
            if op.post_norm is None:
                expected, bound = h[:, rows] + y * op.scale, SUM * (size * abs(op.scale) + np.abs(h[:, rows]))
                own = [Check("h", found["h"][:, rows], expected, bound)]
            else:
                after = found["y"].astype(np.float64)
                expected = twins.norm_add(h, after, op.post_norm.weight, op.post_norm.eps, op.scale)
                bound = SUM * (np.abs(h) + np.abs(expected - h)) + 1e-9
                own = [Check("y", found["y"][:, rows], y, SUM * size + 1e-9), Check("h", found["h"], expected, bound)]
            weighted = found["h"].astype(np.float64) * next
            return [
                *own, *normed, Check("hw", found["hw"], weighted, 1e-6 * np.abs(weighted) + 1e-30), squares(found)
            ]  # fmt: skip

        return Trial(arrange, read, checks)

    def _head(self, op: Head, at: int) -> Trial:
        memory, vocabulary = self.memory, self.plan.program.vocabulary
        put, x, scale = self._reading(at, op.norm)
        count, width = min(self.rows, memory.slots), min(self.head_tiles * memory.head_streams[0].tile.height, vocabulary)
        rows = np.arange(min(FIRST, width))

        def arrange() -> None:
            put()
            self.device.write(memory.state, np.arange(SLOTS, dtype=np.uint32), 4 * self.plan.layout.outputs_at)
            for slot in range(count):
                self.device.write(memory.logits, np.full(width, np.nan, np.float32), 4 * slot * vocabulary)

        def read() -> Arrays:
            logits = [self.device.read(memory.logits, np.float32, width, 4 * slot * vocabulary) for slot in range(count)]
            best = self.device.read(memory.best, np.uint32, 2 * count * memory.head_tiles).reshape(count, -1, 2)
            return {"logits": np.stack(logits), "best": best[:, : self.head_tiles]}

        def checks(found: Arrays) -> list[Check]:
            y, size = golden_values.product(x, op.linear, rows, scale)
            expected = twins.head(y, op.scale, op.softcap)[:count]
            bound = SUM * size[:count] * abs(op.scale) + (FUNCTION * np.abs(expected) if op.softcap else 0) + 1e-9
            own = Check("logits", found["logits"][:, rows], expected, bound)
            tops = found["best"][:, :, 0].copy().view(np.float32)
            token = found["best"][np.arange(count), tops.argmax(axis=1), 1].astype(np.float64)
            best = found["logits"].argmax(axis=1).astype(np.float64)
            return [own, Check("the best token", token, best, np.full(1, 0.5))]

        return Trial(arrange, read, checks)

    def _pool(self, op: Pool, at: int) -> Trial:
        memory, hidden, count = self.memory, self.plan.program.hidden, min(self.rows, self.memory.slots)
        put, x, scale = self._reading(at, op.norm)
        positions = np.arange(self.rows).astype(np.int32)  # one sequence, asked for again and again

        def arrange() -> None:
            self._place(np.zeros(self.rows), positions)
            put()
            self.device.write(memory.state, np.arange(SLOTS, dtype=np.uint32), 4 * self.plan.layout.outputs_at)
            self.device.write(memory.logits, np.full(count * hidden, np.nan, np.float32))

        def read() -> Arrays:
            return {"vectors": self.device.read(memory.logits, np.float32, count * hidden).reshape(count, hidden)}

        def checks(found: Arrays) -> list[Check]:
            expected = twins.pool(x.astype(np.float64) * scale, np.arange(count, dtype=np.int32), positions, op.pooling)
            return [Check("vectors", found["vectors"], expected, np.full(1, SUM))]

        return Trial(arrange, read, checks)

    # -- pages

    def _fill(self, pages: LayerPages) -> None:
        """Made-up keys and values, as the format keeps them."""
        for array, scales in ((pages.keys, pages.key_scales), (pages.values, pages.value_scales)):
            if scales is None:
                array[...] = self._random.standard_normal(array.shape)
            else:
                array[...] = self._random.integers(-127, 128, array.shape)
                scales[...] = self._random.uniform(0.005, 0.02, scales.shape)
