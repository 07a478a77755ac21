"""An executor whose "model" is a hash of all that a row sees, so that any stale, missing or foreign page shows."""

import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from llamay.errors import DeviceLost, UsageError
from llamay.kv import Cache
from llamay.sample import Sampling
from llamay.serve.engine import Bounds, Engine
from llamay.serve.events import Done, Ended, Event, Failed, Text
from llamay.serve.request import Limits, Request
from llamay.serve.ticket import Ticket
from llamay.tensor.batch import PAGE, Batch

VOCABULARY = 97
Ints = NDArray[np.int32]


@dataclass
class Slot:
    """An output slot: the token to be fed next, its position, its tables."""

    token: int
    position: int
    tables: tuple[Ints, ...]


class HashExecutor:
    """Keeps the fed tokens themselves in pages; the next token is a hash of those a row sees and of the seed.

    Whatever a step reads is read through the tables it was given, as a device would.  With a
    window, group 1 must hold the last `span` tokens.  Penalties: the history given to `begin`
    and what was sampled since are hashed too where the sampling penalises.
    """

    name = numerics = "hash"
    kv = "f32"
    ahead = 1

    def __init__(self, pages: int, window_pages: int = 0, span: int = 0, slots: int = 8, rows: int = 1 << 20) -> None:
        self.program = SimpleNamespace(vocabulary=VOCABULARY, context=1 << 20, pools=False, layers=(), span=span)
        self.pages, self.window_pages, self.span, self.slots, self.rows = pages, window_pages, span, slots, rows
        self.stores = [np.full((count, PAGE), -1, np.int64) for count in (pages, window_pages) if count]
        self.log: list[tuple[Any, ...]] = []
        self.queue: deque[Ints] = deque()
        self.samplings: tuple[Sampling, ...] = ()
        self.histories: list[list[int]] = []
        self.next: list[Slot] = []
        self.fault: Exception | None = None  # raised by the next step
        self.gate: threading.Event | None = None  # a step waits for it
        self.reached = threading.Event()  # one does
        self.seconds = 0.0  # a step takes
        self.closed = False

    def rows_at(self, position: int) -> int:
        return self.rows

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        self._step("forward", batch, 0)
        self._feed_batch(batch)
        rows = [self._seen(int(batch.positions[row]), self._tables(batch, row)) for row in batch.outputs]
        return np.array([logits_of(seen) for seen in rows], np.float32).reshape(-1, VOCABULARY)

    def begin(self, samplings: tuple[Sampling, ...], histories: tuple[Ints, ...]) -> None:
        self.log.append(("begin", len(samplings)))
        self.queue.clear()
        self.samplings, self.histories = samplings, [history.tolist() for history in histories]
        self.next = []

    def submit(self, batch: Batch | None, steps: int) -> None:
        self._step("submit", batch, steps)
        sampled = []
        for step in range(steps):
            if step == 0 and batch is not None:
                self._feed_batch(batch)
                positions = [int(batch.positions[row]) for row in batch.outputs]
                tables = [self._tables(batch, row) for row in batch.outputs]
            else:
                for slot in self.next:
                    self._feed(slot.token, slot.position, slot.tables)
                positions, tables = [slot.position for slot in self.next], [slot.tables for slot in self.next]
            assert len(positions) == len(self.samplings)
            tokens = [self._sample(index, at, pages) for index, (at, pages) in enumerate(zip(positions, tables, strict=True))]
            self.next = [Slot(token, at + 1, pages) for token, at, pages in zip(tokens, positions, tables, strict=True)]
            sampled.append(tokens)
        self.queue.append(np.array(sampled, np.int32))

    def collect(self) -> Ints:
        self.log.append(("collect",))
        if self.fault is not None:
            raise self.fault
        return self.queue.popleft()

    def copy_pages(self, group: int, pairs: Sequence[tuple[int, int]]) -> None:
        for source, target in pairs:
            self.stores[group][target] = self.stores[group][source]

    def close(self) -> None:
        self.closed = True

    def _step(self, name: str, batch: Batch | None, steps: int) -> None:
        if self.closed:
            raise DeviceLost("the device was closed")
        if self.fault is not None:
            raise self.fault
        if self.gate is not None:
            self.reached.set()
            assert self.gate.wait(60)
        if self.seconds:
            time.sleep(self.seconds * max(1, steps))
        rows = 0 if batch is None else len(batch.tokens)
        self.log.append((name, rows, steps, 0 if batch is None else len(batch.outputs)))
        if rows > self.rows:
            raise UsageError(f"{rows} rows")
        if batch is not None and self.window_pages and len(batch.windows) != len(batch.tables):
            raise UsageError("no window tables")

    def _tables(self, batch: Batch, row: int) -> tuple[Ints, ...]:
        sequence = int(batch.sequences[row])
        return tuple(tables[sequence] for tables in (batch.tables, batch.windows) if tables)

    def _feed_batch(self, batch: Batch) -> None:
        for row, (token, position) in enumerate(zip(batch.tokens, batch.positions, strict=True)):
            self._feed(int(token), int(position), self._tables(batch, row))

    def _feed(self, token: int, position: int, tables: tuple[Ints, ...]) -> None:
        for store, table in zip(self.stores, tables, strict=True):
            store[table[position // PAGE], position % PAGE] = token * 65536 + position

    def _seen(self, position: int, tables: tuple[Ints, ...]) -> list[int]:
        at = np.arange(position + 1)
        words = self.stores[0][tables[0][at // PAGE], at % PAGE]
        if self.span:
            near = at[max(0, position - self.span + 1) :]
            window = self.stores[1][tables[1][near // PAGE], near % PAGE]
            words = np.concatenate([words[: len(at) - len(near)], window])
        return [int(word) // 65536 if int(word) % 65536 == place else 999 for place, word in enumerate(words)]

    def _sample(self, index: int, position: int, tables: tuple[Ints, ...]) -> int:
        how = self.samplings[index]
        token = choice(self._seen(position, tables), how.seed, self.histories[index] if how.penalises else [])
        self.histories[index].append(token)
        return token


def choice(seen: Sequence[int], seed: int, history: Sequence[int] = ()) -> int:
    """The token after `seen`."""
    words = np.array([*seen, -1, *history, -1, seed], np.int64)
    return zlib.crc32(words.tobytes()) % VOCABULARY


def logits_of(seen: Sequence[int]) -> NDArray[np.float32]:
    """Logits that tell what was seen."""
    return np.random.default_rng(zlib.crc32(np.array(seen, np.int64).tobytes())).standard_normal(VOCABULARY, np.float32)


def expected(prompt: Sequence[int], count: int, seed: int = 0, *, penalises: bool = False) -> list[int]:
    """The tokens that must come, computed without pages."""
    seen = list(prompt)
    for _ in range(count):
        seen.append(choice(seen, seed, seen if penalises else ()))
    return seen[len(prompt) :]


def letters(tokens: Sequence[int]) -> str:
    """How the decoder writes tokens."""
    return "".join(chr(32 + token % 90) for token in tokens)


class Letters:
    """A decoder: one letter a token, every third token's letter held back until the next, ending before a stop."""

    def __init__(self, stops: tuple[str, ...] = ()) -> None:
        self.held, self.stops = "", stops
        self.stopped: str | None = None

    @property
    def withheld(self) -> int:
        return len(self.held)

    def push(self, id: int) -> str:
        text = self.held + chr(32 + id % 90)
        for stop in self.stops:
            if stop in text:
                self.stopped, self.held = stop, ""
                return text[: text.index(stop)]
        self.held = text if id % 3 == 0 else ""
        return "" if self.held else text

    def finish(self) -> str:
        text, self.held = "" if self.stopped else self.held, ""
        return text


@dataclass
class HashModel:
    """What the engine schedules."""

    executor: HashExecutor
    cache: Cache
    context: int
    closed: bool = field(default=False)

    @classmethod
    def of(cls, pages: int = 64, context: int = 0, window: int = 0, span: int = 0, **more: Any) -> "HashModel":
        executor = HashExecutor(pages, window, span, **more)
        cache = Cache(pages, window, span, executor.copy_pages)
        return cls(executor, cache, context or pages * PAGE)

    def decoder(self, prompt: tuple[int, ...], stops: tuple[str, ...]) -> Letters:
        return Letters(stops)

    def close(self) -> None:
        self.closed = True
        self.executor.close()


@dataclass
class Answer:
    """All that a ticket told."""

    events: list[Event]

    @property
    def final(self) -> Done | Failed:
        last = self.events[-1]
        assert isinstance(last, Done | Failed)
        assert sum(isinstance(event, Done | Failed) for event in self.events) == 1
        return last

    @property
    def done(self) -> Done:
        assert isinstance(self.final, Done), self.final
        return self.final

    @property
    def error(self) -> Exception:
        assert isinstance(self.final, Failed), self.final
        return self.final.error

    def text(self, index: int = 0) -> str:
        return "".join(event.text for event in self.events if isinstance(event, Text) and event.index == index)

    def tokens(self, index: int = 0) -> list[int]:
        (ended,) = [event for event in self.events if isinstance(event, Ended) and event.index == index]
        return list(ended.tokens)


def listen(ticket: Ticket) -> Answer:
    """Waits for the end, which has to come."""
    events: list[Event] = []
    while not events or not isinstance(events[-1], Done | Failed):
        event = ticket.get(timeout=60)
        assert event is not None, f"request {ticket.id} was left without an answer"
        events.append(event)
    return Answer(events)


def request(prompt: Sequence[int], count: int | None, **more: Any) -> Request:
    """A greedy request."""
    seed = more.pop("seed", 0)
    sampling = more.pop("sampling", Sampling(temperature=0.0, seed=seed))
    limits = Limits(count, more.pop("ends", frozenset()), more.pop("stops", ()))
    return Request(tuple(prompt), sampling, limits, **more)


def prompt_of(number: int, length: int) -> list[int]:
    """A prompt that no other has."""
    return np.random.default_rng(number).integers(0, VOCABULARY, length).tolist()


class Lab:
    """Makes models and engines, and sees to it that every page is accounted for in the end."""

    Model, expected, letters, logits_of = HashModel, staticmethod(expected), staticmethod(letters), staticmethod(logits_of)
    listen, request, prompt_of = staticmethod(listen), staticmethod(request), staticmethod(prompt_of)

    def __init__(self) -> None:
        self.started: list[tuple[Engine, HashModel]] = []

    def model(self, pages: int = 64, **more: Any) -> HashModel:
        return HashModel.of(pages, **more)

    def start(self, model: HashModel, **bounds: Any) -> Engine:
        engine = Engine.of(model, Bounds(**bounds))
        self.started.append((engine, model))
        return engine

    def answer(self, engine: Engine, prompt: Sequence[int], count: int | None, **more: Any) -> Answer:
        return listen(engine.submit(request(prompt, count, **more)))

    def until(self, so: Callable[[], Any], seconds: float = 60.0) -> None:
        """Waits until something is so: what an engine does for nobody in particular comes a moment later."""
        deadline = time.monotonic() + seconds
        while not so():
            assert time.monotonic() < deadline, "it did not come about"
            time.sleep(0.005)

    def close_held(self, engine: Engine, gate: threading.Event) -> None:
        """Closes an engine that waits for a gate, which opens once it is closing."""
        closer = threading.Thread(target=engine.close)
        closer.start()
        self.until(lambda: engine._closed)
        gate.set()
        closer.join(60)
        assert not closer.is_alive()

    def settle(self, engine: Engine) -> None:
        """Waits until nothing is under way, and looks that nobody has a page but the tree."""
        self.until(lambda: not any(model.requests for model in engine.stats().models))
        engine.call(lambda scheduler: scheduler.cache.check_integrity())
        assert engine.call(lambda scheduler: len(scheduler.cache.contexts)) == 0

    def close(self) -> None:
        for engine, model in self.started:
            if not model.closed:
                self.settle(engine)
            engine.close()
            assert model.closed


@pytest.fixture
def lab() -> Iterator[Lab]:
    """A Lab whose engines are closed after the test."""
    made = Lab()
    yield made
    made.close()
