"""Encoding a megabyte of English at once, and decoding it as a stream."""

from pytest_benchmark.fixture import BenchmarkFixture

from llamay import tok


def test_encode(benchmark: BenchmarkFixture, tokenizer: tok.Tokenizer, prose: str) -> None:
    """One megabyte, with nothing cached from before."""
    fresh = [tok.Tokenizer(tokenizer.vocabulary) for _ in range(4)]
    ids = benchmark.pedantic(lambda: fresh.pop().encode(prose), rounds=3, warmup_rounds=1)
    benchmark.extra_info["bytes a token"] = len(prose.encode()) / len(ids)


def test_decode(benchmark: BenchmarkFixture, tokenizer: tok.Tokenizer, prose: str) -> None:
    """Ten thousand tokens one by one, as an answer comes."""
    ids = tokenizer.encode(prose[:100_000])[:10_000]

    def streamed() -> None:
        decoder = tok.Decoder(tokenizer, ())
        for id in ids:
            decoder.push(id)
        decoder.finish()

    benchmark(streamed)
