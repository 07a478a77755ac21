"""Moments: what a source tells, as frozen values that screens are drawn from and recordings are made of."""

import msgspec

from llamay.kv.stats import ContextStats as Held
from llamay.serve.moment import Group, Kept, Model, Moment, Run
from llamay.serve.stats import EndedStats as Over
from llamay.serve.stats import RequestStats as Request
from llamay.serve.stats import StepTimes as Times

__all__ = [
    "Answered", "Asked", "Group", "Held", "Installed", "Kept", "Lost", "Model", "News", "Over", "Parting", "Piece",
    "Progress", "Request", "Run", "Snapshot", "Times",
]  # fmt: skip


class Snapshot(Moment, frozen=True, tag="snapshot"):
    """The engine and the shelf at one moment."""


class Lost(msgspec.Struct, frozen=True, tag="lost"):
    """Nobody answers any more; it is tried again."""

    reason: str
    time: float = 0.0


class Asked(msgspec.Struct, frozen=True, tag="asked"):
    """A question went out.  `before` is the context it was asked behind, empty for a new conversation."""

    number: int
    text: str
    before: str = ""
    parent: int | None = None  # number of the turn it follows
    model: str = ""
    most: int = 0  # tokens of the answer; 0: until it ends
    think: bool = True  # where the model can


class Piece(msgspec.Struct, frozen=True, tag="piece"):
    """A piece of an answer."""

    number: int
    text: str
    thought: bool = False


class Answered(msgspec.Struct, frozen=True, tag="answered"):
    """An answer is over: its context, which may be gone on from, and what it took."""

    number: int
    context: str = ""
    prompt: int = 0
    cached: int = 0
    generated: int = 0
    first: float = 0.0  # seconds until the first text
    decode: float = 0.0  # seconds from the first token to the last
    reason: str = ""
    error: str = ""

    @property
    def rate(self) -> float:
        """Tokens a second."""
        return max(self.generated - 1, 0) / self.decode if self.decode > 0 else 0.0


News = Snapshot | Lost | Asked | Piece | Answered
"""What a source tells of its own accord, and what a recording has a line for."""


class Installed(msgspec.Struct, frozen=True):
    """One installed model."""

    name: str
    bytes: int = 0
    quant: str = ""
    family: str = ""
    parameters: str = ""


class Progress(msgspec.Struct, frozen=True):
    """How far a pull is."""

    status: str
    total: int = 0
    done: int = 0


class Parting(msgspec.Struct, frozen=True):
    """Where two contexts part."""

    common: int
    tokens: tuple[int, int]
    texts: tuple[str, str]
    shared: int
    pages: tuple[int, int]
