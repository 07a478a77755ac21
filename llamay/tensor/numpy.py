"""The NumPy executor: runs a Program eagerly, in float32 for use or float64 as the twin of every kernel."""

from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamay.errors import ContextFull, UsageError
from llamay.quant import dequantize
from llamay.sample import Recent, Sampling, choose_batch
from llamay.tensor import convs, experts, latents, scans, twins
from llamay.tensor.batch import PAGE, Batch, check_kinds
from llamay.tensor.cache import cache_format
from llamay.tensor.executor import NO_TOKEN
from llamay.tensor.matrices import Matrices
from llamay.tensor.pools import LayerPages, Paged, PagePool
from llamay.tensor.program import (
    Attend,
    Branch,
    Embed,
    ExpertGated,
    ExpertResidual,
    Gated,
    Head,
    Latent,
    Lift,
    Linear,
    Matrix,
    Pool,
    Program,
    Qkv,
    Residual,
    Route,
    Scan,
    ShortConv,
    Ungated,
)
from llamay.tensor.step import Step
from llamay.tensor.twins.linear import Real
from llamay.tensor.view import Split, View

ROWS = 1024  # token rows a step


class NumpyExecutor:
    """Runs one Program over pools of KV pages, on the CPU.  See `llamay.tensor.executor.Executor` for the contract.

    With `precise` everything is float64.  Weights are dequantised once and held while that
    takes at most half of the machine's memory, else a strip at a time at every use;
    `residence` says which.  `hold` decides it instead where given.  With `loaded` the
    weights are those.
    """

    name = "numpy"
    slots = 64
    ahead = 0  # the next step would only keep a token back

    def __init__(
        self,
        program: Program,
        pages: int,
        *,
        window_pages: int = 0,
        kv: str = "f32",
        precise: bool = False,
        hold: bool | None = None,
        loaded: Matrices | None = None,
    ) -> None:
        self.program = program
        self.pages = pages
        self.kv = kv
        self._dtype: type[np.floating[Any]] = np.float64 if precise else np.float32
        matrices = Matrices.load(program, self._dtype, hold) if loaded is None else loaded
        self.held, self.residence = matrices.held, matrices.residence
        self._stable, self._products = matrices.stable, dict(matrices.products)
        self.numerics = f"numpy-{np.dtype(self._dtype).name}-{self._stable.fingerprint}.{kv}{program.reading}"
        self._cache = cache_format(kv)
        windowed = program.windowed if window_pages else frozenset()
        self.window_pages = window_pages if windowed else 0
        counts = [window_pages if op.layer in windowed else pages for op in program.layers]
        sized = list(zip(program.layers, counts, strict=True))
        self._layers = {
            op.layer: LayerPages(op, count, self._cache, self._dtype) for op, count in sized if isinstance(op, Qkv | Latent)
        }
        self._spaces = {op.layer: scans.ScanPages(op, count, self._dtype) for op, count in sized if isinstance(op, Scan)}
        self._convolved = {op.layer: convs.ConvPages(op, count, self._dtype) for op, count in sized if isinstance(op, ShortConv)}
        pages_of: dict[int, Paged] = {**self._layers, **self._spaces, **self._convolved}
        self._windowed = windowed  # layers whose pages are those of the window group
        kept = [(op.layer, pages_of[op.layer]) for op in program.layers]
        self._pools = [PagePool([p for n, p in kept if n not in windowed], pages)]
        if self.window_pages:
            self._pools.append(PagePool([p for n, p in kept if n in windowed], window_pages))
        self._samplings: tuple[Sampling, ...] = ()
        self._histories: tuple[NDArray[np.int32], ...] = ()
        self._recent: list[Recent] = []
        self._last: Batch | None = None
        self._ids = np.empty(0, np.int32)
        self._done: deque[NDArray[np.int32]] = deque()

    def rows_at(self, position: int) -> int:
        """The most rows of one step; more would only take more memory."""
        return ROWS

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Computes the batch and returns logits [outputs, vocabulary]."""
        return self.logits(batch).astype(np.float32, copy=False)

    def logits(self, batch: Batch) -> Real:
        """As forward, in the executor's own type."""
        checked, both_ways = self._checked(batch), self.program.both_ways
        step = Step(checked, self._dtype, windows=bool(self.window_pages), both_ways=both_ways)
        h = q = np.empty(0, self._dtype)
        left: dict[Branch, Real] = {}  # by the branches
        parts = weights = np.empty(0, self._dtype)
        chosen = np.empty((0, 0), np.int64)
        with np.errstate(over="ignore", invalid="ignore"):  # a large gate: 1 / (1 + inf) is the right 0; NaN: NO_TOKEN
            for op in self.program.operations:
                match op:
                    case Embed():
                        h = self._embed(op, batch)
                    case Qkv():
                        q = self._qkv(op, step, h)
                    case Latent():
                        q = self._latent(op, step, h)
                    case Scan():
                        left["attention"] = self._scan(op, step, h)
                    case ShortConv():
                        runs = step.places[op.layer in self._windowed].runs
                        left["attention"] = convs.run(op, h, self._convolved[op.layer], runs, self._linear)
                    case Attend():
                        left["attention"] = self._attend(op, step, q)
                    case Lift():
                        left["attention"] = latents.lifted(op, left["attention"], self._linear)
                    case Gated():
                        x = twins.norm(h, op.norm)
                        gate, up = self._linear(op.gate, x), self._linear(op.up, x)
                        left["feed_forward"] = twins.activate(gate, up, op.activation)
                    case Ungated():
                        up = self._linear(op.up, twins.norm(h, op.norm))
                        left["feed_forward"] = twins.activated(up, op.activation)
                    case Residual():
                        h = self._residual(op, h, left[op.branch])
                    case Route():
                        chosen, weights = twins.route(self._linear(op.linear, twins.norm(h, op.norm)), op)
                    case ExpertGated():
                        parts = experts.gated(op, twins.norm(h, op.norm), chosen, self._linear)
                    case ExpertResidual():
                        h = experts.residual(op, h, parts, left.get("feed_forward"), chosen, weights, self._linear)
                    case Head():
                        h = self._head(op, h[batch.outputs])
                    case Pool():
                        h = twins.pool(twins.norm(h, op.norm), batch.outputs, batch.positions, op.pooling)
        return h

    def begin(self, samplings: tuple[Sampling, ...], histories: tuple[NDArray[np.int32], ...]) -> None:
        """Sets the sampling of each output slot, and the tokens its penalties have seen so far."""
        self._done.clear()
        self._samplings = samplings
        self._histories = histories
        self._recent = []

    def submit(self, batch: Batch | None, steps: int) -> None:
        """Computes `steps` steps at once; the ids wait for collect."""
        ids = np.empty((steps, len(self._samplings)), np.int32)
        for step in range(steps):
            current = batch if step == 0 and batch is not None else self._next()
            if len(current.outputs) != len(self._samplings):
                raise UsageError(f"{len(current.outputs)} outputs, but begin gave {len(self._samplings)} samplings")
            ids[step] = self._ids = self._choose(self.logits(current), current.positions[current.outputs])
            self._last = current
        self._done.append(ids)

    def collect(self) -> NDArray[np.int32]:
        """The token ids [steps, outputs] of the oldest submission."""
        if not self._done:
            raise UsageError("collect was called with no submission outstanding")
        return self._done.popleft()

    def page_bytes(self, group: int) -> int:
        """Bytes of a page of a group (0: full attention, 1: sliding windows) over all its layers."""
        return self._pool(group).page_bytes

    def copy_pages(self, group: int, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies page a over page b for each (a, b); no b may also be an a."""
        self._pool(group).copy(pairs)

    def read_pages(self, group: int, pages: Sequence[int]) -> NDArray[np.uint8]:
        """The pages' bytes [pages, page_bytes]: the keys of the group's layers, then their values."""
        return self._pool(group).read(pages)

    def write_pages(self, group: int, pages: Sequence[int], data: NDArray[np.uint8]) -> None:
        """Fills the pages with what read_pages gave."""
        self._pool(group).write(pages, data)

    def beside(self, kv: str, pages: int, window_pages: int = 0) -> "NumpyExecutor":
        """An executor over the same weights with pages of its own; see the protocol."""
        matrices = Matrices(self.held, self.residence, self._stable, self._products)
        precise = self._dtype is np.float64
        return NumpyExecutor(self.program, pages, window_pages=window_pages, kv=kv, precise=precise, loaded=matrices)

    def close(self) -> None:
        """Drops weights and pages."""
        self._products.clear()
        self._layers.clear()
        self._spaces.clear()
        self._pools.clear()

    def _linear(self, linear: Linear, x: Real) -> Real:
        return self._products[id(linear)](x)

    def _embed(self, op: Embed, batch: Batch) -> Real:
        """h [T, H] of the rows' tokens, positions and kinds."""
        kinds = np.zeros(len(batch.tokens), np.int32) if batch.kinds is None else batch.kinds
        more = [(op.positions, batch.positions), (op.kinds, kinds)]
        added = [self._rows(table, rows) for table, rows in more if table is not None]
        h = twins.embed(self._rows(op.table, batch.tokens), op.scale, *added)
        return h if op.norm is None else twins.norm(h, op.norm)

    def _rows(self, table: Matrix, rows: NDArray[np.int32]) -> Real:
        return dequantize(table.type, table.take(rows)).astype(self._dtype, copy=False)

    def _qkv(self, op: Qkv, step: Step, h: Real) -> Real:
        """Stores the rows' keys and values; returns q [T, heads, hd], turned and scaled."""
        y = self._linear(op.linear, twins.norm(h, op.norm))
        turn = None if op.rope is None else step.rotation(op.rope)
        pages = self._layers[op.layer]
        slots = step.places[op.layer in self._windowed].slots
        return twins.rope_store(
            y, op, turn, pages.keys, pages.values, slots, pages.key_scales, pages.value_scales,
            one_bit=self._cache.one_bit,
        )  # fmt: skip

    def _latent(self, op: Latent, step: Step, h: Real) -> Real:
        """As `_qkv`, of one row for all heads."""
        pages, slots = self._layers[op.layer], step.places[op.layer in self._windowed].slots
        y, asked = latents.asked(op, twins.norm(h, op.norm), self._linear)
        q, own = twins.latent_store(
            y, asked, op, step.rotation(op.rope), pages.keys, slots, pages.key_scales, one_bit=self._cache.one_bit
        )
        return latents.absorbed(op, q, own, self._linear)

    def _scan(self, op: Scan, step: Step, h: Real) -> Real:
        """The branch [T, inner]; the rows leave in the layer's pages what those after them need."""
        runs = step.places[op.layer in self._windowed].runs
        return scans.run(op, h, self._spaces[op.layer], runs, self._linear)

    def _attend(self, op: Attend, step: Step, q: Real) -> Real:
        """Attention of q [T, heads, hd] over the layer's pages -> [T, heads * value_dim]."""
        pages = self._layers[op.layer]
        group = op.heads // op.kv_heads
        out = np.empty((len(q), op.heads * op.value_dim), q.dtype)
        for view in step.places[op.layer in self._windowed].views:
            count = len(view.rows)
            grouped = q[view.rows].reshape(count, op.kv_heads, group, op.head_dim)
            rows = grouped.transpose(1, 2, 0, 3).reshape(op.kv_heads, group * count, op.head_dim)
            sinks = None if op.sinks is None else np.repeat(op.sinks, count).reshape(op.kv_heads, group * count, 1)
            partials = []
            for split in view.splits(op.window):
                visible = None if split.visible is None else np.tile(split.visible, (group, 1))
                kept, product = split.read(pages), self._stable.product
                scales = kept.key_scales, kept.value_scales
                bias = None if op.slopes is None else _distances(op, view, split, q.dtype)
                partials.append(
                    twins.attention(rows, kept.keys, kept.values, visible, op.softcap, product, *scales, bias)
                )
            value = twins.attention_combine(partials, sinks).reshape(op.kv_heads, group, count, op.value_dim)
            out[view.rows] = value.transpose(2, 0, 1, 3).reshape(count, -1)
        return out

    def _residual(self, op: Residual, h: Real, branch: Real) -> Real:
        y = self._linear(op.linear, branch)
        if op.sum_norm is not None:
            h = twins.sum_norm(h, y, op.sum_norm.weight, op.sum_norm.bias, op.sum_norm.eps, op.scale)
        elif op.post_norm is None:
            h = twins.residual(h, y, op.scale)
        else:
            h = twins.norm_add(h, y, op.post_norm.weight, op.post_norm.eps, op.scale)
        return h if op.after is None else twins.norm(h, op.after)

    def _head(self, op: Head, h: Real) -> Real:
        if not len(h):
            return np.empty((0, self.program.vocabulary), h.dtype)
        return twins.head(self._linear(op.linear, twins.norm(h, op.norm)), op.scale, op.softcap)

    def _choose(self, logits: Real, positions: NDArray[np.int32]) -> NDArray[np.int32]:
        """A token for each output slot, whose row stood at the given position."""
        if not self._recent:
            seen = zip(self._samplings, self._histories, positions, strict=True)
            vocabulary = self.program.vocabulary
            self._recent = [Recent(vocabulary, how.repeat_last_n, past, int(at) + 1) for how, past, at in seen]
        counts = [recent.counts for recent in self._recent]
        tokens = choose_batch(logits.astype(np.float32, copy=False), self._samplings, counts, positions)
        for recent, token, position in zip(self._recent, tokens, positions, strict=True):
            recent.push(int(token), int(position) + 1)
        numbers = np.isfinite(logits[np.arange(len(tokens)), tokens])
        return np.where(numbers, tokens, np.int32(NO_TOKEN))

    def _next(self) -> Batch:
        """The step after the last one: each output slot's token, one position later."""
        if self._last is None:
            raise UsageError("the first submission needs a batch to continue from")
        last = self._last
        return Batch(
            tokens=np.maximum(self._ids, 0),  # of NO_TOKEN nothing is asked
            positions=last.positions[last.outputs] + np.int32(1),
            sequences=last.sequences[last.outputs],
            tables=last.tables,
            windows=last.windows,
            outputs=np.arange(len(last.outputs), dtype=np.int32),
        )

    def _checked(self, batch: Batch) -> Batch:
        """The batch, or UsageError where it names a token, position or page that is not there."""
        rows = len(batch.tokens)
        if not (rows and len(batch.positions) == rows and len(batch.sequences) == rows):
            raise UsageError(f"a batch needs as many positions and sequences as its {rows} tokens, and at least one")
        if batch.sequences.min() < 0 or batch.sequences.max() >= len(batch.tables) or batch.positions.min() < 0:
            raise UsageError(f"a batch holds a negative position, or a sequence beyond its {len(batch.tables)} tables")
        if batch.positions.max() >= self.program.context:
            raise ContextFull(f"position {batch.positions.max()} lies outside the context of {self.program.context}")
        if len(batch.outputs) and (batch.outputs.min() < 0 or batch.outputs.max() >= rows):
            raise UsageError(f"a batch asks for logits of a row beyond its {rows}")
        if batch.tokens.min() < 0 or batch.tokens.max() >= self.program.vocabulary:
            raise UsageError(f"a batch holds a token outside the vocabulary of {self.program.vocabulary}")
        check_kinds(batch, self.program)
        self._check_tables(batch, batch.tables, self.pages)
        if self.window_pages:
            if len(batch.windows) != len(batch.tables):
                raise UsageError(f"{len(batch.tables)} sequences came with {len(batch.windows)} window tables")
            self._check_tables(batch, batch.windows, self.window_pages)
        return batch

    @staticmethod
    def _check_tables(batch: Batch, tables: tuple[NDArray[np.int32], ...], pages: int) -> None:
        for index, table in enumerate(tables):
            positions = batch.positions[batch.sequences == index]
            if len(positions) and int(positions.max()) >= len(table) * PAGE:
                raise UsageError(f"position {positions.max()} lies beyond the {len(table)} pages of its table")
            if len(table) and (table.min() < 0 or table.max() >= pages):
                raise UsageError(f"a table names a page outside the pool of {pages}")

    def _pool(self, group: int) -> PagePool:
        if not 0 <= group < len(self._pools):
            raise UsageError(f"page group {group} was named; this executor has {len(self._pools)}")
        return self._pools[group]


def _distances(op: Attend, view: View, split: Split, dtype: np.dtype[Any]) -> Real:
    """What ALiBi adds to the scores of a split [kv_heads, group * queries, width]."""
    positions = np.arange(split.start, split.start + split.width, dtype=np.int64)
    apart = -np.abs(positions - view.positions[:, None]).astype(dtype)
    slopes = np.asarray(op.slopes, dtype).reshape(op.kv_heads, -1, 1, 1)
    bias: Real = (slopes * apart).reshape(op.kv_heads, -1, split.width)
    return bias
