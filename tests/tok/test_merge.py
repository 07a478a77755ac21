"""The two ways to merge neighbours agree, and neither is slow on a long word."""

import random
import time
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from llamay.tok.merge import LONG, NEVER, merge

RANKS = st.dictionaries(st.text("ab", min_size=2, max_size=5), st.integers(0, 6), max_size=24)


def naive(symbols: list[str], ranks: dict[str, int]) -> list[str]:
    symbols = list(symbols)
    while True:
        pairs = [(ranks[a + b], i) for i, (a, b) in enumerate(pairwise(symbols)) if a + b in ranks]
        if not pairs:
            return symbols
        at = min(pairs)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]


@given(st.text("ab", max_size=2 * LONG + 9), RANKS)
def test_merging_is_what_it_says(text: str, ranks: dict[str, int]) -> None:
    assert merge(list(text), lambda a, b: ranks.get(a + b, NEVER)) == naive(list(text), ranks)


def test_long_words_take_n_log_n() -> None:
    ranks = {"a" * n: n for n in range(2, 40)}
    start = time.process_time()
    pieces = merge(["a"] * 100_000, lambda a, b: ranks.get(a + b, NEVER))
    assert "".join(pieces) == "a" * 100_000
    assert time.process_time() - start < 5


def test_the_input_is_left_alone() -> None:
    symbols = random.Random(1).choices("ab", k=30)
    before = list(symbols)
    merge(symbols, lambda a, b: 0 if len(a + b) < 4 else NEVER)
    assert symbols == before
