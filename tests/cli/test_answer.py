"""The closing line and the statistics, on made-up times."""

from dataclasses import replace

from llamay.cli import answer
from llamay.sample import Sampling
from llamay.serve.events import Done, Timings

TIMES = Timings(prompt_tokens=11, cached_tokens=0, prompt_seconds=0.11225, generated_tokens=64, decode_seconds=5.093)


def test_the_closing_line() -> None:
    line = "prompt 11 tokens in 112ms (98.0 tok/s) · generated 64 in 5.093s (12.6 tok/s) · stop: length"
    assert answer.summary(Done("length", TIMES, 1)) == line


def test_tokens_kept_from_before_are_told_and_not_counted() -> None:
    line = answer.summary(Done("end", replace(TIMES, cached_tokens=10), 1))
    assert line.startswith("prompt 11 tokens, 10 of them kept, in 112ms (8.9 tok/s) · ")


def test_a_single_token_has_no_rate_of_its_own() -> None:
    line = answer.summary(Done("length", replace(TIMES, generated_tokens=1, decode_seconds=0.0), 1))
    assert "generated 1 in 0ms (0.0 tok/s)" in line


def test_sampling_in_words() -> None:
    assert answer.described(Sampling(temperature=0.0), 7) == "greedy"
    off = Sampling(temperature=0.5, top_k=0, top_p=1.0, min_p=0.0)
    assert answer.described(off, 7) == "temperature 0.5, seed 7"
    assert answer.described(Sampling(), 7) == "temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, seed 7"
