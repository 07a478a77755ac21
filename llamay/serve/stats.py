"""What the engine tells about itself: plain values of one moment, safe to hand to another thread."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from llamay import kv

State = Literal["waiting", "prefill", "decode", "paused"]


@dataclass(slots=True)
class StepTimes:
    """Sums since the model was loaded, in seconds; the difference of two readings is what lay between them.

    Sampling itself is the device's; `sample` is what the host does with the tokens.
    """

    steps: int = 0
    schedule: float = 0.0  # deciding who takes part, pages included
    encode: float = 0.0  # recording and queueing; NumPy computes here
    device: float = 0.0  # waiting for tokens
    sample: float = 0.0  # from tokens to text, stop strings and ends
    send: float = 0.0  # handing events over, and pages back
    prefilled: int = 0  # tokens of prompts computed
    generated: int = 0
    preempted: int = 0

    def add(
        self, *, steps: int = 0, schedule: float = 0.0, encode: float = 0.0, device: float = 0.0, sample: float = 0.0,
        send: float = 0.0,
    ) -> None:  # fmt: skip
        """More of each."""
        self.steps += steps
        self.schedule += schedule
        self.encode += encode
        self.device += device
        self.sample += sample
        self.send += send

    def copy(self) -> "StepTimes":
        """The sums at this moment."""
        return replace(self)


@dataclass(frozen=True, slots=True)
class RequestStats:
    """One request; a choice each where it has several."""

    id: int
    client: str
    state: State
    slot: int | None  # of the step, while it decodes
    context: int | None  # id in the cache, while it has pages
    prompt: int  # tokens
    cached: int  # of them, those found in the cache
    held: int  # tokens in pages
    generated: int
    waited: float  # seconds in the queue
    seconds: float  # since it was submitted


@dataclass(frozen=True, slots=True)
class ModelStats:
    """One loaded model."""

    name: str
    device: str
    slots: int  # sequences a step may have
    requests: tuple[RequestStats, ...]  # those admitted, then the first of those that wait, in their order
    waiting: int  # requests in its queue
    clients: Mapping[str, int]  # how many of each client those are
    cache: kv.Stats
    times: StepTimes


@dataclass(frozen=True, slots=True)
class Stats:
    """The engine at one moment."""

    models: tuple[ModelStats, ...]
    loading: tuple[str, ...]  # names
    waiting: int  # requests in queues, over all models
    limit: int  # how many may wait
    finished: int  # requests since the engine was made
    seconds: float  # since then
