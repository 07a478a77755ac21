"""Prompts that cannot fit: refused before they are encoded, and with advice that is true."""

import time

import pytest

from llamay import gguf
from llamay.arch import describe
from llamay.errors import ContextFull
from llamay.serve.loading.language import Language

EACH = 4_000_000


@pytest.fixture
def language(named_case) -> Language:
    with gguf.open(named_case("llama-gqa.f16").path) as file:
        return Language.of(file, describe(file))


def test_what_cannot_fit_is_refused_by_its_length(language: Language, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language.tokenizer, "encode", lambda *given, **more: pytest.fail("it was encoded"))
    text = "a" * EACH
    started = time.thread_time()
    for ask in (lambda: language.raw(text), lambda: language.chat([{"role": "user", "content": text}])):
        with pytest.raises(ContextFull, match="shorten the prompt") as refusal:
            ask()
        assert refusal.value.context == language.config.context < refusal.value.prompt
        assert f"{refusal.value.prompt:,} tokens at the least" in str(refusal.value)
        assert f"and the context {language.config.context:,}" in str(refusal.value)
    assert time.thread_time() - started < 2


def test_the_bound_is_that_of_the_context_it_is_served_with(language: Language, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("llamay.serve.loading.language.SOON_ENCODED", 100)
    longest = max(len(language.tokenizer.token_bytes(id)) for id in range(len(language.tokenizer)))
    language.context = 20
    assert len(language.raw("ab " * 10).tokens) > 0
    assert language.tokenizer.least("x" * 20 * longest) == 20
    with pytest.raises(ContextFull) as refusal:
        language.raw("x" * (20 * longest + 1))
    assert (refusal.value.prompt, refusal.value.context) == (21, 20)


@pytest.mark.parametrize("text", ["", "a", "hello there", "  \n\n  ", "für 12345 \U0001f600", "<s></s>" * 9, "\udc80abc"])
def test_no_text_has_fewer_tokens_than_the_bound(text: str, case) -> None:
    with gguf.open(case.path) as file:
        tokenizer = Language.of(file, describe(file)).tokenizer
    for times in (1, 50):
        assert tokenizer.least(text * times) <= len(tokenizer.encode(text * times, parse_special=True))


@pytest.mark.parametrize(
    ("made_for", "context", "prompt", "answer", "advice"),
    [
        (1 << 20, 64, 70, 10, "-c 80 would hold it with its answer"),
        (1 << 20, 64, 70, None, "-c 326 would hold it with its answer"),
        (64, 64, 70, 10, "this model was made for 64: shorten the prompt"),
        (128, 64, 100, 40, "this model was made for 128: shorten the prompt, or use -c 128"),
        (128, 128, 128, 1, "this model was made for 128: shorten the prompt"),
    ],
)
def test_the_advice_is_true(lab, made_for: int, context: int, prompt: int, answer: int | None, advice: str) -> None:
    model = lab.model(context=context)
    model.executor.program.context = made_for
    error = lab.answer(lab.start(model), lab.prompt_of(1, prompt), answer).error
    assert isinstance(error, ContextFull) and str(error).endswith(f"; {advice}"), error
    assert (error.prompt, error.context) == (prompt, context)
