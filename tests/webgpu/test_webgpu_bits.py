"""A row's logits have the same bits on the device however prompts are cut, whoever shares the batch, wherever pages lie."""

import numpy as np
import pytest

from llamay.sample import Sampling
from llamay.tensor.batch import Batch
from llamay.tensor.webgpu.launch import SPLIT

LENGTH = 2 * SPLIT + 18  # past two attention splits
GREEDY = Sampling(temperature=0.0)
MODELS = ["llama-gqa.f16", "gemma2.f16", "gemma3.f16"]  # full; softcap and window; two bases and windows
LAYERED = [f"{name}.f16" for name in ("stablelm-2-12b", "gptneox-parallel", "falcon-40b", "cohere2", "gpt2", "bloom")]
ALIKE = ("starcoder2", "phi2", "nemotron", "command-r", "mpt")  # their blocks have the kernels of those
SOAKED = [pytest.param(f"{name}.f16", marks=pytest.mark.soak) for name in ALIKE]
QUANTISED = ["qwen2-k.q4_k", "qwen2-k.q4_0-mix", "qwen3.f16"]
MIXTURES = ["gpt-oss.f16", "qwen2moe.f16"]
LATENT = "deepseek3.f32"
SPACES = ["mamba.f32", "falcon-mamba.f16", "mamba2-g2.f32", "granite-4-h.f16", "lfm2.f16"]  # states in place of attention


def prompt(seed, length=LENGTH):
    return np.random.default_rng(seed).integers(0, 320, length).astype(np.int32)


def last_logits(executor, slots):
    """The logits that the last step left for its slots [slots, vocabulary]."""
    vocabulary = executor.program.vocabulary
    return executor.device.read(executor.memory.logits, np.float32, slots * vocabulary).reshape(slots, vocabulary)


@pytest.mark.parametrize("name", MODELS)
def test_chunks(name, program, opened, scattered, chunked):
    model = program(name)
    ids, ([table], pages) = prompt(1), scattered(2, LENGTH)
    executor = opened(model, pages, rows=512)
    whole = chunked(executor, ids, LENGTH, table)
    assert np.isfinite(whole).all() and whole.std() > 0.5
    for size in (64, 7):
        assert np.array_equal(chunked(executor, ids, size, table), whole), size
    near = [*range(0, 20), *range(SPLIT - 3, SPLIT + 3), *range(2 * SPLIT - 3, LENGTH)]  # one at a time, where it matters
    for at in near:
        alone = executor.forward(Batch.single(ids[at : at + 1], at, table))
        assert np.array_equal(alone[0], whole[at]), at


@pytest.mark.parametrize("name", QUANTISED)
def test_chunks_of_other_models(name, program, opened, scattered, chunked):
    ids, ([table], pages) = prompt(3, 70), scattered(4, 70)
    executor = opened(program(name), pages)
    whole = chunked(executor, ids, 70, table)
    assert np.isfinite(whole).all() and whole.std() > 0.1
    for size in (64, 16, 7, 1):
        assert np.array_equal(chunked(executor, ids, size, table), whole), size


@pytest.mark.parametrize("name", [*LAYERED, *MIXTURES, LATENT, *SPACES, *SOAKED])
def test_models_of_other_blocks(name, program, opened, scattered, chunked):
    """In chunks, and two that continue on the device beside each other."""
    model, prompts = program(name), [prompt(3, 24), prompt(4, 9)]
    tables, pages = scattered(4, 32, 32)
    executor = opened(model, pages)
    whole = chunked(executor, prompts[0], 24, tables[0])
    assert np.isfinite(whole).all() and whole.std() > 0.1
    for size in (7, 1):
        assert np.array_equal(chunked(executor, prompts[0], size, tables[0]), whole), size
    chunked(executor, prompts[1][:-1], 3, tables[1])
    executor.begin((GREEDY,) * 2, (np.empty(0, np.int32),) * 2)
    last = np.array([ids[-1] for ids in prompts], np.int32)
    two = np.arange(2, dtype=np.int32)
    executor.submit(Batch(last, np.array([23, 8], np.int32), two, tuple(tables), two), 5)
    tokens, after = executor.collect(), last_logits(executor, 2)
    for i, ids in enumerate(prompts):
        alone = chunked(executor, np.concatenate([ids, tokens[:-1, i]]), 128, tables[1 - i])
        assert np.array_equal(alone[-1], after[i])
        assert alone[len(ids) - 1 :].argmax(-1).tolist() == tokens[:, i].tolist()


@pytest.mark.parametrize("name", ["gemma3.f16", "qwen2-k.q4_k"])
def test_chunks_at_the_least_limits(name, program, opened, least, scattered, chunked):
    """Sums over k-lanes in shared memory, rows shorter than a step included."""
    ids, ([table], pages) = prompt(3, 40), scattered(4, 40)
    executor = opened(program(name), pages, device=least)
    whole = chunked(executor, ids, 40, table)
    assert np.isfinite(whole).all() and whole.std() > 0.1
    for size in (16, 7, 1):
        assert np.array_equal(chunked(executor, ids, size, table), whole), size


@pytest.mark.parametrize(
    ("name", "start"),
    [("llama-gqa.f16", 20), ("gemma2.f16", SPLIT - 4), ("gemma3.f16", SPLIT - 4), ("gemma3.f16", 2 * SPLIT - 4)],
)
def test_prefill_and_decode(name, start, program, opened, scattered, chunked):
    """Steps that continue on the device leave the logits that computing their tokens in one go leaves."""
    ids, ([table], pages) = prompt(5, start), scattered(6, start + 24)
    executor = opened(program(name), pages)
    chunked(executor, ids[:-3], 64, table)
    executor.begin((GREEDY,), (ids,))
    executor.submit(Batch.single(ids[-3:], start - 3, table), 3)
    executor.submit(None, 8)
    tokens = np.concatenate([executor.collect(), executor.collect()])[:, 0]
    after = last_logits(executor, 1)[0]
    everything = np.concatenate([ids, tokens])
    fresh = opened(program(name), pages)
    whole = chunked(fresh, everything, 128, table[::-1].copy())
    assert np.array_equal(whole[len(everything) - 2], after)
    assert whole[start - 1 : -1].argmax(-1).tolist() == tokens.tolist()


@pytest.mark.parametrize(("name", "count"), [("llama-gqa.f16", 3), ("gemma2.f16", 2), ("gemma3.f16", 8)])
def test_company(name, count, program, opened, scattered, chunked):
    """Sequences that step together, on interleaved pages and at far apart positions, give what each gives alone."""
    model = program(name)
    lengths = [17, SPLIT + 1, 250, 33, 2 * SPLIT + 3, 5, SPLIT - 1, 64][:count]
    prompts = [prompt(i, n) for i, n in enumerate(lengths)]
    tables, pages = scattered(7, *(n + 16 for n in lengths))
    executor = opened(model, pages)
    rows = [(t, at, i) for i, ids in enumerate(prompts) for at, t in enumerate(ids[:-1].tolist())]
    tokens, positions, sequences = (np.array(column, np.int32) for column in zip(*rows, strict=True))
    none = np.empty(0, np.int32)
    assert executor.forward(Batch(tokens, positions, sequences, tuple(tables), none)).shape == (0, model.vocabulary)
    last = Batch(
        np.array([ids[-1] for ids in prompts], np.int32), np.array(lengths, np.int32) - 1,
        np.arange(count, dtype=np.int32), tuple(tables), np.arange(count, dtype=np.int32),
    )  # fmt: skip
    executor.begin((GREEDY,) * count, (none,) * count)
    executor.submit(last, 6)
    chosen = executor.collect()
    together = last_logits(executor, count)
    first = executor.forward(last)
    for i, ids in enumerate(prompts):
        single = opened(model, pages)
        alone = chunked(single, ids, 128, tables[i][::-1].copy())
        assert np.array_equal(first[i], alone[-1]), i
        single.begin((GREEDY,), (none,))
        single.submit(Batch.single(ids[-1:], lengths[i] - 1, tables[i][::-1].copy()), 6)
        assert np.array_equal(single.collect()[:, 0], chosen[:, i]), i
        assert np.array_equal(last_logits(single, 1)[0], together[i]), i


def test_steps_a_submission(program, opened, scattered):
    """150 tokens, more than the ring of sampled tokens holds, are the same however steps are submitted and collected."""
    ids, (tables, pages) = prompt(15, 9), scattered(16, 170, 170)
    executor = opened(program("gemma3.f16"), pages)
    batch = Batch(
        np.concatenate([ids, ids[::-1]]), np.tile(np.arange(9, dtype=np.int32), 2), np.repeat(np.arange(2, dtype=np.int32), 9),
        tuple(tables), np.array([8, 17], np.int32),
    )  # fmt: skip
    found = []
    for sizes, ahead in (([1] * 150, 0), ([7] * 21 + [3], 1), ([64, 64, 22], 2), ([5, 40, 64, 41], 3)):
        executor.begin((GREEDY,) * 2, (np.empty(0, np.int32),) * 2)
        collected, waiting = [], 0
        for at, size in enumerate(sizes):
            executor.submit(None if at else batch, size)
            waiting += 1
            while waiting > ahead:
                collected.append(executor.collect())
                waiting -= 1
        found.append(np.concatenate([*collected, *(executor.collect() for _ in range(waiting))]))
    assert found[0].shape == (150, 2) and len(np.unique(found[0])) > 3
    for other in found[1:]:
        assert np.array_equal(other, found[0])


def test_one_table_for_two(program, opened, scattered, chunked):
    """Sequences that share the pages of a common beginning, as forks do."""
    ids, ([table], pages) = prompt(8, 40), scattered(9, 80)
    executor = opened(program("gemma3.f16"), pages)
    chunked(executor, ids[:32], 32, table)
    other = table.copy()
    other[2] = table[3]
    tails = [ids[32:], prompt(10, 8)]
    batch = Batch(
        np.concatenate(tails), np.tile(np.arange(32, 40, dtype=np.int32), 2), np.repeat(np.arange(2, dtype=np.int32), 8),
        (table, other), np.array([7, 15], np.int32),
    )  # fmt: skip
    found = executor.forward(batch)
    for tail, row in zip(tails, found, strict=True):
        fresh = opened(program("gemma3.f16"), pages)
        assert np.array_equal(chunked(fresh, np.concatenate([ids[:32], tail]), 40, table)[-1], row)


def test_dirty_pages(program, opened, scattered, chunked):
    """A page's earlier owner may have left anything in it, not-a-number included."""
    ids, ([table], pages) = prompt(11, 70), scattered(12, 80)
    for name in MODELS:
        clean, dirty = opened(program(name), pages), opened(program(name), pages)
        for buffer in (*dirty.memory.keys, *dirty.memory.values):
            dirty.device.write(buffer, np.full(buffer.size // 4, np.nan, np.float32))
        assert np.array_equal(chunked(dirty, ids, 9, table), chunked(clean, ids, 70, table)), name


@pytest.mark.parametrize("name", SPACES)
def test_states_across_pages_and_in_dirty_ones(name, program, opened, scattered, chunked):
    """Whatever pages held before, and wherever one goes back to: each token gives the bits it gave in its turn."""
    model, ids, ([table], pages) = program(name), prompt(21, 70), scattered(22, 70)
    clean, dirty = opened(model, pages), opened(model, pages)
    for buffer in (*dirty.memory.keys, *dirty.memory.values):
        dirty.device.write(buffer, np.full(buffer.size // 4, np.nan, np.float32))
    whole = chunked(clean, ids, len(ids), table)
    assert np.isfinite(whole).all() and whole.std() > 0.1
    assert np.array_equal(chunked(dirty, ids, 13, table), whole)
    for at in (69, 66, 64, 63, 48, 47, 31, 18, 17, 16, 15, 2, 1, 0):
        alone = dirty.forward(Batch.single(ids[at : at + 1], at, table))
        assert np.array_equal(alone[0], whole[at]), at
    assert np.array_equal(chunked(dirty, ids, 1, table), whole), "and on from there, token by token"


def test_latents_past_a_split_and_in_dirty_pages(program, opened, scattered, chunked):
    """One row for all heads, of which what fills whole units is read too: zeros, whatever its page held before."""
    model, ids, ([table], pages) = program(LATENT), prompt(17, SPLIT + 6), scattered(18, SPLIT + 6)
    clean, dirty = opened(model, pages), opened(model, pages)
    for buffer in dirty.memory.keys:
        dirty.device.write(buffer, np.full(buffer.size // 4, np.nan, np.float32))
    whole = chunked(clean, ids, len(ids), table)
    assert np.isfinite(whole).all() and whole.std() > 0.1
    assert np.array_equal(chunked(dirty, ids, 50, table), whole)
    for at in (0, 15, 16, SPLIT - 1, SPLIT, SPLIT + 5):
        assert np.array_equal(clean.forward(Batch.single(ids[at : at + 1], at, table))[0], whole[at]), at


def test_a_sequence_gone_wrong(program, opened, scattered, chunked):
    """One whose keys and values are not numbers spoils itself alone."""
    ids, (tables, pages) = prompt(13, 24), scattered(14, 32, 32)
    executor = opened(program("llama-gqa.f16"), pages)
    expected = chunked(executor, ids, 24, tables[0])[-1]
    chunked(executor, ids[:23], 23, tables[0])
    for buffer in (*executor.memory.keys, *executor.memory.values):
        page = buffer.size // (pages + 1)
        for at in tables[1]:
            executor.device.write(buffer, np.full(page // 4, np.nan, np.float32), int(at) * page)
    both = Batch(
        np.array([5, ids[23]], np.int32), np.array([20, 23], np.int32), np.array([1, 0], np.int32), tuple(tables),
        np.array([0, 1], np.int32),
    )  # fmt: skip
    found = executor.forward(both)
    assert np.isnan(found[0]).any() and np.array_equal(found[1], expected)
