"""Pools: one context always fits, what was allowed is kept, windows get a pool where that saves something."""

from types import SimpleNamespace

import pytest

from llamay.errors import OutOfMemory
from llamay.serve.pools import MOST_CONTEXTS, pools, single
from llamay.serve.scheduler import CHUNK
from llamay.tensor.program import Attend

PAGE_BYTES = 16 * 2 * 2 * 8 * 4  # a layer: 16 tokens of keys and values of 2 heads of 8 numbers


def program(*windows: int):
    """Layers of 2 kv heads of 8 numbers, each with its window."""
    operations = tuple(Attend(layer, 4, 2, 8, window) for layer, window in enumerate(windows))
    layers = tuple(SimpleNamespace(layer=layer, kv_heads=2, head_dim=8) for layer in range(len(windows)))
    windowed = frozenset(layer for layer, window in enumerate(windows) if window)
    return SimpleNamespace(operations=operations, layers=layers, windowed=windowed)


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
