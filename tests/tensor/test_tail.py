"""Clearing the unfilled end of a page: what the positions before it hold stays, what those beyond held is gone."""

import numpy as np
import pytest

from llamay import gguf
from llamay.arch import describe
from llamay.errors import UsageError
from llamay.model import bind
from llamay.tensor.batch import PAGE, Batch
from llamay.tensor.numpy import NumpyExecutor
from llamay.tensor.tail import clear_tail


@pytest.mark.parametrize("kv", ["f32", "f16", "vq8", "q8", "q1"])
@pytest.mark.parametrize("name", ["llama-gqa.f16", "gemma3.f16", "deepseek3.f32", "mamba.f32", "mamba2-g2.f32", "granite-4-h.f16", "lfm2.f16"])
@pytest.mark.parametrize("filled", [1, 5, 15])
def test_only_the_end_is_cleared(name: str, kv: str, filled: int, named_case) -> None:
    """A page of 16 computed positions, cleared from `filled` on, is the page of `filled` computed in empty pages."""
    file = gguf.open(named_case(name).path)
    program = bind(file, describe(file)).program
    tokens = np.random.default_rng(3).integers(0, 300, PAGE).astype(np.int32)
    windows = 1 if program.windowed else 0
    found = []
    for count in (PAGE, filled):
        executor = NumpyExecutor(program, 1, window_pages=windows, kv=kv)
        empty = [executor.read_pages(group, [0]).copy() for group in range(1 + windows)]
        batch = Batch.single(tokens[:count], 0, np.zeros(1, np.int32))
        executor.forward(batch if not windows else with_window(batch))
        found.append([executor.read_pages(group, [0]) for group in range(1 + windows)])
        assert all(not page.any() for page in empty)
    assert any(full.size for full in found[0])
    for group, (full, part) in enumerate(zip(*found, strict=True)):
        if not full.size:  # a group without layers
            continue
        assert not np.array_equal(full, part)
        clear_tail(executor, group, full[0], filled)
        if program.span == 17:  # a state, which goes from either
            clear_tail(executor, group, part[0], filled)
            assert part.any()
        assert np.array_equal(full, part)


def with_window(batch: Batch) -> Batch:
    from dataclasses import replace

    return replace(batch, windows=batch.tables)


def test_another_size_is_no_page_of_this_model(named_case) -> None:
    file = gguf.open(named_case("llama-gqa.f16").path)
    executor = NumpyExecutor(bind(file, describe(file)).program, 1)
    with pytest.raises(UsageError, match="bytes"):
        clear_tail(executor, 0, np.zeros(executor.page_bytes(0) + 4, np.uint8), 3)
