"""The numbers sampling is defined in: ordered keys of logits, fixed-point distances, integer masses.

Every sum and comparison of the chain is made of integers, so it has one value in any
order, on any device.  wgsl/include/sample_numbers.wgsl is this file in WGSL, bit for bit.
"""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]
Words = NDArray[np.uint32]
Longs = NDArray[np.uint64]

LIMIT = np.float32(1e30)  # a logit beyond counts as this; one below minus this is excluded
EXCLUDED = np.float32(-3e38)  # the logit of a token that must not be drawn
TINY = np.float32(2.0**-126)  # below it a float counts as zero: some devices flush it, some do not
FRACTION = 26  # bits of a distance behind the point
FARTHEST = np.uint32(0xFFFFFFFF)  # a distance of 64 or more
ONE = 1 << 43  # the mass of the likeliest token; masses of 2^20 tokens sum below 2^64

LOG2_E = np.uint64(3098164009)  # log2(e) / 2, times 2^32
# 2^-f = 1 - f (C1 - f (C2 - ...)) for f in [0, 1), relative error 2^-28.8; each times 2^31
POWERS = tuple(np.uint64(c) for c in (1488521986, 515877902, 119165493, 20571132, 2737501, 234126))
_32, _MASK = np.uint64(32), np.uint64(0xFFFFFFFF)


def settled(z: Floats) -> Floats:  # [n] -> [n]
    """z with everything smaller than a normal float, and minus zero, made plus zero."""
    return np.where(np.abs(z) < TINY, np.float32(0.0), z)


def cleaned(logits: Floats) -> Floats:  # [n] -> [n]
    """Logits as the chain sees them: NaN and what lies below -LIMIT excluded, the rest at most LIMIT."""
    z = settled(np.minimum(logits, LIMIT))
    return np.where(z >= -LIMIT, z, EXCLUDED)  # false for NaN too


def order_keys(z: Floats) -> Words:  # [n] -> [n]
    """Unsigned integers in the order of the floats (neither NaN nor minus zero)."""
    bits = np.ascontiguousarray(z, np.float32).view(np.uint32)
    return np.where(bits >> np.uint32(31) != 0, ~bits, bits | np.uint32(1 << 31))


def floats_of(keys: Words) -> Floats:  # [n] -> [n]
    """The floats of ordered keys."""
    bits = np.where(keys >> np.uint32(31) != 0, keys & np.uint32(0x7FFFFFFF), ~keys)
    return bits.view(np.float32)


def distances(z: Floats, top: np.float32, rate: np.float32) -> Words:  # [n] -> [n]
    """(top - z) * rate, below 64, times 2^26, cut to an integer; FARTHEST from 64 on."""
    d = np.minimum(top - z, LIMIT) * rate
    near = d < np.float32(64.0)
    cut = (np.where(near, d, np.float32(0.0)) * np.float32(1 << FRACTION)).astype(np.uint32)
    return np.where(near, cut, FARTHEST)


def masses(distance: Words) -> Longs:  # [n] -> [n]
    """exp(-distance) * 2^43, cut to an integer; relative error below 2^-24 where the result has the bits."""
    halved = (distance.astype(np.uint64) * LOG2_E) >> _32  # distance * log2(e), 25 bits behind the point
    whole = halved >> np.uint64(25)
    f = (halved & np.uint64((1 << 25) - 1)) << np.uint64(7)
    power: Longs = np.full_like(f, POWERS[-1])
    for c in POWERS[-2::-1]:
        power = c - ((f * power) >> _32)
    power = np.uint64(1 << 31) - ((f * power) >> _32)
    shift: Longs = np.minimum(whole, np.uint64(63))
    return (power << np.uint64(12)) >> shift


def moments(mass: Longs, distance: Words) -> Longs:  # [n], [n] -> [n]
    """mass * distance / 2^27, cut to an integer, though the product has 75 bits."""
    d = distance.astype(np.uint64)
    return (((mass >> _32) * d) << np.uint64(5)) + (((mass & _MASK) * d) >> np.uint64(27))


def philox(position: int, seed: int) -> int:
    """64 random bits of (seed, position): words 0 and 1 of Philox4x32-10, counter (position, 0, 0, 0).

    Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011).
    """
    a, b, c, d = position & 0xFFFFFFFF, 0, 0, 0
    low, high = seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF
    for _ in range(10):
        p, q = 0xD2511F53 * a, 0xCD9E8D57 * c
        a, b, c, d = q >> 32 ^ b ^ low, q & 0xFFFFFFFF, p >> 32 ^ d ^ high, p & 0xFFFFFFFF
        low, high = (low + 0x9E3779B9) & 0xFFFFFFFF, (high + 0xBB67AE85) & 0xFFFFFFFF
    return a | b << 32
