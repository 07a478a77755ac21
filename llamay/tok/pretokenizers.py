r"""How each `tokenizer.ggml.pre` cuts text into the words that byte-pair merges stay inside: a table, and no code.

`patterns` are applied one after the other, each to every fragment the one before has left; matches and the gaps
between them are the fragments. `digits` marks the runs that are first cut into threes from their right end.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pre:
    """One way to cut text, and what goes with it.

    ignore_merges: a word that is itself a token is taken whole. raw: pieces are plain UTF-8, not GPT-2 letters.
    escape_spaces: a space is written U+2581, as SentencePiece does. add_bos: what an absent flag in the file means.
    """

    patterns: tuple[str, ...]
    digits: str | None = None
    ignore_merges: bool = False
    raw: bool = False
    escape_spaces: bool = False
    add_bos: bool = False


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)"
_SHORT = r"(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"  # 's 't 're 've 'm 'll 'd in any case
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SIGNS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"


def _cl100k(numbers: str) -> str:
    return rf"{_SHORT}|{_LETTERS}|{numbers}|{_SIGNS}|{_SPACES}"


# cased words: upper then lower case, or upper case alone; letters without case are in both classes
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_CASED = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+%s|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*%s"
    rf"|%s| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
)
_O200K = _CASED % (f"{_SHORT}?", f"{_SHORT}?", r"\p{N}{1,3}")
_CJK = r"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_CODE_WORDS = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
_DEEPSEEK3 = rf"{_CODE_WORDS}| ?[\p{{P}}\p{{S}}]+[\r\n]*|{_SPACES}"
_BLOOM = r" ?[^(\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_DEEPSEEK_LATIN = (
    r"\s?[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    r"\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a"
    r"-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b"
    r"-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    r"\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0"
    r"-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a"
    r"-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb"
    r"-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00"
    r"-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8"
    r"-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943]+"
)
_DEEPSEEK_SIGNS = r"\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
_DEEPSEEK_CJK = r"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_HAN_UPPER, _HAN_LOWER = rf"(?:(?!\p{{Han}}){_UPPER})", rf"(?:(?!\p{{Han}}){_LOWER})"
_KIMI = (
    rf"\p{{Han}}+|[^\r\n\p{{L}}\p{{N}}]?{_HAN_UPPER}*{_HAN_LOWER}+{_SHORT}?"
    rf"|[^\r\n\p{{L}}\p{{N}}]?{_HAN_UPPER}+{_HAN_LOWER}*{_SHORT}?|\p{{N}}{{1,3}}|{_SIGNS}|{_SPACES}"
)
_AFMOE_SCRIPTS = (
    r"[\u4e00-\u9fff\u3400-\u4dbf\u8c48-\ufaff\u3040-\u309f\u30a0-\u30ff\uff65-\uff9f\u2f00-\u2fdf"
    r"\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff\uac00-\ud7af\u1100-\u11ff]+"
)
_YOUTU_SCRIPTS = (
    r"[\uac00-\ud7a3\u3131-\u318e]+|[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+|"
    r"[\u3105-\u312f]+|" + _CJK
)
_SPARK = rf"{_CODE_WORDS}| ?[\p{{P}}\p{{S}}]+|[\r\n]|\s+(?!\S)|\s+"
_JAIS2_SPACES = "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4)) + r"|\s{1,2}(?!\S)|\s{1}"
_BAILING = (
    r"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]"
    r"|\s+(?!\S)|\s+"
)

_QWEN35 = (
    rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?[\p{{L}}\p{{M}}]+|\p{{N}}| ?[^\s\p{{L}}\p{{M}}\p{{N}}]+[\r\n]*|{_SPACES}"
)
_EXAONE_MOE = (
    rf"{_SHORT}|[^\r\n\p{{L}}\p{{N}}]?(?:\p{{L}}\p{{M}}*(?: \p{{L}}\p{{M}}*)*)+|\p{{N}}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+"
)
_CHAMELEON = (r"<sentinel:[0-9]+>", r"IMGIMG[A-I]{1,4}Z", r"[\t\n]|    |  ", r"\p{N}", r"[\p{P}!-/:-@\[-`{-~]", _GPT2)

_PRES: tuple[tuple[str, Pre], ...] = (
    ("default", Pre((r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", r"[0-9][0-9][0-9]"))),
    ("gpt-2 mpt phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert olmo", Pre((_GPT2,))),
    ("jais exaone4 jina-v1-en jina-v2-code roberta-bpe trillion granite-docling", Pre((_GPT2,))),
    ("starcoder refact codeshell exaone minerva-7b mellum2 command-r smollm", Pre((r"\p{N}", _GPT2))),
    ("falcon", Pre((r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, r"[0-9][0-9][0-9]"))),
    (
        "llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        Pre((_cl100k(r"\p{N}{1,3}"),), ignore_merges=True, add_bos=True),
    ),
    ("dbrx smaug-bpe chatglm-bpe", Pre((_cl100k(r"\p{N}{1,3}"),))),
    ("glm4 glm5", Pre((_cl100k(r"\p{N}{1,3}"),), ignore_merges=True)),
    ("minicpm5", Pre((r"\p{N}{1,3}", _cl100k(r"\p{N}+")), ignore_merges=True)),
    (
        "qwen2 deepseek-r1-qwen kormo f2llmv2 hunyuan grok-2 solar-open stablelm2 megrez",
        Pre((_cl100k(r"\p{N}"),)),
    ),
    ("qwen35", Pre((_QWEN35,))),
    ("laguna", Pre((r"[^\n]+|[\n]+", _cl100k(r"\p{N}")))),
    ("ufakzeka", Pre((rf"{_LETTERS}|\p{{N}}|{_SIGNS}|{_SPACES}",))),
    ("seed-coder", Pre((rf"{_SHORT}|{_LETTERS}|\p{{N}}{{1}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{_SPACES}",))),
    ("bailingmoe bailingmoe2 llada-moe", Pre((_BAILING,))),
    ("exaone-moe", Pre((_EXAONE_MOE,))),
    ("jais-2", Pre((rf"{_SHORT}|{_LETTERS}|\p{{N}}{{1,3}}|{_SIGNS}|\s*[\r\n]+|{_JAIS2_SPACES}",))),
    ("gpt-4o llama4 kanana2 talkie minimax-m2", Pre((_O200K,))),
    ("granite-embed-multi-97m", Pre((_O200K,), ignore_merges=True)),
    ("tekken", Pre((_CASED % ("", "", r"\p{N}"),), ignore_merges=True, add_bos=True)),
    ("tiny_aya cohere2moe", Pre((_O200K,), digits=r"(?<!\d)\d++(?!\w)")),
    ("youtu", Pre((_YOUTU_SCRIPTS, _CASED % (f"{_SHORT}?", f"{_SHORT}?", r"\p{N}")), ignore_merges=True)),
    ("deepseek-llm", Pre(("[\r\n]", _DEEPSEEK_LATIN, _DEEPSEEK_SIGNS, r"\s+$", _DEEPSEEK_CJK, r"\p{N}+"))),
    ("deepseek-coder", Pre(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _DEEPSEEK_CJK, r"\p{N}"))),
    ("deepseek-v3 hunyuan-dense hy_v4 joyai-llm", Pre((r"\p{N}{1,3}", _CJK, _DEEPSEEK3))),
    ("spark2_5", Pre((r"\p{N}{1,3}", _CJK, _SPARK, r"\p{N}"))),
    ("kimi-k2", Pre((_KIMI,))),
    ("afmoe", Pre((_AFMOE_SCRIPTS, _DEEPSEEK3), digits=r"\p{Nd}++")),
    ("superbpe", Pre((r"\p{N}+",), digits=r"\p{Nd}++")),
    ("bloom gpt3-finnish poro-chat", Pre((_BLOOM,))),
    ("viking", Pre((_BLOOM, r"\p{N}"))),
    ("chameleon", Pre(_CHAMELEON, add_bos=True)),
    ("whitespace", Pre((r"\S+",), raw=True)),
    ("gemma4 granite-embed-multi-311m sarvam-moe", Pre((r"[^\n]+|[\n]+",), raw=True, escape_spaces=True)),
)

PRETOKENIZERS: dict[str, Pre] = {name: pre for names, pre in _PRES for name in names.split()}
