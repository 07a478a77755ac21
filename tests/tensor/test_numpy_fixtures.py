"""The NumPy executor against transformers: logits of every position of every prompt, and greedy continuations."""

import numpy as np
import pytest

from llamay import gguf
from llamay.arch import describe
from llamay.model import bind
from llamay.sample import Sampling
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
