"""Which chat template a vocabulary goes with: its own, or a named one where the file has none."""

from llamay.errors import TemplateError
from llamay.tok.chat import ChatTemplate
from llamay.tok.tokenizer import Tokenizer

CHATML = """{% for message in messages -%}
<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor -%}
{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

GEMMA = """{{ bos_token }}{% for message in messages -%}
{% if message.role == 'system' %}{{ raise_exception('no system turns') }}{% endif -%}
<start_of_turn>{{ 'model' if message.role == 'assistant' else message.role }}
{{ message.content | trim }}<end_of_turn>
{% endfor -%}
{% if add_generation_prompt %}<start_of_turn>model
{% endif %}"""

PLAIN = """{% for message in messages -%}
{% if message.role == 'system' %}{{ message.content }}

{% else %}{{ message.role | capitalize }}: {{ message.content }}
{% endif %}{% endfor -%}
{% if add_generation_prompt %}Assistant:{% endif %}"""

FALLBACKS = (("chatml", "<|im_start|>", CHATML), ("gemma", "<start_of_turn>", GEMMA))


def chat_template(tokenizer: Tokenizer, purpose: str = "") -> ChatTemplate:
    """The file's template for a purpose ("" or one it names, like "tool_use"), or the fallback for its vocabulary.

    TemplateError when the file has no template for a purpose that was asked for by name.
    """
    tokens, templates = special_texts(tokenizer), tokenizer.vocabulary.chat_templates
    if purpose in templates:
        return ChatTemplate(templates[purpose], tokens)
    if purpose:
        known = ", ".join(name or "default" for name in templates) or "none"
        raise TemplateError(f"the file has no chat template named {purpose!r}; it has: {known}")
    for name, sign, source in FALLBACKS:
        if sign in tokenizer.ids:
            return ChatTemplate(source, tokens, name=name)
    return ChatTemplate(PLAIN, tokens, name="plain", stops=("\nUser:", "\nAssistant:"))


def special_texts(tokenizer: Tokenizer) -> dict[str, str]:
    """The texts of special tokens by the names that templates use; those a model lacks are empty."""
    ids = {"bos": tokenizer.bos, "eos": tokenizer.eos, "unk": tokenizer.unknown, "pad": tokenizer.padding}
    return {f"{name}_token": "" if id is None else tokenizer.vocabulary.tokens[id] for name, id in ids.items()}
