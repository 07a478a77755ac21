"""What files of multi-head latent attention say of it."""

import math

from llamay.arch.config import Latents
from llamay.arch.keys import Keys
from llamay.errors import MalformedFile

MOST = 1 << 12  # values of a latent or of a head
MOST_ASKED = 1 << 16


def sizes(keys: Keys) -> Latents:
    """The sizes.  Files whose keys of heads are those of latents give those of heads beside them."""
    turned = keys.integer("rope.dimension_count", 2, MOST)
    key, value = (
        keys.integer(f"attention.{part}_length_mla", 0, MOST, default=0) or keys.integer(f"attention.{part}_length", 1, MOST)
        for part in ("key", "value")
    )
    for part in ("key", "value"):
        keys.get(f"attention.{part}_length")
    if key <= turned:
        raise MalformedFile(f"heads have keys of {key} values, of which {turned} turn; expected some that do not")
    return Latents(
        rank=keys.integer("attention.kv_lora_rank", 1, MOST),
        asked=keys.integer("attention.q_lora_rank", 0, MOST_ASKED, default=0),
        own=key - turned,
        turned=turned,
        value=value,
    )


def longer(keys: Keys) -> float:
    """The factor on the scale of softmax by which YaRN makes up for a context that was stretched."""
    factor = keys.number("rope.scaling.factor", 0.0, 1e6, default=0.0)
    multiplier = keys.number("rope.scaling.yarn_log_multiplier", 0.0, 10.0, default=0.0)
    if keys.text("rope.scaling.type", "") != "yarn" or factor <= 1.0:
        return 1.0
    return (1.0 + multiplier * math.log(factor)) ** 2
