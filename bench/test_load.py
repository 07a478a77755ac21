"""Opening a file with a large vocabulary, its tokenizer, and bringing weights into an executor."""

from pathlib import Path

import numpy as np
import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from llamay import gguf, settings, tok
from llamay.bench.shapes import SHAPES
from llamay.bench.synthetic import make as synthetic
from llamay.quant import TensorType
from llamay.serve.loading import devices
from llamay.serve.loading.pools import single
from llamay.tok.bpe import BYTES

VOCABULARY = 150_000


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with as many tokens and merges as the largest byte-level vocabularies have."""
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    pairs = [one + other for one in letters for other in letters]
    triples = [pair + letter for pair in pairs for letter in letters]
    quads = [triple + letter for triple in triples for letter in letters]
    tokens = [*BYTES, *pairs, *triples, *quads][:VOCABULARY]
    merges = [f"{word[:-1]} {word[-1]}" for word in tokens[len(BYTES) :]]
    path = tmp_path_factory.mktemp("load") / "large.gguf"
    metadata = {
        "general.architecture": "llama",
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * len(tokens),
        "tokenizer.ggml.merges": merges,
    }
    gguf.write(path, metadata, [("output_norm.weight", TensorType.F32, (8,), np.ones(8, np.float32))])
    return path


def test_open(benchmark: BenchmarkFixture, large: Path) -> None:
    """Header and tensor table; arrays stay unread."""

    def opened() -> None:
        gguf.open(large).close()

    benchmark(opened)


def test_tokenizer_of_a_file(benchmark: BenchmarkFixture, large: Path) -> None:
    """Everything encoding needs."""

    def loaded() -> None:
        with gguf.open(large) as file:
            tok.load(file.metadata)

    benchmark.pedantic(loaded, rounds=3, warmup_rounds=1)


@pytest.mark.parametrize("spec", ["smollm2-135m:q4_1", "smollm2-135m:q4_k_m"])
def test_weights(benchmark: BenchmarkFixture, spec: str) -> None:
    """Repacking into the executor that the settings choose."""
    in_force = settings.load()
    choice = devices.choose(in_force)
    program = synthetic(spec).program
    assert spec.split(":")[0] in SHAPES

    def loaded() -> None:
        devices.executor(choice, program, single(program, in_force.kv, 64), in_force).close()

    benchmark.pedantic(loaded, rounds=2)
