"""A gap in a text: the prompt that a vocabulary with tokens for it makes, and the refusal by one without."""

from pathlib import Path

import pytest

from llamay import arch, gguf, tok
from llamay.errors import ContextFull, UsageError
from llamay.sample import Sampling
from llamay.serve.loading.language import Language
from llamay.tok.fallback import chat_template

MODEL = Path(__file__).parents[1] / "data" / "models" / "qwen2.f16.gguf"
MARKS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")


@pytest.fixture
def language() -> Language:
    """That of a tiny model whose last three tokens are renamed."""
    with gguf.open(MODEL) as file:
        metadata = dict(file.metadata)
        tokens = list(file.metadata["tokenizer.ggml.tokens"].strings())
        metadata["tokenizer.ggml.tokens"] = [*tokens[:-3], *MARKS]
        tokenizer = tok.load(metadata)
        return Language("made", arch.describe(file), tokenizer, chat_template(tokenizer), Sampling())


def test_prefix_suffix_middle(language: Language) -> None:
    prefix, suffix, middle = (language.tokenizer.ids[mark] for mark in MARKS)
    before, after = "def f(x):\n", "\n<|fim_middle|>return y"
    found = language.infill(before, after).tokens
    encode = language.tokenizer.encode
    assert found == language.begun([prefix, *encode(before), suffix, *encode(after), middle])
    assert found.count(middle) == 1, "a mark that the text spells stays text"


def test_a_vocabulary_without_marks() -> None:
    with pytest.raises(UsageError, match="filling in the middle"):
        Language.read(MODEL).infill("a", "b")


def test_what_stands_around_files_counts_before_it_is_encoded(language: Language, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their marks alone may be more than any context."""
    monkeypatch.setattr(language.tokenizer, "encode", lambda *_, **how: pytest.fail("it was encoded"))
    with pytest.raises(ContextFull, match="characters"):
        language.infill("a", "b", [("", "")] * 10_000)
