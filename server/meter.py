"""The Meter: what the requests of one server came to, counted for /metrics."""

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator

from llamay.serve.events import Timings

EDGES = (  # seconds; those of vLLM, so that dashboards carry over
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
    160.0, 640.0, 2560.0,
)  # fmt: skip


class Histogram:
    """Seconds by bucket.  Whoever uses it holds the Meter's lock."""

    __slots__ = ("counts", "sum")

    def __init__(self) -> None:
        self.counts = [0] * (len(EDGES) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """One more."""
        self.counts[bisect_left(EDGES, seconds)] += 1
        self.sum += seconds

    def cumulated(self) -> Iterator[tuple[str, int]]:
        """Each edge with how many lie at or below it; the last is +Inf."""
        total = 0
        for edge, count in zip((*map(repr, EDGES), "+Inf"), self.counts, strict=True):
            total += count
            yield edge, total


class Meter:
    """Sums since the server began.  Any thread may use it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()  # of all that follows
        self.outcomes: Counter[str] = Counter()  # generations by how they ended; failed and gone are outcomes too
        self.replies: Counter[tuple[str, str, int]] = Counter()  # method, route, status
        self.prompt = self.cached = self.generated = self.preempted = self.longest = 0  # tokens
        self.prefill_seconds = self.decode_seconds = 0.0
        self.first, self.between, self.each = Histogram(), Histogram(), Histogram()
        self.queue, self.prefill, self.decode, self.whole = Histogram(), Histogram(), Histogram(), Histogram()

    def spoke(self, before: float, now: float) -> float:
        """A piece of text of an answer came `now`, and the one before it then, or never where that is 0; returns `now`."""
        if before:
            with self.lock:
                self.between.observe(now - before)
        return now

    def ended(self, outcome: str, timings: Timings, seconds: float) -> None:
        """A generation is over, `seconds` after it was asked for."""
        with self.lock:
            self.outcomes[outcome] += 1
            self.prompt += timings.prompt_tokens
            self.cached += timings.cached_tokens
            self.generated += timings.generated_tokens
            self.preempted += timings.preempted
            self.longest = max(self.longest, timings.prompt_tokens + timings.generated_tokens)
            self.prefill_seconds += timings.prompt_seconds
            self.decode_seconds += timings.decode_seconds
            self.queue.observe(timings.queue_seconds)
            self.whole.observe(seconds)
            if timings.generated_tokens:
                self.first.observe(timings.queue_seconds + timings.prompt_seconds)
                self.prefill.observe(timings.prompt_seconds)
                self.decode.observe(timings.decode_seconds)
            if timings.generated_tokens > 1:
                self.each.observe(timings.decode_seconds / (timings.generated_tokens - 1))

    def replied(self, method: str, route: str, status: int) -> None:
        """A reply is over."""
        with self.lock:
            self.replies[method, route, status] += 1
