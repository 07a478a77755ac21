"""The tiny vocabularies that the tests of the tokenizer share."""

import functools
import json
import lzma
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from llamay import tok

DATA = Path(__file__).parent.parent / "data" / "tokenizers"
BPE = ("tiny-bpe-gpt2", "tiny-bpe-llama3", "tiny-bpe-qwen2")
SPM = ("tiny-spm", "tiny-spm-phi3", "tiny-spm-gemma")
CHARSMAPS = {"tiny-ugm": "tiny-ugm.charsmap.xz"}  # of SentencePiece's own rules, nmt_nfkc


@functools.cache
def read(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text(encoding="utf-8"))


def described(name: str) -> dict[str, Any]:
    """A fresh copy of the metadata of a tiny vocabulary."""
    found = dict(read(f"{name}.vocab"))
    if name in CHARSMAPS:
        found["tokenizer.ggml.precompiled_charsmap"] = np.frombuffer(charsmap(CHARSMAPS[name]), np.uint8)
    return found


@functools.cache
def charsmap(name: str) -> bytes:
    return lzma.decompress((DATA / name).read_bytes())


@functools.cache
def tokenizer(name: str) -> tok.Tokenizer:
    return tok.load(described(name))


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
    return described


@pytest.fixture(scope="session")
def made() -> Any:
    """Name -> what the reference made of the strings with a tiny vocabulary."""
    return read
