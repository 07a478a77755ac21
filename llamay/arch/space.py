"""What files of state-space models say of their sizes."""

from llamay.arch.config import StateSpace
from llamay.arch.keys import Keys
from llamay.arch.table import Architecture
from llamay.errors import MalformedFile

MOST_INNER = 1 << 20
MOST_STATES = 1 << 12
MOST_KERNEL = 16  # positions: what the convolution sees reaches back one page at most


def sizes(row: Architecture, keys: Keys) -> StateSpace:
    """The sizes.  mamba's time_step_rank is the width of its steps' latent, mamba2's the number of its heads."""
    inner = keys.integer("ssm.inner_size", 1, MOST_INNER)
    rank = keys.integer("ssm.time_step_rank", 1, MOST_INNER)
    groups = keys.integer("ssm.group_count", 1, MOST_INNER, default=1) if row.scan == "heads" else 1
    heads = rank if row.scan == "heads" else inner
    if inner % heads or heads % groups:
        raise MalformedFile(f"{inner} channels in {heads} heads and {groups} groups; expected as many in each")
    for unused in () if row.hybrid else ("attention.head_count", "attention.head_count_kv", "feed_forward_length"):
        keys.get(unused)
    normed = keys.flag("ssm.dt_b_c_rms", default=False)  # FalconMamba's
    return StateSpace(
        inner=inner,
        states=keys.integer("ssm.state_size", 1, MOST_STATES),
        kernel=keys.integer("ssm.conv_kernel", 2, MOST_KERNEL),
        heads=heads,
        groups=groups,
        rank=0 if row.scan == "heads" else rank,
        normed=normed and row.scan == "channels",
    )
