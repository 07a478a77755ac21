"""Each setting does what its name says, and values without a meaning are refused."""

import math
from dataclasses import replace

import numpy as np
import pytest

from llamay.errors import UsageError
from llamay.sample import Recent, Sampling, choose, choose_batch, fresh_seed, probabilities
from llamay.sample.terms import MOST_TOKENS, Terms

OPEN = Sampling(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)
LOGITS = (np.random.default_rng(5).normal(size=500) * 2).astype(np.float32)
SIZES = (1, 2, 31, 32, 257, 49152)
DRAWS = 1500


def kept(sampling: Sampling, logits=LOGITS, **more) -> set[int]:
    return set(np.flatnonzero(probabilities(logits, sampling, **more)).tolist())


def first(count: int) -> set[int]:
    return set(np.argsort(-LOGITS, kind="stable")[:count].tolist())


@pytest.mark.parametrize("size", SIZES)
def test_greedy_takes_the_first_of_the_largest(size: int) -> None:
    logits = np.round(np.random.default_rng(size).normal(size=size)).astype(np.float32)
    want = int(np.argmax(logits))
    ways = (Sampling(temperature=0.0), replace(OPEN, top_k=1), replace(OPEN, top_p=0.0), Sampling(temperature=1e-7))
    assert {choose(logits, how, None, position) for how in ways for position in range(3)} == {want}


@pytest.mark.parametrize("size", SIZES)
def test_equal_logits_are_equally_likely_and_ties_go_to_the_lower_token(size: int) -> None:
    flat = np.full(size, -7.25, np.float32)
    assert kept(replace(OPEN, top_k=20), flat) == set(range(min(20, size)))
    assert kept(replace(OPEN, top_p=0.5), flat) == set(range(math.ceil(size / 2)))
    assert kept(replace(OPEN, typical_p=0.25), flat) == set(range(size // 4 + 1))
    assert np.ptp(probabilities(flat, OPEN)) == 0.0


def test_temperature_goes_to_greedy_and_to_even() -> None:
    cold, warm = (probabilities(LOGITS, replace(OPEN, temperature=t)).max() for t in (1e-3, 1e5))
    assert cold > 1 - 1e-6 and warm < 1.0001 / len(LOGITS)
    entropies = []
    for temperature in (0.25, 0.5, 1.0, 2.0, 8.0):
        p = probabilities(LOGITS, replace(OPEN, temperature=temperature))
        entropies.append(-(p[p > 0] * np.log(p[p > 0])).sum())
    assert entropies == sorted(entropies)


def test_temperature_comes_after_the_filters() -> None:
    for how in (replace(OPEN, top_p=0.7), replace(OPEN, min_p=0.2), replace(OPEN, typical_p=0.6)):
        assert kept(how) == kept(replace(how, temperature=5.0)) == kept(replace(how, temperature=0.3))


def test_filters_keep_prefixes() -> None:
    for k in (1, 2, 40, 499):
        assert kept(replace(OPEN, top_k=k)) == first(k)
    assert kept(replace(OPEN, top_k=500)) == kept(replace(OPEN, top_k=10_000)) == set(range(500))
    sizes = [len(kept(replace(OPEN, top_p=p))) for p in (0.0, 0.2, 0.5, 0.9, 0.999)]
    assert sizes == sorted(sizes) and sizes[0] == 1 and sizes[-1] < 500
    assert all(kept(replace(OPEN, top_p=p)) == first(n) for p, n in zip((0.2, 0.5, 0.9), sizes[1:4], strict=True))
    likely = probabilities(LOGITS, OPEN)
    for p in (0.01, 0.1, 0.5, 1.0):
        assert kept(replace(OPEN, min_p=p)) == set(np.flatnonzero(likely >= p * likely.max() * (1 - 1e-6)).tolist())


def test_typical_may_drop_the_likeliest() -> None:
    logits = np.log(np.array([0.4] + [0.06] * 10, np.float32))
    assert kept(replace(OPEN, typical_p=0.5), logits) == set(range(1, 10))
    assert kept(replace(OPEN, typical_p=0.5, top_p=0.2), logits) == {1, 2}  # of what typical left
    assert choose(logits, Sampling(temperature=0.0, typical_p=0.5)) == 0  # greedy is greedy


def test_a_bias_moves_excludes_and_forces() -> None:
    best = int(np.argmax(LOGITS))
    assert choose(LOGITS, Sampling(temperature=0.0, logit_bias=((17, 100.0),))) == 17
    out = Sampling(temperature=0.0, logit_bias=((best, -math.inf),))
    assert choose(LOGITS, out) == np.argsort(-LOGITS, kind="stable")[1]
    assert best not in kept(replace(OPEN, temperature=1e6, logit_bias=((best, -math.inf),)))
    assert kept(replace(OPEN, logit_bias=((3, math.inf),))) == {3}
    twice = replace(OPEN, logit_bias=((9, 1.0), (9, 0.5)))
    assert (probabilities(LOGITS, twice) == probabilities(LOGITS, replace(OPEN, logit_bias=((9, 1.5),)))).all()


def test_penalties_move_the_tokens_seen() -> None:
    counts = np.zeros(500, np.uint32)
    up, down = int(np.argmax(LOGITS)), int(np.argmin(LOGITS))
    counts[[up, down]] = [1, 3]
    before = probabilities(LOGITS, OPEN)

    def after(**changes) -> np.ndarray:
        return np.log(probabilities(LOGITS, replace(OPEN, **changes), counts) / before)

    other = int(np.argsort(LOGITS)[250])
    moved = after(presence_penalty=0.5)
    np.testing.assert_allclose(moved[[up, down]] - moved[other], -0.5, atol=1e-5)
    moved = after(frequency_penalty=0.5)
    np.testing.assert_allclose(moved[[up, down]] - moved[other], [-0.5, -1.5], atol=1e-5)
    moved = after(repeat_penalty=2.0)  # divides what is above zero, multiplies what is below
    np.testing.assert_allclose(moved[[up, down]] - moved[other], [-LOGITS[up] / 2, LOGITS[down]], atol=1e-4)
    assert (after(presence_penalty=0.5, repeat_last_n=0) == 0).all()
    assert choose(LOGITS, Sampling(temperature=0.0, presence_penalty=100.0), counts) != up


def test_a_mask_allows_only_its_tokens() -> None:
    allowed = np.zeros(16, np.uint32)
    for token in (3, 31, 32, 499):
        allowed[token // 32] |= np.uint32(1 << token % 32)
    assert kept(OPEN, allowed=allowed) == {3, 31, 32, 499}
    assert choose(LOGITS, Sampling(temperature=0.0), allowed=allowed) == max((3, 31, 32, 499), key=lambda t: LOGITS[t])


def test_extreme_logits() -> None:
    logits = np.array([-3e38, 1e30, np.nan, -1e30, -np.inf, 1e30], np.float32)
    assert kept(OPEN, logits) == {1, 5}
    assert kept(replace(OPEN, temperature=1e6), logits) == {1, 5}
    assert choose(logits, Sampling(temperature=0.0)) == 1
    assert choose(np.full(4, -3e38, np.float32), Sampling(temperature=0.0)) == 0
    assert choose(np.full(4, np.nan, np.float32), Sampling()) in range(4)


def test_the_draw_follows_seed_and_position_and_nothing_else() -> None:
    def draws(seed: int) -> list[int]:
        return [choose(LOGITS, replace(OPEN, seed=seed), None, position) for position in range(50)]

    assert draws(1) == draws(1) != draws(2)
    assert draws(1) != draws(1 + (1 << 32))
    batch = choose_batch(np.tile(LOGITS, (50, 1)), [replace(OPEN, seed=1)] * 50, [None] * 50, range(50))
    assert batch.dtype == np.int32 and batch.tolist() == draws(1)
    assert len({fresh_seed() for _ in range(20)}) > 15


@pytest.mark.parametrize("how", [OPEN, Sampling(temperature=1.5, top_k=30), replace(OPEN, typical_p=0.7)], ids=str)
def test_draws_have_the_probabilities(how: Sampling) -> None:
    logits = LOGITS[:24]
    p = probabilities(logits, how)
    tokens = np.flatnonzero(p)
    for drawn in (
        [choose(logits, replace(how, seed=seed), None, 3) for seed in range(DRAWS)],
        [choose(logits, replace(how, seed=3), None, position) for position in range(DRAWS)],
    ):
        seen = np.bincount(drawn, minlength=24)
        assert seen.sum() == seen[tokens].sum() == DRAWS
        freedom = len(tokens) - 1
        chi = ((seen[tokens] - DRAWS * p[tokens]) ** 2 / (DRAWS * p[tokens])).sum()
        # Wilson and Hilferty: the cube root is near normal; 4 sigma
        assert (chi / freedom) ** (1 / 3) < 1 - 2 / (9 * freedom) + 4 * math.sqrt(2 / (9 * freedom))


@pytest.mark.parametrize(
    "field",
    [
        {"temperature": math.nan},
        {"temperature": -1.0},
        {"temperature": math.inf},
        {"top_k": -1},
        {"top_p": 1.01},
        {"min_p": -0.1},
        {"typical_p": math.nan},
        {"repeat_penalty": 0.0},
        {"presence_penalty": math.inf},
        {"frequency_penalty": math.nan},
        {"repeat_last_n": -2},
        {"logit_bias": ((-1, 0.0),)},
        {"logit_bias": ((1, math.nan),)},
    ],
    ids=str,
)
def test_a_value_without_a_meaning_is_refused_by_name(field: dict) -> None:
    with pytest.raises(UsageError, match=next(iter(field))):
        Sampling(**field)


def test_what_does_not_fit_the_vocabulary_is_refused() -> None:
    with pytest.raises(UsageError, match="token 500; the vocabulary ends at 499"):
        choose(LOGITS, Sampling(logit_bias=((500, 1.0),)))
    for size in (0, MOST_TOKENS + 1):
        with pytest.raises(UsageError, match=f"vocabulary of {size} tokens"):
            Terms.of(Sampling(), size)


@pytest.mark.parametrize("last_n", [0, 1, 5, 64, -1])
def test_the_recent_tokens_are_counted(last_n: int) -> None:
    rng = np.random.default_rng(last_n + 2)
    tokens = rng.integers(0, 9, 150)
    recent = Recent(9, last_n, tokens[:20].astype(np.int32), 1020)
    for step in range(20, 150):
        window = tokens[:step] if last_n < 0 else tokens[max(0, step - last_n) : step]
        assert recent.counts.tolist() == np.bincount(window, minlength=9).tolist()
        recent.push(int(tokens[step]), 1000 + step)
