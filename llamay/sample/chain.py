"""The chain: bias, penalties, top-k, typical, top-p, min-p, temperature, draw.  The kernels' twin.

docs/sampling.md defines each step.  Order and keep counts are llama.cpp's; ties go to
the lower token id; probabilities are integers (see fixed.py), so the tokens chosen here
and on a device are the same.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from llamay.sample.fixed import (
    EXCLUDED,
    LIMIT,
    Floats,
    Longs,
    Words,
    cleaned,
    distances,
    floats_of,
    masses,
    moments,
    order_keys,
    philox,
    settled,
)
from llamay.sample.sampling import Sampling
from llamay.sample.terms import WHOLE, Terms, dense_bias

Ids = NDArray[np.intp]
NEUTRAL_RATE = np.float32(1.0)


def choose(
    logits: Floats,  # [vocabulary]
    sampling: Sampling,
    counts: NDArray[np.unsignedinteger] | None = None,  # [vocabulary], of the last repeat_last_n tokens
    position: int = 0,
    allowed: Words | None = None,  # [vocabulary / 32, rounded up], bit i % 32 of word i / 32: token i may come
) -> int:
    """The token chosen from one row of logits.  `position` is that of the row; with the seed it fixes the draw.

    Raises UsageError when the sampling does not fit the vocabulary.
    """
    terms = Terms.of(sampling, len(logits))
    ids, keys = _survivors(_adjusted(logits, sampling, terms, counts, allowed), terms)
    if len(ids) == 1:
        return int(ids[0])
    ends = np.cumsum(_final_masses(keys, terms))
    target = philox(position, terms.seed) * int(ends[-1]) >> 64
    return int(ids[np.searchsorted(ends, np.uint64(target), side="right")])


def choose_batch(
    logits: Floats,  # [slots, vocabulary]
    samplings: Sequence[Sampling],
    counts: Sequence[NDArray[np.unsignedinteger] | None],
    positions: Sequence[int] | NDArray[np.int32],
) -> NDArray[np.int32]:  # [slots]
    """One token for each row."""
    rows = zip(logits, samplings, counts, positions, strict=True)
    return np.array([choose(row, how, seen, int(at)) for row, how, seen, at in rows], np.int32)


def probabilities(
    logits: Floats,  # [vocabulary]
    sampling: Sampling,
    counts: NDArray[np.unsignedinteger] | None = None,
    allowed: Words | None = None,
) -> NDArray[np.float64]:  # [vocabulary]
    """The probability with which `choose` takes each token, over all seeds."""
    terms = Terms.of(sampling, len(logits))
    ids, keys = _survivors(_adjusted(logits, sampling, terms, counts, allowed), terms)
    mass = _final_masses(keys, terms)
    result = np.zeros(len(logits), np.float64)
    result[ids] = mass.astype(np.float64) / float(mass.sum())
    return result


def _adjusted(
    logits: Floats,
    sampling: Sampling,
    terms: Terms,
    counts: NDArray[np.unsignedinteger] | None,
    allowed: Words | None,
) -> Words:  # [vocabulary], ordered keys
    """Mask, bias and penalties."""
    z = cleaned(np.asarray(logits, np.float32))
    if terms.bias:
        bias = dense_bias(sampling, len(z))
        z = np.where((bias > -LIMIT) & (z > EXCLUDED), settled(z + bias), EXCLUDED)
    if allowed is not None:
        bits = np.unpackbits(np.ascontiguousarray(allowed, "<u4").view(np.uint8), bitorder="little", count=len(z))
        z = np.where(bits != 0, z, EXCLUDED)
    if terms.repeat is not None and counts is not None:
        seen = np.flatnonzero((counts > 0) & (z > EXCLUDED))
        z[seen] = _penalised(z[seen], counts[seen], terms, terms.repeat)
    return order_keys(z)


def _penalised(z: Floats, counts: NDArray[np.unsignedinteger], terms: Terms, repeat: np.float32) -> Floats:
    turned = settled(np.where(z <= 0, z * repeat, z * (np.float32(1.0) / repeat)))
    return settled(turned - (counts.astype(np.float32) * terms.frequency + terms.presence))


def _survivors(keys: Words, terms: Terms) -> tuple[Ids, Words]:
    """Token ids, ascending, and keys of what the filters leave."""
    ids: Ids = np.arange(len(keys))
    if terms.top_k:
        ids = _largest(keys, terms.top_k)
    kept = keys[ids]
    if terms.typical < WHOLE or terms.top_p < WHOLE:
        distance = _distances(kept, NEUTRAL_RATE)
        mass = masses(distance)
        if terms.typical < WHOLE:
            stay = _typical(mass, distance, terms.typical)
            ids, kept, mass = ids[stay], kept[stay], mass[stay]
        if terms.top_p < WHOLE:
            target = -(-int(mass.sum()) * terms.top_p // WHOLE)
            stay = _covering(~kept, mass, target)
            ids, kept = ids[stay], kept[stay]
    if terms.floor is not None:
        lowest = order_keys(settled(floats_of(kept.max(keepdims=True)) + terms.floor))
        stay = np.flatnonzero(kept >= lowest)
        ids, kept = ids[stay], kept[stay]
    return ids, kept


def _largest(keys: Words, count: int) -> Ids:
    """The `count` largest keys, of equal ones the lower ids; ids ascending."""
    least = np.partition(keys, len(keys) - count)[len(keys) - count]
    above = np.flatnonzero(keys > least)
    level = np.flatnonzero(keys == least)[: count - len(above)]
    return np.sort(np.concatenate([above, level]))


def _typical(mass: Longs, distance: Words, fraction: int) -> Ids:
    """Indices, ascending, of the tokens whose surprise is nearest to the expected one.

    With d = ln p_max - ln p, the surprise less the entropy is d less the mean of d.
    """
    total = int(mass.sum())
    mean = (int(moments(mass, distance).sum()) << 27) // total
    off = distance.astype(np.int64) - mean
    score = np.minimum(np.abs(off), 2**31 - 1) << 1 | (off > 0)
    return _covering(score.astype(np.uint32), mass, total * fraction // WHOLE + 1)


def _covering(rank: Words, mass: Longs, target: int) -> Ids:
    """Indices, ascending, of the fewest first tokens by (rank, id) whose masses reach the target."""
    order = np.argsort(rank, kind="stable")
    count = np.searchsorted(np.cumsum(mass[order]), np.uint64(target), side="left") + 1
    return np.sort(order[:count])


def _distances(keys: Words, rate: np.float32) -> Words:
    z = floats_of(keys)
    return distances(z, z.max(), rate)


def _final_masses(keys: Words, terms: Terms) -> Longs:
    return masses(_distances(keys, terms.rate))
