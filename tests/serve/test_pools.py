"""Pools: one context always fits, what was allowed is kept, windows get a pool where that saves something."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from llamay.errors import OutOfMemory
from llamay.serve.loading.pools import COUNTED, MOST_CONTEXTS, STATES, alone, pools, single
from llamay.serve.scheduling.scheduler import CHUNK
from llamay.tensor.program import Attend, Program, Scan

PAGE_BYTES = 16 * 2 * 2 * 8 * 4  # a layer: 16 tokens of keys and values of 2 heads of 8 numbers


def program(*windows: int):
    """Layers of 2 kv heads of 8 numbers, each with its window."""
    operations = tuple(Attend(layer, 4, 2, 8, window) for layer, window in enumerate(windows))
    layers = tuple(SimpleNamespace(layer=layer, kv_heads=2, head_dim=8, value_dim=8) for layer in range(len(windows)))
    windowed = frozenset(layer for layer, window in enumerate(windows) if window)
    return SimpleNamespace(operations=operations, layers=layers, windowed=windowed, span=max(windows))


def test_one_sequence() -> None:
    found = single(program(0, 64), "f32", 1000)
    assert (found.pages, found.window_pages, found.span, found.bytes) == (63, 0, 0, 63 * 2 * PAGE_BYTES)


def test_what_is_allowed_is_used_up_and_not_exceeded() -> None:
    for allowed in (64 * 2 * PAGE_BYTES, 1_000_000, 10_000_000):
        found = pools(program(0, 0), "f32", 1024, allowed=allowed)
        assert allowed - 2 * PAGE_BYTES < found.bytes <= allowed
    with pytest.raises(OutOfMemory, match=r"needs 262,144 bytes .* allows 200,000; -c 768 would fit"):
        pools(program(0, 0), "f32", 1024, allowed=200_000)
    assert pools(program(0, 0), "f32", 768, allowed=200_000).pages >= 48


@pytest.mark.parametrize("allowed", [PAGE_BYTES * count for count in (2, 30, 100, 150, 400)])
def test_the_context_that_would_fit_is_the_longest(allowed: int) -> None:
    """Pages with a window are as many for all long contexts."""
    several = program(0, 64, 64)
    with pytest.raises(OutOfMemory) as refused:
        pools(several, "f32", 8192, allowed=allowed)
    advised = re.search(r"-c (\d+) would fit", str(refused.value))
    if advised is None:
        assert f"the shortest takes {3 * PAGE_BYTES:,}" in str(refused.value) and allowed < 3 * PAGE_BYTES
        return
    assert pools(several, "f32", int(advised[1]), allowed=allowed).bytes <= allowed
    with pytest.raises(OutOfMemory):
        pools(several, "f32", int(advised[1]) + 16, allowed=allowed)


def test_the_default_is_a_share_of_what_is_free() -> None:
    one = 64 * 2 * PAGE_BYTES
    assert pools(program(0, 0), "f32", 1024).bytes == one  # nobody knows how much is free
    assert pools(program(0, 0), "f32", 1024, free=0).bytes == one  # loading will say that it does not fit
    assert pools(program(0, 0), "f32", 1024, free=8 * one).bytes == 2 * one
    assert pools(program(0, 0), "f32", 1024, free=10**12).bytes == MOST_CONTEXTS * one
    assert pools(program(0, 0), "f16", 1024, free=10**12).bytes == MOST_CONTEXTS * one // 2


def test_no_buffer_is_larger_than_can_be_bound() -> None:
    keys = PAGE_BYTES // 2
    found = pools(program(0, 0), "f32", 1024, free=10**12, largest=100 * keys)
    assert found.pages == 99  # one page more takes what padding rows write
    assert pools(program(0, 0), "f32", 1024, free=10**12, largest=10 * keys).pages == 64


def test_a_window_gets_a_pool_where_it_saves_something() -> None:
    found = pools(program(0, 64, 0, 64), "f32", 4096, free=10**12)
    assert (found.span, found.pages) == (64, 4 * 256)
    assert found.window_pages == 4 * ((64 + CHUNK) // 16 + 2)
    assert found.bytes == 2 * PAGE_BYTES * (found.pages + found.window_pages)
    assert found.entries >= 64 * 2 * 256
    same = pools(program(0, 4000), "f32", 4096, free=10**12)
    assert (same.span, same.window_pages) == (0, 0)


STATE_BYTES = 2 * (4 * (8 * 4 + 16 * 4) + 4 * (16 * (8 + 8 + 8) + 4))  # two layers of 8 channels with 4 states


def space(layers: int):
    """Layers of a state space of 8 channels with 4 states, whose convolution sees 4 positions."""
    vector = np.zeros(8, np.float32)
    scans = tuple(
        Scan(layer, None, None, np.zeros((4, 8), np.float32), vector, vector[None], vector, vector, inner=8, states=4)
        for layer in range(layers)
    )
    return Program(scans, 8, 8, 1 << 20)


def test_a_state_takes_the_same_however_long_its_context_is() -> None:
    near = (17 + CHUNK + 15) // 16 + 2
    for context in (1024, 1 << 20):
        found = alone(space(2), "f32", context)
        assert (found.pages, found.window_pages, found.span) == (context // 16, near + STATES, 17)
        assert found.bytes == (near + STATES) * STATE_BYTES
    short = alone(space(2), "q8", 100)  # all its pages are fewer than that
    assert (short.pages, short.window_pages, short.bytes) == (7, 0, 7 * STATE_BYTES)
    assert alone(program(0, 64), "f32", 4096) == single(program(0, 64), "f32", 4096)


def test_states_of_many_contexts() -> None:
    near = (17 + CHUNK + 15) // 16 + 2
    one = near * STATE_BYTES
    found = pools(space(2), "f32", 1024, free=10**12)
    assert (found.window_pages, found.pages, found.bytes) == (MOST_CONTEXTS * near, 64 * 64, MOST_CONTEXTS * one)
    assert pools(space(2), "f32", 1 << 20, free=10**12).pages == COUNTED
    assert pools(space(2), "f32", 1024, allowed=3 * one).window_pages == 3 * near
    assert pools(space(2), "f32", 1024, free=10**12, largest=20 * 4 * (16 * 24 + 4)).window_pages == 19
    with pytest.raises(OutOfMemory, match="its state takes that, however long it is"):
        pools(space(2), "f32", 1024, allowed=one - 1)
