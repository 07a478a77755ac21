"""The chain against two others: a plain float64 sampler that sorts, and what llama.cpp's own samplers kept."""

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from llamay.sample import Recent, Sampling, choose, probabilities

DATA = Path(__file__).parents[1] / "data" / "sample" / "llama_cpp.json"
CASES = json.loads(DATA.read_text())


def sorted_sampler(logits: NDArray, s: Sampling, counts: NDArray | None, shift: float = 0.0) -> NDArray[np.float64]:
    """Probabilities by sorting and float64; `shift` moves the thresholds of top-p and typical."""
    z = logits.astype(np.float64)
    for token, bias in s.logit_bias:
        z[token] += bias
    if s.penalises and counts is not None:
        seen = counts > 0
        z[seen] = np.where(z[seen] <= 0, z[seen] * s.repeat_penalty, z[seen] / s.repeat_penalty)
        z[seen] -= counts[seen] * s.frequency_penalty + s.presence_penalty
    ids = sorted(range(len(z)), key=lambda i: (-z[i], i))
    if s.temperature == 0:
        ids = ids[:1]
    else:
        ids = ids[: s.top_k or len(ids)]
        if s.typical_p < 1:
            p = shares(z, ids)
            entropy = -sum(q * math.log(q) for q in p if q > 0)
            surprise = [abs(-math.log(q) - entropy) if q > 0 else math.inf for q in p]
            order = sorted(range(len(ids)), key=lambda k: (surprise[k], ids[k]))
            ids = [ids[k] for k in covering(order, p, s.typical_p + shift)]
            ids.sort(key=lambda i: (-z[i], i))
        if s.top_p < 1:
            p = shares(z, ids)
            ids = [ids[k] for k in covering(list(range(len(ids))), p, s.top_p + shift)]
        if s.min_p > 0:
            ids = [i for i in ids if z[i] >= z[ids[0]] + math.log(s.min_p)]
    result = np.zeros(len(z))
    result[ids] = shares(z / (s.temperature or 1.0), ids)
    return result


def shares(z: NDArray, ids: list[int]) -> NDArray[np.float64]:
    e = np.exp(z[ids] - z[ids].max())
    return e / e.sum()


def covering(order: list[int], p: NDArray, share: float) -> list[int]:
    ends = np.cumsum(p[order])
    return order[: int(np.searchsorted(ends, share)) + 1]


def random_case(rng: np.random.Generator, size: int) -> tuple[NDArray[np.float32], Sampling, NDArray[np.uint32]]:
    def one(*values):
        return values[rng.integers(len(values))]

    logits = (rng.normal(size=size) * one(0.3, 2.0, 5.0)).astype(np.float32)
    sampling = Sampling(
        temperature=one(0.0, 0.2, 0.8, 1.0, 3.0),
        top_k=one(0, 1, 7, 40, 300),
        top_p=one(1.0, 0.95, 0.6, 0.0),
        min_p=one(0.0, 0.05, 0.4),
        typical_p=one(1.0, 1.0, 0.9, 0.3),
        repeat_penalty=one(1.0, 1.3, 0.8),
        presence_penalty=one(0.0, 0.7, -0.4),
        frequency_penalty=one(0.0, 0.1),
        logit_bias=one((), ((0, 3.0), (size - 1, -1.5))),
    )
    return logits, sampling, rng.integers(-6, 4, size).clip(0).astype(np.uint32)


def test_equals_a_sampler_that_sorts_in_float64() -> None:
    rng = np.random.default_rng(11)
    decided = 0
    for number in range(600):
        logits, sampling, counts = random_case(rng, int(rng.choice([2, 5, 31, 257, 1500])))
        low, high = (sorted_sampler(logits, sampling, counts, shift) for shift in (-2e-6, 2e-6))
        if ((low > 0) != (high > 0)).any():
            continue  # a threshold within rounding: either set would do
        decided += 1
        found = probabilities(logits, sampling, counts)
        assert ((found > 0) == (low > 1e-13)).all(), (number, sampling)
        np.testing.assert_allclose(found, low, rtol=3e-6, atol=1e-12, err_msg=f"{number} {sampling}")
        assert found[choose(logits, sampling, counts, number)] > 0
    assert decided > 580


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_keeps_what_llama_cpp_keeps(case: dict) -> None:
    bias = tuple((int(t), float(b)) for t, b in case["sampling"].get("logit_bias", ()))
    sampling = replace(Sampling(**{**case["sampling"], "logit_bias": ()}), logit_bias=bias)
    logits = np.array(case["logits"], np.float32)
    recent = Recent(len(logits), sampling.repeat_last_n, np.array(case["history"], np.int32), len(case["history"]))
    found = probabilities(logits, sampling, recent.counts)
    assert np.flatnonzero(found > 1e-10).tolist() == case["kept"]  # the file leaves out what is less
    np.testing.assert_allclose(found[case["kept"]], case["probabilities"], atol=6e-7)


def test_the_llama_cpp_cases_exercise_every_setting() -> None:
    assert len(CASES) == 60
    assert sum(len(case["kept"]) > 1 for case in CASES) > 20
    touched = {name for case in CASES for name in case["sampling"]}
    assert touched == {field for field in Sampling.__slots__ if field != "seed"}
