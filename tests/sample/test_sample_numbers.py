"""The integers sampling is made of: keys in the order of floats, distances, masses, and the generator."""

import math

import numpy as np

from llamay.sample.fixed import (
    EXCLUDED,
    FARTHEST,
    LIMIT,
    ONE,
    cleaned,
    distances,
    floats_of,
    masses,
    moments,
    order_keys,
    philox,
    settled,
)


def test_keys_are_in_the_order_of_floats_and_come_back() -> None:
    rng = np.random.default_rng(1)
    bits = rng.integers(0, 2**32, 200_000, dtype=np.uint32)
    z = cleaned(bits.view(np.float32))
    keys = order_keys(z)
    order = np.argsort(z, kind="stable")
    assert (np.diff(keys[order].astype(np.int64)) >= 0).all()
    assert ((np.diff(keys[order].astype(np.int64)) == 0) == (np.diff(z[order]) == 0)).all()
    assert (floats_of(keys) == z).all()
    assert keys.min() > 0  # zero means "no token" to the kernels


def test_a_logit_is_cleaned() -> None:
    given = np.array([np.nan, -np.nan, np.inf, -np.inf, 1e-40, -1e-40, -0.0, 2e30, -2e30, -3e38, 1.5, 1e30], np.float32)
    want = np.array([EXCLUDED, EXCLUDED, LIMIT, EXCLUDED, 0, 0, 0, LIMIT, EXCLUDED, EXCLUDED, 1.5, LIMIT], np.float32)
    assert (cleaned(given).view(np.uint32) == want.view(np.uint32)).all()
    assert settled(np.array([-1e-39], np.float32)).view(np.uint32)[0] == 0


def test_masses_are_exponentials() -> None:
    rng = np.random.default_rng(2)
    distance = rng.integers(0, 31 << 26, 300_000, dtype=np.uint32)
    want = np.exp(distance / -(2.0**26)) * ONE
    assert (np.abs(masses(distance) - want) <= 4e-8 * want + 1.0).all()
    assert masses(np.array([0], np.uint32))[0] == ONE
    assert masses(np.array([30 << 26, FARTHEST], np.uint32)).tolist() == [0, 0]


def test_moments_are_products() -> None:
    rng = np.random.default_rng(3)
    distance = rng.integers(0, 40 << 26, 1000, dtype=np.uint32)
    mass = masses(distance)
    want = [int(m) * int(d) >> 27 for m, d in zip(mass, distance, strict=True)]
    assert moments(mass, distance).tolist() == want
    assert max(want) > 1 << 40


def test_distances_are_cut_and_end_at_64() -> None:
    top = np.float32(10.0)
    z = np.array([10.0, 9.5, -53.99, -54.0, -1e30, EXCLUDED], np.float32)
    found = distances(z, top, np.float32(1.0)).tolist()
    assert found[:2] == [0, 1 << 25]
    assert found[2] == math.floor(float(top - z[2]) * 2**26)
    assert found[3:] == [FARTHEST] * 3
    assert distances(z, top, np.float32(0.5)).tolist()[1] == 1 << 24


def test_the_generator_gives_the_published_vector() -> None:
    found = philox(0, 0)  # Random123's known answer for Philox4x32-10, counter and key zero
    assert (found & 0xFFFFFFFF, found >> 32) == (0x6627E8D5, 0xE169C58D)


def test_the_generator_is_even_and_hangs_on_all_its_inputs() -> None:
    draws = [philox(p, 7) / 2.0**64 for p in range(4000)]
    assert abs(np.mean(draws) - 0.5) < 0.02 and abs(np.var(draws) - 1 / 12) < 0.004
    lag = np.corrcoef(draws[:-1], draws[1:])[0, 1]
    assert abs(lag) < 0.05
    assert len({philox(5, seed) for seed in (0, 1, 1 << 32, (1 << 32) + 1)}) == 4
    assert len({philox(position, 5) for position in range(1000)}) == 1000
