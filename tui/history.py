"""History: what follows from snapshots that come one after the other; rates, speeds, and requests that are over."""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from llamay.tui.moment import Model, Over, Request, Snapshot

MOST = 10_000  # requests that are remembered
WINDOW = 2.0  # seconds that rates are taken over
SPEEDS = 240  # samples of the decode rate: a minute at four a second
PARTS = ("schedule", "encode", "device", "sample", "send")
OUTCOMES = {"end", "stop", "length", "context", "cancel"}  # everything else is an error's name


@dataclass(frozen=True, slots=True)
class Rates:
    """What a model did in the last moments."""

    decode: float = 0.0  # tokens a second
    prefill: float = 0.0
    steps: float = 0.0  # a second
    parts: tuple[float, ...] = (0.0,) * len(PARTS)  # seconds a step, by PARTS

    @property
    def step(self) -> float:
        """Seconds a step took."""
        return sum(self.parts)


@dataclass(frozen=True, slots=True)
class Entry:
    """One request, under way or over."""

    key: str
    id: int
    model: str
    state: str  # waiting, prefill, decode, paused, done, cancelled or failed
    client: str
    prompt: int
    cached: int
    generated: int
    queued: float  # seconds
    prefill: float
    decode: float
    outcome: str = ""
    preempted: int = 0
    at: float = 0.0  # Unix seconds: when it ended, or the last look
    context: int | None = None
    via: str = ""  # which API it came by

    @property
    def first(self) -> float:
        """Seconds until the first token."""
        return self.queued + self.prefill

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return max(self.generated - 1, 0) / self.decode if self.decode > 0 else 0.0

    @property
    def live(self) -> bool:
        """Whether it is under way."""
        return self.state in ("waiting", "prefill", "decode", "paused")


class History:
    """Hears snapshots; one thread has it."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._over: dict[str, Entry] = {}  # the oldest first
        self._live: dict[str, Entry] = {}
        self._before: Snapshot | None = None
        self._recent: deque[Snapshot] = deque()  # of the last WINDOW seconds
        self._start = 0  # how often the engine was started anew: its ids begin again
        self._step: dict[str, Rates] = {}  # the last ones with a step in them
        self.rates: dict[str, Rates] = {}
        self.speeds: deque[float] = deque(maxlen=SPEEDS)
        self.changed = 0  # grows when an entry does

    @property
    def entries(self) -> list[Entry]:
        """The newest first: those under way, then those that are over."""
        return [*reversed(self._live.values()), *reversed(self._over.values())]

    def find(self, key: str) -> Entry | None:
        """The entry of a key."""
        return self._live.get(key) or self._over.get(key)

    def step(self, model: str) -> Rates:
        """The last step times that are known."""
        return self._step.get(model, Rates())

    def hear(self, snapshot: Snapshot) -> tuple[Entry, ...]:
        """Takes a snapshot in; returns what ended since the one before."""
        before, self._before = self._before, snapshot
        if before is not None and (snapshot.uptime < before.uptime or snapshot.finished < before.finished):
            self._start += 1
            self._live.clear()
            self._recent.clear()
        self._measure(snapshot)
        ended = self._end(snapshot.ended)
        live = {}
        for model in snapshot.models:
            for request in model.requests:
                key = self._key(request.id)
                live[key] = self._under_way(key, model, request, snapshot.time)
        for key, entry in self._live.items():
            if key not in live and key not in self._over:  # it ended, and nobody told how
                ended.append(self._put(_gone(entry)))
        self._live = live
        self.changed += 1
        return tuple(ended)

    def _measure(self, now: Snapshot) -> None:
        """Rates over the last moments: a slow device makes a step in more than one tick."""
        while self._recent and now.time - self._recent[0].time > WINDOW:
            self._recent.popleft()
        self.rates = {}
        for model in now.models:
            there = ((before, before.model(model.name)) for before in self._recent)
            since = next(((before.time, earlier) for before, earlier in there if earlier is not None), None)
            found = Rates() if since is None else rates(since[1], model, now.time - since[0])
            self.rates[model.name] = found
            if found.steps:
                self._step[model.name] = found
        self._recent.append(now)
        self.speeds.append(sum(one.decode for one in self.rates.values()))

    def _end(self, ended: Iterable[Over]) -> list[Entry]:
        found = []
        for one in ended:
            key = self._key(one.id)
            if key not in self._over:
                found.append(self._put(_over(key, one)))
        return found

    def _put(self, entry: Entry) -> Entry:
        self._over[entry.key] = entry
        while len(self._over) > self._most:
            del self._over[next(iter(self._over))]
        return entry

    def _under_way(self, key: str, model: Model, request: Request, now: float) -> Entry:
        earlier = self._live.get(key)
        since = request.seconds - request.waited
        decoding = request.generated > 0
        prefill = earlier.prefill if decoding and earlier is not None and earlier.generated else since
        return Entry(
            key, request.id, model.name, request.state, request.client, request.prompt, request.cached,
            request.generated, request.waited, prefill if request.state != "waiting" else 0.0,
            max(0.0, since - prefill) if decoding else 0.0, at=now, context=request.context, via=request.via,
        )  # fmt: skip

    def _key(self, id: int) -> str:
        return f"{self._start}.{id}" if self._start else str(id)


def rates(before: Model, now: Model, seconds: float) -> Rates:
    """Between two looks at one model."""
    old, new = before.times, now.times
    steps = new.steps - old.steps
    if seconds <= 0 or steps < 0 or new.generated < old.generated:
        return Rates()
    parts = tuple((getattr(new, part) - getattr(old, part)) / steps if steps else 0.0 for part in PARTS)
    return Rates((new.generated - old.generated) / seconds, (new.prefilled - old.prefilled) / seconds, steps / seconds, parts)


def _over(key: str, one: Over) -> Entry:
    state = "done" if one.outcome in OUTCOMES - {"cancel"} else "cancelled" if one.outcome == "cancel" else "failed"
    return Entry(
        key, one.id, one.model, state, one.client, one.prompt, one.cached, one.generated, one.queued, one.prefill,
        one.decode, one.outcome, one.preempted, one.ended, via=one.via,
    )  # fmt: skip


def _gone(entry: Entry) -> Entry:
    return Entry(
        entry.key, entry.id, entry.model, "done", entry.client, entry.prompt, entry.cached, entry.generated, entry.queued,
        entry.prefill, entry.decode, "", entry.preempted, entry.at, via=entry.via,
    )  # fmt: skip
