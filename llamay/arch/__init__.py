"""From metadata to a Config: the table of architectures and the names that reach them."""

from llamay.arch.alibi import slopes
from llamay.arch.config import Config, Latents, Mixture, Rotary, Scaling, StateSpace
from llamay.arch.describe import describe
from llamay.arch.rope import frequencies
from llamay.arch.table import ARCHITECTURES, BY_NAME, Architecture

__all__ = [
    "ARCHITECTURES",
    "BY_NAME",
    "Architecture",
    "Config",
    "Latents",
    "Mixture",
    "Rotary",
    "Scaling",
    "StateSpace",
    "describe",
    "frequencies",
    "slopes",
]
