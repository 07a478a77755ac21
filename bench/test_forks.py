"""Forking a context of 2,048 tokens 32 times: bookkeeping of the host, whatever the model."""

from pytest_benchmark.fixture import BenchmarkFixture

from llamay.kv import Cache, Context

TOKENS, FORKS = 2048, 32
BOUND = 100e-6  # seconds for all of them, on an idle machine


def test_fork(benchmark: BenchmarkFixture) -> None:
    cache = Cache(2 * TOKENS // 16)
    parent = cache.allocate(range(TOKENS))
    forks: list[Context] = []

    def drop() -> None:
        while forks:
            cache.drop(forks.pop())

    benchmark.pedantic(lambda: forks.extend(cache.fork(parent, FORKS)), setup=drop, rounds=200, warmup_rounds=5)
    benchmark.extra_info["bound"] = BOUND
    assert cache.groups[0].pages.free == TOKENS // 16
    if benchmark.stats is not None:  # None where benchmarks are disabled
        assert benchmark.stats.stats.min < BOUND
