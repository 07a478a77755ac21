"""The WebGPU executor against transformers and NumPy: logits of every position of every prompt, and greedy tokens."""

from dataclasses import replace

import numpy as np
import pytest

from llamay import gguf
from llamay.arch import describe
from llamay.model import bind
from llamay.sample import Sampling
from llamay.tensor.batch import Batch
from llamay.tensor.numpy import NumpyExecutor
from llamay.tensor.program import Gated, Norm, Qkv

TABLE = np.array([5, 6, 7, 3, 1, 0, 2], np.int32)  # neither ascending nor gapless
GREEDY = (Sampling(temperature=0.0),)
# compiling for this class takes long: a cap, windows and norms on both sides; blocks of weights; the soak has the others
PORTABLE = ("gemma2.f16", "qwen2-k.q4_k")


def program_of(case):
    file = gguf.open(case.path)
    return bind(file, describe(file)).program


def logits_of(executor, ids):
    return executor.forward(Batch.single(ids, 0, TABLE, np.arange(len(ids), dtype=np.int32)))


def continued(executor, ids, count):
    """`count` greedy tokens: some with the prompt, the rest from the slots."""
    executor.begin(GREEDY, (ids,))
    executor.submit(Batch.single(ids, 0, TABLE), 4)
    executor.submit(None, count - 4)
    return np.concatenate([executor.collect(), executor.collect()])[:, 0].tolist()


def agrees(case, executor, prompts):
    for prompt in prompts:
        ids = case.ids(prompt)
        found = logits_of(executor, ids)
        assert found.dtype == np.float32 and found.shape == case.logits(prompt).shape
        assert np.abs(found - case.logits(prompt)).max() <= case.tolerance, prompt
        if prompt in case.greedy():
            assert continued(executor, ids, len(case.greedy()[prompt])) == case.greedy()[prompt], prompt


def test_transformers(case, opened):
    assert len(case.prompts) >= 3 and case.greedy()
    executor = opened(program_of(case), 8)
    agrees(case, executor, case.prompts)
    assert all(row.passed for row in executor.selftest.rows)


@pytest.mark.parametrize(
    "name", [*PORTABLE, *(pytest.param(name, marks=pytest.mark.soak) for name in ("llama-mha-bias.f16", "qwen3.f16"))]
)
def test_least_limits(name, named_case, opened, least):
    """No feature and no limit beyond what WebGPU promises: another launch class, the same answers."""
    case = named_case(name)
    executor = opened(program_of(case), 8, device=least)
    agrees(case, executor, case.prompts)


@pytest.mark.parametrize("name", ["gemma3.f16", "qwen2-k.q2_k", "llama-rope-yarn.f16"])
def test_float64_twins(name, named_case, opened):
    """Closer to NumPy's float64 than to the recorded float32 of transformers."""
    case = named_case(name)
    program = program_of(case)
    executor, precise = opened(program, 8), NumpyExecutor(program, 8, precise=True)
    for prompt in case.prompts:
        expected = logits_of(precise, case.ids(prompt))
        found = logits_of(executor, case.ids(prompt))
        assert np.abs(found - expected).max() <= 2e-5 * np.abs(expected).max(), prompt


def test_branches_without_norms(named_case, opened):
    """Every epilogue reads h as it is where its norm is none; no architecture has all of them so."""
    case = named_case("llama-gqa.f16")
    program = program_of(case)
    none = Norm(np.ones(program.hidden, np.float32), 1e-5, kind="none")
    operations = (replace(op, norm=none) if isinstance(op, Qkv | Gated) else op for op in program.operations)
    changed = replace(program, operations=tuple(operations))
    ids = case.ids("p33")
    expected = logits_of(NumpyExecutor(changed, 8, precise=True), ids)
    assert np.abs(logits_of(opened(changed, 8), ids) - expected).max() <= 2e-5 * np.abs(expected).max()
    assert np.abs(expected - case.logits("p33")).max() > 0.1
