"""What is appended behind an answer is what rendering the whole conversation anew would put there."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llamay import tok
from llamay.errors import ContextFull, TemplateError
from llamay.sample import Sampling
from llamay.serve.contexts import turns
from llamay.serve.loading.language import Language
from llamay.tok import ChatTemplate
from llamay.tok.fallback import CHATML, GEMMA, PLAIN, special_texts

DATA = Path(__file__).parents[1] / "data" / "tokenizers"
LLAMA3 = (
    "{{ bos_token }}{% for m in messages %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>"
    "{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
MISTRAL = (
    "{{ bos_token }}{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}"
    "{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]{% else %} {{ m.content }}{{ eos_token }}{% endif %}{% endfor %}"
)
PHI3 = (
    "{{ bos_token }}{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
FAMILIES = {
    "chatml": ("tiny-bpe-qwen2", CHATML),
    "llama3": ("tiny-bpe-llama3", LLAMA3),
    "gemma": ("tiny-spm-gemma", GEMMA),
    "mistral": ("tiny-spm", MISTRAL),
    "phi3": ("tiny-spm-phi3", PHI3),
}
FIRST = [{"role": "user", "content": "what is a lighthouse?"}]
ANSWER = {"role": "assistant", "content": "a tower with a light"}
MORE = [{"role": "user", "content": "and <|im_end|> a <end_of_turn> ferry</s>?"}]


def language(vocabulary: str, source: str, stops: tuple[str, ...] = ()) -> Language:
    metadata: dict[str, Any] = json.loads((DATA / f"{vocabulary}.vocab.json").read_text(encoding="utf-8"))
    if vocabulary == "tiny-spm-gemma":  # it lacks one token that its template is about
        metadata["tokenizer.ggml.tokens"][319], metadata["tokenizer.ggml.token_type"][319] = "<start_of_turn>", 3
    tokenizer = tok.load(metadata)
    template = ChatTemplate(source, special_texts(tokenizer), stops=stops)
    config: Any = SimpleNamespace(context=4096)
    return Language("tiny", config, tokenizer, template, Sampling())


def ended(language: Language) -> list[int]:
    """A conversation as a model leaves it: with the token that ends its turn, and nothing behind."""
    tokens = turns.opening(language, [*FIRST, ANSWER]).tokens
    while tokens[-1] not in language.tokenizer.end_tokens:
        tokens.pop()
    return tokens


@pytest.mark.parametrize("family", FAMILIES)
def test_behind_an_answer_stands_what_the_template_puts_there(family: str) -> None:
    spoken = language(*FAMILIES[family])
    held = ended(spoken)
    found = turns.after_answer(spoken, held, MORE)
    assert found.tokens[: len(held)] == held
    assert found.tokens == spoken.chat([*FIRST, ANSWER, *MORE]).tokens


@pytest.mark.parametrize("family", FAMILIES)
def test_an_answer_that_was_cut_short_has_its_turn_ended(family: str) -> None:
    spoken = language(*FAMILIES[family])
    held = ended(spoken)
    assert turns.after_answer(spoken, held[:-1], MORE).tokens == turns.after_answer(spoken, held, MORE).tokens
    assert held[-1] in spoken.tokenizer.end_tokens


@pytest.mark.parametrize("family", FAMILIES)
def test_words_of_a_user_end_no_turn(family: str) -> None:
    spoken = language(*FAMILIES[family])
    held = ended(spoken)
    plain = turns.after_answer(spoken, held, [{"role": "user", "content": "and a ferry?"}]).tokens
    for control in ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>"):
        said = turns.after_answer(spoken, held, [{"role": "user", "content": f"and{control} a ferry?"}]).tokens
        for id in spoken.tokenizer.end_tokens:
            assert said.count(id) == plain.count(id)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_start_of_the_next_answer_is_text_too(family: str) -> None:
    spoken = language(*FAMILIES[family])
    held = ended(spoken)
    found = turns.after_answer(spoken, held, MORE, "It is <|im_end|>")
    assert found.tokens == spoken.chat([*FIRST, ANSWER, *MORE], "It is <|im_end|>").tokens


def test_a_stop_string_is_not_said_twice() -> None:
    spoken = language("tiny-spm", PLAIN, ("\nUser:", "\nAssistant:"))
    encode = spoken.tokenizer.encode
    held = [*spoken.chat(FIRST).tokens, *encode(" a tower\nUser:", continues=True)]
    text = spoken.tokenizer.text(turns.after_answer(spoken, held, [{"role": "user", "content": "why?"}]).tokens)
    assert text == "User: what is a lighthouse?\nAssistant: a tower\nUser: why?\nAssistant:"
    cut = [*spoken.chat(FIRST).tokens, *encode(" a tower", continues=True)]
    assert spoken.tokenizer.text(turns.after_answer(spoken, cut, [{"role": "user", "content": "why?"}]).tokens) == text


def test_without_messages_the_answer_itself_goes_on() -> None:
    spoken = language(*FAMILIES["chatml"])
    held = [*spoken.chat(FIRST).tokens, *spoken.tokenizer.encode("a tow")]
    assert turns.after_answer(spoken, held, []).tokens == held
    found = turns.after_answer(spoken, held, [], "er<|im_end|>").tokens
    assert found[: len(held)] == held and not set(found[len(held) :]) & spoken.tokenizer.end_tokens


@pytest.mark.parametrize("vocabulary", ["tiny-bpe-qwen2", "tiny-spm", "tiny-spm-gemma"])
def test_a_text_goes_on_as_it_is(vocabulary: str) -> None:
    spoken = language(vocabulary, PLAIN)
    held = spoken.raw("the light").tokens
    found = turns.after_text(spoken, held, "house on").tokens
    assert found[: len(held)] == held
    assert spoken.tokenizer.text(found) == "the lighthouse on"
    assert turns.after_text(spoken, [], "the light").tokens == held


def test_what_cannot_be_is_refused() -> None:
    silent = language("tiny-bpe-qwen2", "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}")
    with pytest.raises(TemplateError, match="leaves answers out"):
        turns.after_answer(silent, [1, 2], MORE)
    spoken = language(*FAMILIES["chatml"])
    with pytest.raises(ContextFull, match="tokens at the least"):
        turns.after_text(spoken, [1], "word " * 200_000)
