"""Session against an executor whose "model" is a hash of all it was fed, so that any stale or missing page shows."""

import zlib
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from llamay.errors import ContextFull, DeviceLost, UsageError
from llamay.sample import Sampling
from llamay.serve.events import Done, Event, Text
from llamay.serve.request import Limits
from llamay.serve.session import Session
from llamay.tensor.batch import PAGE, Batch

VOCABULARY = 97
GREEDY = Sampling(temperature=0.0)


@dataclass
class HashExecutor:
    """Keeps fed tokens in pages; the next token is a hash of those a row sees and of the seed."""

    name: str = "hash"
    numerics: str = "hash"
    pages: int = 64
    slots: dict[int, int] = field(default_factory=dict)  # page * PAGE + offset -> token
    log: list[str] = field(default_factory=list)
    queue: list[NDArray[np.int32]] = field(default_factory=list)
    last: tuple[int, int, NDArray[np.int32]] | None = None  # token, its position, table
    seed: int = 0
    history: list[int] = field(default_factory=list)
    broken: bool = False

    def _feed(self, token: int, position: int, table: NDArray[np.int32]) -> None:
        self.slots[int(table[position // PAGE]) * PAGE + position % PAGE] = token

    def _next(self, position: int, table: NDArray[np.int32]) -> int:
        seen = [self.slots[int(table[at // PAGE]) * PAGE + at % PAGE] for at in range(position + 1)]
        return zlib.crc32(bytes(seen) + self.seed.to_bytes(8, "little")) % VOCABULARY

    def forward(self, batch: Batch) -> NDArray[np.float32]:
        self.log.append(f"forward {len(batch.tokens)}")
        for token, position in zip(batch.tokens, batch.positions, strict=True):
            self._feed(int(token), int(position), batch.tables[0])
        return np.zeros((len(batch.outputs), VOCABULARY), np.float32)

    def begin(self, samplings: tuple[Sampling, ...], histories: tuple[NDArray[np.int32], ...]) -> None:
        self.seed, self.history = samplings[0].seed, [int(token) for token in histories[0]]

    def submit(self, batch: Batch | None, steps: int) -> None:
        self.log.append(f"submit {0 if batch is None else len(batch.tokens)} {steps}")
        if batch is not None:
            for token, position in zip(batch.tokens, batch.positions, strict=True):
                self._feed(int(token), int(position), batch.tables[0])
            self.last = (-1, int(batch.positions[-1]), batch.tables[0])
        sampled = []
        for _ in range(steps):
            assert self.last is not None
            token, position, table = self.last
            if token >= 0:
                self._feed(token, position, table)
            self.last = (self._next(position, table), position + 1, table)
            sampled.append(self.last[0])
        self.queue.append(np.array(sampled, np.int32)[:, None])

    def collect(self) -> NDArray[np.int32]:
        self.log.append("collect")
        if self.broken:
            raise DeviceLost("gone")
        return self.queue.pop(0)

    def close(self) -> None:
        pass


class Letters:
    """A decoder: one letter a token, every third token's letter held back until the next, ending before `stop`."""

    def __init__(self, stop: str = "") -> None:
        self.held, self.stop = "", stop
        self.stopped: str | None = None

    def push(self, id: int) -> str:
        text = self.held + chr(32 + id % 90)
        if self.stop and self.stop in text:
            self.stopped = self.stop
            return ""
        self.held = text if id % 3 == 0 else ""
        return "" if self.held else text

    def finish(self) -> str:
        text, self.held = "" if self.stopped else self.held, ""
        return text


def expected(prompt: list[int], count: int, seed: int = 0) -> list[int]:
    """The tokens that must come, computed without pages."""
    seen = list(prompt)
    for _ in range(count):
        seen.append(zlib.crc32(bytes(seen) + seed.to_bytes(8, "little")) % VOCABULARY)
    return seen[len(prompt) :]


def letters(tokens: list[int]) -> str:
    return "".join(chr(32 + token % 90) for token in tokens)


def answer(
    session: Session, prompt: list[int], limits: Limits, seed: int | None = 0, stop: str = ""
) -> tuple[str, Done]:
    events: list[Event] = list(session.generate(prompt, GREEDY, limits, Letters(stop), seed))
    done = events.pop()
    assert isinstance(done, Done)
    assert all(isinstance(event, Text) and event.text for event in events)
    return "".join(event.text for event in events if isinstance(event, Text)), done


@given(st.lists(st.integers(0, 96), min_size=1, max_size=70), st.integers(1, 40), st.integers(1, 20))
def test_any_chunk_gives_the_same_text(prompt: list[int], count: int, chunk: int) -> None:
    session = Session(HashExecutor(), 128, chunk=chunk)
    text, done = answer(session, prompt, Limits(tokens=count))
    assert text == letters(expected(prompt, count))
    assert (done.reason, done.timings.generated_tokens, done.timings.prompt_tokens) == ("length", count, len(prompt))


@given(st.data())
def test_a_kept_prefix_changes_nothing(data: st.DataObject) -> None:
    """Whatever was asked before, and however it ended, the next answer is that of a fresh session."""
    session = Session(HashExecutor(), 160, chunk=data.draw(st.integers(1, 33)))
    prompt: list[int] = []
    for _ in range(data.draw(st.integers(2, 4))):
        keep = data.draw(st.integers(0, len(prompt)))
        prompt = prompt[:keep] + data.draw(st.lists(st.integers(0, 96), min_size=1, max_size=20))
        count = data.draw(st.integers(1, 20))
        if data.draw(st.booleans()):
            stream = session.generate(prompt, GREEDY, Limits(tokens=count), Letters(), 0)
            next(stream, None)
            stream.close()
            continue
        text, done = answer(session, prompt, Limits(tokens=count))
        assert text == letters(expected(prompt, count))
        assert done.timings.cached_tokens < len(prompt)
        prompt = prompt + expected(prompt, count)  # as the next turn of a chat does


def test_the_next_turn_computes_only_what_is_new() -> None:
    executor = HashExecutor()
    session = Session(executor, 256, chunk=128)
    prompt = list(range(50))
    answer(session, prompt, Limits(tokens=10))
    executor.log.clear()
    turn = prompt + expected(prompt, 10) + [5, 6, 7]
    _, done = answer(session, turn, Limits(tokens=1))
    assert done.timings.cached_tokens == 59  # all but the last sampled token, which was never fed
    assert executor.log[0] == "submit 4 1"
    assert executor.history == turn


def test_one_submission_runs_while_the_one_before_is_read() -> None:
    executor = HashExecutor()
    answer(Session(executor, 256, chunk=16), list(range(40)), Limits(tokens=30))
    assert executor.log[:3] == ["forward 16", "forward 16", "submit 8 1"]
    ahead = 0
    for entry in executor.log:
        ahead += 1 if entry.startswith("submit") else -1 if entry == "collect" else 0
        assert ahead <= 2
    steps = [int(entry.split()[2]) for entry in executor.log if entry.startswith("submit")]
    assert sum(steps) == 30 and max(steps) > 1
    assert executor.log[3] == "submit 0 1"  # queued before the first collect


def test_an_end_token_ends_the_answer_and_is_not_shown() -> None:
    prompt = [1, 2, 3]
    tokens = expected(prompt, 12)
    end = tokens[7]
    session = Session(HashExecutor(), 64)
    text, done = answer(session, prompt, Limits(tokens=12, ends=frozenset({end})))
    first = tokens.index(end)
    assert (text, done.reason) == (letters(tokens[:first]), "end")
    assert not session.executor.queue  # type: ignore[attr-defined]


def test_a_stop_string_ends_the_answer() -> None:
    prompt = [1, 2, 3]
    tokens = expected(prompt, 12)
    at = next(at for at in range(4, 12) if tokens[at - 1] % 3 and chr(32 + tokens[at] % 90) not in letters(tokens[:at]))
    session = Session(HashExecutor(), 64)
    text, done = answer(session, prompt, Limits(tokens=12), stop=chr(32 + tokens[at] % 90))
    assert (text, done.reason) == (letters(tokens[:at]), "stop")
    assert not session.executor.queue  # type: ignore[attr-defined]


def test_the_end_of_the_context() -> None:
    prompt = list(range(20))
    text, done = answer(Session(HashExecutor(pages=2), 32), prompt, Limits())
    assert (text, done.reason) == (letters(expected(prompt, 12)), "context")


def test_a_prompt_that_does_not_fit_is_refused_with_the_counts() -> None:
    session = Session(HashExecutor(), 32)
    with pytest.raises(ContextFull, match="32 tokens and the context 32"):
        session.generate(list(range(32)), GREEDY, Limits(), Letters())
    with pytest.raises(UsageError, match="no tokens"):
        session.generate([], GREEDY, Limits(), Letters())
    with pytest.raises(ContextFull, match="1 to 16"):
        Session(HashExecutor(pages=1), 17)


def test_no_tokens_asked_for() -> None:
    text, done = answer(Session(HashExecutor(), 32), [1], Limits(tokens=0))
    assert (text, done.reason, done.timings.generated_tokens) == ("", "length", 0)


def test_the_seed_is_drawn_reported_and_repeats_the_text() -> None:
    first, done = answer(Session(HashExecutor(), 64), [1, 2], Limits(tokens=20), seed=None)
    _, other = answer(Session(HashExecutor(), 64), [1, 2], Limits(tokens=20), seed=None)
    again, same = answer(Session(HashExecutor(), 64), [1, 2], Limits(tokens=20), seed=done.seed)
    assert done.seed != other.seed
    assert (again, same.seed) == (first, done.seed)


def test_an_interrupted_answer_leaves_the_session_usable() -> None:
    session = Session(HashExecutor(), 128)
    stream = session.generate([1, 2, 3], GREEDY, Limits(tokens=50), Letters(), 0)
    next(stream)
    with pytest.raises(KeyboardInterrupt):
        stream.throw(KeyboardInterrupt)  # type: ignore[attr-defined]
    assert not session.executor.queue  # type: ignore[attr-defined]
    assert answer(session, [1, 2, 3, 4], Limits(tokens=9))[0] == letters(expected([1, 2, 3, 4], 9))


def test_a_lost_device_ends_the_answer_with_its_error() -> None:
    executor = HashExecutor()
    session = Session(executor, 128)
    stream = session.generate([1, 2, 3], GREEDY, Limits(tokens=50), Letters(), 0)
    next(stream)
    executor.broken = True
    with pytest.raises(DeviceLost):
        list(stream)
