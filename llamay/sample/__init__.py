"""Samplers: from one row of logits and a seed to one token.  They take a mask and know no grammar."""

from llamay.sample.chain import choose, choose_batch, probabilities
from llamay.sample.recent import Recent
from llamay.sample.sampling import Sampling, fresh_seed

__all__ = ["Recent", "Sampling", "choose", "choose_batch", "fresh_seed", "probabilities"]
