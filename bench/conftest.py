"""What the benchmarks share: the executor the settings choose, and text to read.

    python -m pytest bench [--model NAME] [--benchmark-json FILE]

`make test` does not run these.  Their figures mean something on an idle machine only.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from llamay import gguf, settings, tok
from llamay.bench.shapes import Mix, Shape
from llamay.bench.synthetic import build
from llamay.quant import TensorType
from llamay.sample import Sampling
from llamay.serve.loading import devices
from llamay.serve.loading.pools import single
from llamay.tensor.batch import Batch
from llamay.tensor.executor import Executor

ROOT = Path(__file__).parents[1]
GREEDY = Sampling(temperature=0.0)

Make = Callable[..., Executor]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--model", help="the model whose tokenizer is measured, besides the tiny ones of tests/data")


@pytest.fixture
def make() -> Iterator[Make]:
    """Makes executors of synthetic models, on what the settings choose unless NumPy is asked for."""
    made: list[Executor] = []

    def one(shape: Shape, type: TensorType, context: int, backend: str | None = None) -> Executor:
        in_force = settings.load({"backend": backend})
        program = build(shape, Mix(type, output=None)).program
        made.append(devices.executor(devices.choose(in_force), program, single(program, in_force.kv, context), in_force))
        return made[-1]

    yield one
    for executor in made:
        executor.close()


@pytest.fixture(scope="session")
def prose() -> str:
    """A megabyte of English."""
    pages = [ROOT / "LICENSE", ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    return (text * (1_000_000 // len(text) + 1))[:1_000_000]


@pytest.fixture(params=["llama-gqa.f16", "gemma3.f16", "--model"])
def tokenizer(request: pytest.FixtureRequest) -> tok.Tokenizer:
    """A tiny byte-level BPE, a tiny SentencePiece, and the model's that was asked for."""
    path = ROOT / "tests" / "data" / "models" / f"{request.param}.gguf"
    if request.param == "--model":
        name = request.config.getoption("--model")
        if name is None:
            pytest.skip("no --model was given")
        from llamay.cli import models

        path = models.path(name, settings.load())
    with gguf.open(path) as file:
        return tok.load(file.metadata)


@pytest.fixture
def settle() -> Callable[[Executor, int], None]:
    """Makes an executor ready to decode after a position: one row is computed there and its token collected."""

    def run(executor: Executor, position: int) -> None:
        table, tokens = np.arange(executor.pages, dtype=np.int32), np.ones(1, np.int32)
        executor.begin((GREEDY,), (tokens,))
        executor.submit(Batch.single(tokens, position, table), 1)
        executor.submit(None, 1)
        executor.collect()
        executor.collect()

    return run
