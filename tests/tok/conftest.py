"""The tiny vocabularies that the tests of the tokenizer share."""

import functools
import json
from pathlib import Path
from typing import Any

import pytest

from llamay import tok

DATA = Path(__file__).parent.parent / "data" / "tokenizers"
BPE = ("tiny-bpe-gpt2", "tiny-bpe-llama3", "tiny-bpe-qwen2")
SPM = ("tiny-spm", "tiny-spm-phi3", "tiny-spm-gemma")


@functools.cache
def read(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


@functools.cache
def tokenizer(name: str) -> tok.Tokenizer:
    return tok.load(read(f"{name}.vocab"))


@pytest.fixture(params=[*BPE, *SPM])
def name(request: pytest.FixtureRequest) -> str:
    """The name of each tiny vocabulary."""
    chosen: str = request.param
    return chosen


@pytest.fixture
def tiny(name: str) -> tok.Tokenizer:
    """A tokenizer of each tiny vocabulary; shared, for it is immutable."""
    return tokenizer(name)


@pytest.fixture
def cases(name: str) -> Any:
    """What the reference made of the strings with this vocabulary."""
    return read(name)


@pytest.fixture(scope="session")
def strings() -> Any:
    return read("strings")


@pytest.fixture(scope="session")
def load() -> Any:
    """Name -> tokenizer of a tiny vocabulary."""
    return tokenizer


@pytest.fixture(scope="session")
def metadata() -> Any:
    """Name -> a fresh copy of the metadata of a tiny vocabulary."""
    return lambda name: dict(read(f"{name}.vocab"))
