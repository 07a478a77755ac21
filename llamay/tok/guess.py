"""Which pre-tokenizer a vocabulary uses, and a reasoned guess where the file names none that is known."""

from llamay.tok.pretokenizers import PRETOKENIZERS, Pre
from llamay.tok.vocabulary import MODELS, Vocabulary

# a token that tells the family -> its pre-tokenizer; the first that is there counts
_TELLTALES = (
    ("<|return|>", "gpt-4o"),
    ("<|eot|>", "llama4"),
    ("<|start_header_id|>", "llama-bpe"),
    ("<｜begin▁of▁sentence｜>", "deepseek-v3"),
    ("<|START_OF_TURN_TOKEN|>", "command-r"),
    ("[INST]", "tekken"),
    ("[gMASK]", "glm4"),
)


def pretokenizer(vocabulary: Vocabulary, ids: dict[str, int]) -> tuple[str | None, Pre | None, str | None]:
    """Name, rules and the reason of a guess (None when the file named it); no name and rules for a model without merges."""
    if not MODELS[vocabulary.model].merges:
        return None, None, None
    if vocabulary.model == "gemma4":
        return "gemma4", PRETOKENIZERS["gemma4"], None
    if not vocabulary.pre:
        # files older than the key were all cut this way, so the reference does it too
        return "default", PRETOKENIZERS["default"], "tokenizer.ggml.pre is missing; cut by the rules named 'default'"
    if vocabulary.pre in PRETOKENIZERS:
        return vocabulary.pre, PRETOKENIZERS[vocabulary.pre], None
    name, sign = _guess(len(vocabulary.tokens), ids)
    reason = f"tokenizer.ggml.pre {vocabulary.pre[:80]!r} is unknown; cut as {name!r} does, because of {sign}"
    return name, PRETOKENIZERS[name], reason


def _guess(count: int, ids: dict[str, int]) -> tuple[str, str]:
    for text, name in _TELLTALES:
        if text in ids:
            return name, f"its token {text}"
    if count < 60_000:
        return "gpt-2", f"its {count} tokens"
    if "<|im_start|>" in ids:
        return "qwen2", "its token <|im_start|>"
    return ("gpt-4o" if count > 190_000 else "llama-bpe"), f"its {count} tokens"
