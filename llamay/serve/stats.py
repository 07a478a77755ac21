"""What the engine tells about itself: plain values of one moment, safe to hand to another thread.

Those that a moment has as they are (llamay.serve.moment) are Structs, with defaults for who reads one of another version.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import msgspec

from llamay import kv

State = Literal["waiting", "prefill", "decode", "paused"]


class StepTimes(msgspec.Struct):
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
        return msgspec.structs.replace(self)


class RequestStats(msgspec.Struct, frozen=True):
    """One request; a choice each where it has several."""

    id: int
    state: str  # a State
    prompt: int  # tokens
    client: str = ""
    slot: int | None = None  # of the step, while it decodes
    context: int | None = None  # id in the cache, while it has pages
    cached: int = 0  # of the prompt, those found in the cache
    held: int = 0  # tokens in pages
    generated: int = 0
    waited: float = 0.0  # seconds in the queue
    seconds: float = 0.0  # since it was submitted
    via: str = ""  # which API it came by


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
    expires: float | None = None  # seconds until it is given back, if nobody asks; None: when its place is needed


class EndedStats(msgspec.Struct, frozen=True):
    """One request that is over.  What it said, or was told, is not in it: of an error the kind is."""

    id: int
    model: str
    outcome: str  # a Reason of llamay.serve.events, or the name of the error's class
    prompt: int  # tokens
    cached: int  # of them, those found in the cache
    generated: int
    queued: float  # seconds until it was admitted
    prefill: float  # from then to the first token
    decode: float  # from the first token to the last
    client: str = ""
    preempted: int = 0
    ended: float = 0.0  # Unix seconds
    via: str = ""


@dataclass(frozen=True, slots=True)
class Stats:
    """The engine at one moment."""

    models: tuple[ModelStats, ...]
    loading: tuple[str, ...]  # names
    waiting: int  # requests in queues, over all models
    limit: int  # how many may wait
    finished: int  # requests since the engine was made
    seconds: float  # since then
    ended: tuple[EndedStats, ...] = ()  # the last few requests that are over, the oldest first
    lost: Mapping[str, str] = field(default_factory=dict)  # models whose device went away, and why; until they are loaded again
