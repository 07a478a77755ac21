"""The NumPy executor against transformers: logits of every position of every prompt, and greedy continuations."""

from dataclasses import replace

import numpy as np
import pytest

from llamay import gguf
from llamay.arch import describe
from llamay.errors import UsageError
from llamay.model import bind
from llamay.sample import Recent, Sampling, choose
from llamay.tensor.batch import Batch
from llamay.tensor.numpy import NumpyExecutor

TABLE = np.array([5, 6, 7, 3, 1, 0, 2], np.int32)  # neither ascending nor gapless


@pytest.fixture(params=[False, True], ids=["float32", "float64"])
def executor(request, case):
    file = gguf.open(case.path)
    made = NumpyExecutor(bind(file, describe(file)).program, 8, precise=request.param)
    yield made
    made.close()


def test_logits_of_every_position(case, executor):
    assert len(case.prompts) >= 3
    for prompt in case.prompts:
        ids = case.ids(prompt)
        found = executor.forward(Batch.single(ids, 0, TABLE, np.arange(len(ids), dtype=np.int32)))
        assert found.dtype == np.float32 and found.shape == case.logits(prompt).shape
        assert np.abs(found - case.logits(prompt)).max() <= case.tolerance, prompt


def test_greedy_continuations(case, executor):
    assert case.greedy()
    for prompt, expected in case.greedy().items():
        ids = case.ids(prompt)
        executor.begin((Sampling(temperature=0.0),), (ids,))
        executor.submit(Batch.single(ids, 0, TABLE), 4)
        executor.submit(None, len(expected) - 4)
        found = np.concatenate([executor.collect(), executor.collect()])
        assert found[:, 0].tolist() == expected, prompt


def test_a_context_beyond_the_original_takes_the_long_factors(named_case):
    """phi3's two sets of rope factors: the context in use decides for all of its positions, and shows in the numerics."""
    case = named_case("phi3-longrope.f16")
    file = gguf.open(case.path)
    config = replace(describe(file), context=1024)
    long, short = bind(file, config).program, bind(file, config, 256).program
    rows, table = np.array([0, 100, 255, 256, 269], np.int32), np.arange(17, dtype=np.int32)
    executor = NumpyExecutor(long, 17)
    found = executor.forward(Batch.single(case.arrays["long_ids"].astype(np.int32), 0, table, rows))
    assert np.abs(found - case.arrays["long_logits"]).max() <= case.tolerance
    other = NumpyExecutor(short, 17)
    ids = case.ids("p33")
    assert np.abs(other.forward(Batch.single(ids, 0, table)) - case.logits("p33")[-1]).max() <= case.tolerance
    assert executor.numerics == other.numerics + ".long"


def test_sampling_follows_the_chain(named_case):
    """Submissions sample as llamay.sample does from forward's logits: seeds, penalties and slots included."""
    file = gguf.open(named_case("llama-gqa.f16").path)
    program = bind(file, describe(file)).program
    ids = named_case("llama-gqa.f16").ids("p7")
    samplings = (
        Sampling(temperature=1.5, top_k=0, top_p=1.0, min_p=0.0, seed=11),
        Sampling(temperature=0.9, repeat_penalty=1.4, presence_penalty=0.3, repeat_last_n=5, seed=12),
        Sampling(temperature=0.0, repeat_penalty=2.0, repeat_last_n=-1),
    )
    tables = tuple(np.arange(2, dtype=np.int32) + 2 * slot for slot in range(3))
    rows = len(ids)
    batch = Batch(
        np.tile(ids, 3),
        np.tile(np.arange(rows, dtype=np.int32), 3),
        np.repeat(np.arange(3, dtype=np.int32), rows),
        tables,
        np.arange(3, dtype=np.int32) * rows + rows - 1,
    )
    executor = NumpyExecutor(program, 6)
    executor.begin(samplings, (ids,) * 3)
    executor.submit(batch, 9)
    found = executor.collect()
    for slot, sampling in enumerate(samplings):
        tokens, recent = list(ids), Recent(program.vocabulary, sampling.repeat_last_n, ids, rows)
        for step in range(9):
            at = len(tokens) - 1
            fresh = NumpyExecutor(program, 2).forward(Batch.single(np.array(tokens, np.int32), 0, tables[0]))
            token = choose(fresh[0], sampling, recent.counts, at)
            recent.push(token, at + 1)
            tokens.append(token)
            assert found[step, slot] == token, (slot, step)
    assert len({tuple(column) for column in found.T}) == 3


def test_refusals(named_case):
    file = gguf.open(named_case("llama-gqa.f16").path)
    executor = NumpyExecutor(bind(file, describe(file)).program, 2)
    table, greedy = np.arange(2, dtype=np.int32), Sampling(temperature=0.0)
    with pytest.raises(UsageError, match="outside the vocabulary of 320"):
        executor.forward(Batch.single(np.array([320], np.int32), 0, table))
    with pytest.raises(UsageError, match="position 32 lies beyond the 2 pages"):
        executor.forward(Batch.single(np.array([1], np.int32), 32, table))
    with pytest.raises(UsageError, match="outside the pool of 2"):
        executor.forward(Batch.single(np.array([1], np.int32), 0, np.array([2], np.int32)))
    with pytest.raises(UsageError, match="a row beyond its 1"):
        executor.forward(Batch.single(np.array([1], np.int32), 0, table, np.array([1])))
    with pytest.raises(UsageError, match="negative position"):
        executor.forward(Batch.single(np.array([1], np.int32), -1, table))
    with pytest.raises(UsageError, match="beyond its 0 tables"):
        executor.forward(Batch(np.array([1]), np.array([0]), np.array([0]), (), np.array([0])))
    with pytest.raises(UsageError, match="at least one"):
        executor.forward(Batch.single(np.array([], np.int32), 0, table))
    with pytest.raises(UsageError, match="no submission outstanding"):
        executor.collect()
    executor.begin((greedy, greedy), (np.empty(0, np.int32),) * 2)
    with pytest.raises(UsageError, match="1 outputs, but begin gave 2"):
        executor.submit(Batch.single(np.array([1], np.int32), 0, table), 1)
    executor.close()
    executor.close()
