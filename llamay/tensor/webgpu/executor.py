"""The WebGPU executor: runs a compiled plan, several steps a submission, tokens staying on the device."""

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import wgpu
from numpy.typing import NDArray

from llamay.errors import ContextFull, OutOfMemory, UsageError
from llamay.sample import Sampling
from llamay.tensor.batch import PAGE, Batch
from llamay.tensor.cache import cache_format
from llamay.tensor.program import Head, Pool, Program
from llamay.tensor.webgpu import batches, budget, latent, mixture, scan
from llamay.tensor.webgpu.command import Command
from llamay.tensor.webgpu.device import Device, Guest
from llamay.tensor.webgpu.encode import Encoder
from llamay.tensor.webgpu.launch import SPLIT
from llamay.tensor.webgpu.memory import Memory
from llamay.tensor.webgpu.pace import Pace, Piece, Step, Stretch
from llamay.tensor.webgpu.pages import PageMover
from llamay.tensor.webgpu.plan import Plan
from llamay.tensor.webgpu.sampling import Sampler
from llamay.tensor.webgpu.selftest import SelfTest
from llamay.tensor.webgpu.state import RING, ROWS_AT, SLOTS, TAKEN_AT, StateLayout
from llamay.tensor.webgpu.tune import defaults

CHUNK = 512  # token rows a step, unless memory says less
BESIDE = 64  # token rows a step of an executor beside another


@dataclass(slots=True, eq=False)
class _Pending:
    """A submission whose tokens are not collected yet."""

    staging: Any
    promise: Any
    steps: int
    outputs: int
    piece: Piece  # what it ran, apart from what was cut off before
    sent: float


class WebGPUExecutor:
    """Runs one Program on one Device.  See `llamay.tensor.executor.Executor` for the contract."""

    ahead = 1

    def __init__(
        self,
        device: Device,
        program: Program,
        pages: int,
        *,
        window_pages: int = 0,
        kv: str = "f32",
        rows: int = CHUNK,
        entries: int = 0,
        allowed: int = 0,
        loaded: Memory | None = None,
    ) -> None:
        """`allowed` bytes may be taken of the device, 0 for what the system tells; raises OutOfMemory beyond it.

        With `loaded` the weights are those, and what more is taken is not counted.
        """
        self.device, self.program, self.pages, self.kv = device, program, pages, kv
        self.name = device.name
        self.notes: tuple[str, ...] = ()  # what the person should know of how it was opened
        self.tuning = defaults(device.launch)  # or what was measured, and is in the launch already
        self._height = max(device.launch.tokens)  # rows that the largest workgroups do together
        rows = -(-rows // self._height) * self._height
        widest = max(1, mixture.widest(program), latent.widest(program), scan.widest(program))
        most = device.binding // (4 * widest)
        self.rows = min(rows, max(1, most // self._height) * self._height)
        # table entries: every page once, and room for sequences that share them
        self.layout = StateLayout(self.rows, entries or max(4096, 4 * (pages + window_pages)))
        parts = (program, self.rows, pages, self.layout, window_pages, cache_format(kv))
        if loaded is None:
            budget.check(device, budget.need(device, *parts), budget.have(device.adapter, allowed), pages * PAGE)
        self.memory = Memory(device, *parts, loaded)
        self.numerics = f"{device.launch.numerics}{'.recast' if self.memory.recast else ''}.{kv}{program.reading}"
        self.window_pages = window_pages if self.memory.windowed else 0
        self.slots = self.memory.slots
        self.movers = tuple(PageMover(device, self.memory, group) for group in range(2 if self.window_pages else 1))
        self.plan = Plan(self.memory, self.layout)
        self.selftest = SelfTest(self.plan)
        self.selftest.start()
        self.pace = Pace(device.adapter)
        bodies = [at for at, op in enumerate(program.operations) if not isinstance(op, Head | Pool)]
        dispatches = [c for at in bodies for c in self.plan.operation(at, 1, long=False)]
        widest = device.launch.tokens[-1]  # bytes of the largest dispatch, of which experts need one for each pair
        self._heaviest = max((c.load * c.x * (c.depth(widest) if c.used else 1) for c in dispatches), default=0)
        self.encoder = Encoder(device)
        self.sampler = Sampler(device, program.vocabulary, self.memory.logits, self.memory.state)
        self.meter = self.encoder.meter
        self._pending: deque[_Pending] = deque()
        self._staging: list[Any] = []
        self._taken = 0  # steps since begin, as every slot counts them
        self._outputs = 0  # slots in use
        self._furthest = 0  # largest position among the slots after what was submitted
        self._left = 0  # steps that the slots' page tables have room for
        self._made: dict[tuple[Any, ...], Stretch] = {}  # steps that continue, by what they depend on

    # -- steps

    def rows_at(self, position: int) -> int:
        """The most rows of one step up to `position`: attention's splits must fit their buffer."""
        splits = position // SPLIT + 1
        return self.rows if splits == 1 else min(self.rows, max(1, self.memory.split_rows // splits))

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        """Logits [outputs, vocabulary] of the batch's output rows, or their vectors [outputs, hidden]."""
        batches.check(batch, self.program, self.memory.positions, self.pages, self.window_pages)
        whole = self.program.both_ways  # in one step, however long that takes
        chunks = self._chunks(batch, 0 if whole else len(batch.tokens))
        if whole and len(chunks) > 1:
            raise UsageError(f"{len(batch.tokens)} rows are to be read both ways; a step takes {chunks[0][1]} like these")
        self._prove(batch, chunks)
        self._write_tables(batch)
        out = np.empty((len(batch.outputs), self.program.width), np.float32)
        for first, count in chunks:
            inside = np.flatnonzero((batch.outputs >= first) & (batch.outputs < first + count))
            self._write_rows(batch, first, count)
            work = [self._body(count, batch, first)]
            for at in range(0, len(inside), self.memory.slots):
                group = inside[at : at + self.memory.slots]
                self._write_outputs(batch.outputs[group] - first)
                self._run([*work, self._head(len(group), count)])
                work = []
                flat = self.device.read(self.memory.logits, np.float32, len(group) * self.program.width)
                out[group] = flat.reshape(len(group), -1)
            self._run(work)
        self.device.check()
        return out

    def begin(self, samplings: tuple[Sampling, ...], histories: tuple[NDArray[np.int32], ...]) -> None:
        """Sets the sampling of each slot; see the protocol."""
        if len(samplings) > self.memory.slots:
            raise UsageError(f"{len(samplings)} sequences a step were asked for, at most {self.memory.slots} fit")
        while self._pending:  # of an interrupted generation
            self.collect()
        self.sampler.begin(samplings, histories)
        if not self.sampler.plain:
            self.selftest.prove_sampling(samplings)
        self._taken = 0
        self._outputs = len(samplings)
        self._write(self.layout.fresh_slots(), TAKEN_AT)

    def submit(self, batch: Batch | None, steps: int) -> None:
        """Queues steps that sample on the device; see the protocol."""
        if not 0 < steps <= RING:
            raise UsageError(f"a submission takes 1 to {RING} steps, not {steps}")
        room = self._left if batch is None else batches.steps_within(batch, self.memory.positions)
        if steps > room:  # they would write where the next sequence's table says
            raise ContextFull(f"{steps} steps were asked for; the page tables and the context have room for {room}")
        self._left = room - steps
        work: list[Stretch] = []
        if batch is not None:
            batches.check(batch, self.program, self.memory.positions, self.pages, self.window_pages)
            chunks = self._chunks(batch, int(batch.outputs[0]) if len(batch.outputs) else 0)
            self._prove(batch, chunks)
            self._outputs = len(batch.outputs)
            self._furthest = int(batch.positions[batch.outputs].max(initial=0)) + 1
        self.selftest.prove(max(1, self._outputs), long=self._furthest + steps > SPLIT)
        if batch is not None:
            work += self._prefill(batch, chunks)
        for _ in range(steps if batch is None else steps - 1):
            work.append(self._next_step())
            self._furthest += 1
        self._send(work, steps)

    def collect(self) -> NDArray[np.int32]:
        """Token ids [steps, outputs] of the oldest submission."""
        self.device.check()
        if not self._pending:
            raise UsageError("nothing was submitted")
        pending = self._pending[0]
        self.device.watch.wait(pending.promise)  # interrupted, it stays the oldest
        self.pace.took(pending.piece, self.device.watch.took(pending.promise, pending.sent))
        self._pending.popleft()
        words = np.frombuffer(pending.staging.read_mapped(), np.uint32)[: pending.steps * SLOTS].copy()
        pending.staging.unmap()
        self._staging.append(pending.staging)
        ids = words.reshape(pending.steps, SLOTS)[:, : pending.outputs]
        return ids.astype(np.int32)  # NO_TOKEN is -1 then

    # -- pages

    def page_bytes(self, group: int) -> int:
        """Bytes of one page of a group over all its layers."""
        return self._mover(group).page_bytes

    def copy_pages(self, group: int, pairs: Sequence[tuple[int, int]]) -> None:
        """Copies page a over page b for each (a, b); see the protocol."""
        self._mover(group).copy(pairs)

    def read_pages(self, group: int, pages: Sequence[int]) -> NDArray[np.uint8]:
        """The pages' bytes [pages, page_bytes]; see the protocol."""
        return self._mover(group).read(pages).view(np.uint8)

    def write_pages(self, group: int, pages: Sequence[int], data: NDArray[np.uint8]) -> None:
        """Fills the pages with bytes [pages, page_bytes]; see the protocol."""
        self._mover(group).write(pages, np.ascontiguousarray(data).view(np.uint32))

    def _mover(self, group: int) -> PageMover:
        if not 0 <= group < len(self.movers):
            raise UsageError(f"page group {group} was named; this executor has {len(self.movers)}")
        return self.movers[group]

    @property
    def dispatches(self) -> int:
        """Dispatches of one decode step."""
        self.selftest.prove(max(1, self._outputs), long=self._furthest >= SPLIT)
        return len(self._next_step().steps)

    def beside(self, kv: str, pages: int, window_pages: int = 0) -> "WebGPUExecutor":
        """An executor over the same weights with pages of its own; see the protocol."""
        return WebGPUExecutor(
            Guest(self.device), self.program, pages, window_pages=window_pages, kv=kv, rows=BESIDE, loaded=self.memory
        )

    def close(self) -> None:
        """Gives the device back."""
        self._pending.clear()
        self.device.close()

    # -- parts of a step

    def _chunks(self, batch: Batch, free: int) -> list[tuple[int, int]]:
        """(first row, rows) of the steps that compute a batch, as large as buffers allow.

        Those that end within the first `free` rows are also no longer than one submission may take.
        """
        chunks, first, rows, height = [], 0, len(batch.tokens), self._height
        bound = self.pace.rows(self.device.launch.tokens[-1], self._heaviest)
        while first < rows:
            count = min(self.rows, rows - first)
            most = self.rows_at(int(batch.positions[first : first + count].max()))
            if most < count:
                count = max(most // height * height, most % height)  # whole workgroups, where there is room for one
            if bound < count and first + bound <= free:
                count = bound
            chunks.append((first, count))
            first += count
        return chunks

    def _prove(self, batch: Batch, chunks: list[tuple[int, int]]) -> None:
        """Tests what the chunks and their outputs need: see SelfTest.prove."""
        for first, count in chunks:
            long = int(batch.positions[first : first + count].max()) >= SPLIT
            self.selftest.prove(count, long=long)
            if batches.following(batch, first, count):
                self.selftest.joint(long=long)
            outputs = int(((batch.outputs >= first) & (batch.outputs < first + count)).sum())
            for part in {min(outputs, self.memory.slots), outputs % self.memory.slots} - {0}:
                self.selftest.prove(part)

    def _prefill(self, batch: Batch, chunks: list[tuple[int, int]]) -> list[Stretch]:
        """Runs all chunks of a batch but the last; returns that, its outputs' logits and tokens."""
        first, count = chunks[-1]
        if batch.outputs[0] < first:
            raise UsageError("an output row lies before the last chunk of its batch; give it a batch of its own")
        self._write_tables(batch)
        for start, rows in chunks[:-1]:
            self._write_rows(batch, start, rows)
            self._run([self._body(rows, batch, start)])
        self._write_rows(batch, first, count)
        self._write_outputs(batch.outputs - first)
        work = [self._body(count, batch, first), self._head(self._outputs, count)]
        if self.sampler.waiting:
            self.sampler.place(batch.positions[batch.outputs] + 1)
        return [*work, Stretch(self._choose(batch=True), 0, 1)]

    def _body(self, count: int, batch: Batch, first: int) -> Stretch:
        long = int(batch.positions[first : first + count].max()) >= SPLIT
        splits = int(batch.positions[first : first + count].max()) // SPLIT + 1 if long else 1
        tokens = self.selftest.width(count)
        fits = splits == 1 or -(-count // self._height) * self._height * splits <= self.memory.split_rows
        joint = self.selftest.joint(long=long) if fits and batches.following(batch, first, count) else 1
        pairs = tokens if mixture.crowded(self.program, count) else 1
        commands = self.plan.commands(tokens, batch=True, head=False, long=long, joint=joint, pairs=pairs)
        return self._stretch(commands, tokens, count, 0, splits)

    def _head(self, outputs: int, rows: int) -> Stretch:
        tokens = self.selftest.width(outputs)
        commands = [c for c in self.plan.commands(tokens, batch=True, head=True, long=False) if c.outputs]
        return self._stretch(commands, tokens, rows, outputs, 1)

    def _next_step(self) -> Stretch:
        """One step that continues from the slots."""
        count = max(1, self._outputs)
        if count > self.rows_at(self._furthest):
            most = self.rows_at(self._furthest)
            raise OutOfMemory(f"{count} sequences at position {self._furthest} were to step together; {most} fit")
        long = self._furthest >= SPLIT
        splits = self._furthest // SPLIT + 1 if long else 1
        key = (count, splits, self.sampler.plain)
        if not self.sampler.plain:
            key = (*key, *self.sampler.key)
        if key not in self._made:
            tokens = self.selftest.width(count)
            pairs = tokens if mixture.crowded(self.program, count) else 1
            commands = self.plan.commands(tokens, batch=False, head=True, long=long, pairs=pairs)
            step = self._stretch(commands, tokens, count, count, splits)
            self._made[key] = replace(step, steps=[*step.steps, *self._choose(batch=False)])
        return self._made[key]

    def _choose(self, *, batch: bool) -> list[Step]:
        """From logits to each slot's token in the state."""
        count = max(1, self._outputs)
        if self.sampler.plain:
            pick = self.plan.pick(batch=batch)
            return [(pick.kernel.pipeline, pick.group, count, 1, 1)]
        steps = self.sampler.steps(self.plan.row_dims(batch=batch))
        pick = self.plan.pick(batch=batch, chosen=self.sampler.chosen)
        return [*steps, (pick.kernel.pipeline, pick.group, count, 1, 1)]

    @staticmethod
    def _stretch(commands: list[Command], tokens: int, rows: int, outputs: int, splits: int) -> Stretch:
        steps: list[Step] = []
        total = 0
        for c in commands:
            y, z = c.depth(outputs if c.outputs else rows), splits if c.split else 1
            steps.append((c.kernel.pipeline, c.group, c.x, y, z))
            total += c.load * c.x * y * z
        return Stretch(steps, total, tokens)

    def _run(self, work: list[Stretch]) -> None:
        for piece in self.pace.pieces(work):
            self._submit(piece)

    def _submit(self, piece: Piece) -> None:
        self.encoder.submit(piece.steps, done=lambda seconds: self.pace.took(piece, seconds))

    def _send(self, work: list[Stretch], steps: int) -> None:
        *before, last = self.pace.pieces(work)
        for piece in before:
            self._submit(piece)
        copies = []
        staging = self._staging.pop() if self._staging else self._new_staging()
        target = 0
        left = steps
        while left:  # the ring may wrap within a submission
            at = self._taken % RING
            count = min(left, RING - at)
            source = 4 * (self.layout.ring_at + at * SLOTS)
            copies.append((self.memory.state.handle, source, staging, 4 * target * SLOTS, 4 * count * SLOTS))
            self._taken += count
            target += count
            left -= count
        sent = time.perf_counter()
        promise = self.encoder.submit(last.steps, copies, staging)
        self._pending.append(_Pending(staging, promise, steps, self._outputs, last, sent))

    def _new_staging(self) -> Any:
        usage = wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST
        return self.device.buffer(4 * RING * SLOTS, usage).handle

    # -- host writes

    def _write_rows(self, batch: Batch, first: int, count: int) -> None:
        padded = -(-count // self._height) * self._height
        rows = self.layout.batch_rows(batch, first, count, padded, both_ways=self.program.both_ways)
        self._write(rows, ROWS_AT)

    def _write_outputs(self, rows: NDArray[np.integer[Any]]) -> None:
        padded = np.zeros(SLOTS, np.uint32)
        padded[: len(rows)] = rows
        self._write(padded, self.layout.outputs_at)

    def _write_tables(self, batch: Batch) -> None:
        words = self.layout.table_words(batch)
        if len(words) > self.layout.entries:
            raise OutOfMemory(f"page tables of {len(words)} entries do not fit the {self.layout.entries} reserved")
        self._write(words, self.layout.tables_at)

    def _write(self, words: NDArray[np.uint32], at: int) -> None:
        """Words of the state from word `at` on."""
        start = time.perf_counter()
        self.device.write(self.memory.state, words, 4 * at)
        self.meter.wrote(start)
