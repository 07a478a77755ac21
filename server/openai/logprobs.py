"""Logprobs as OpenAI's API writes them: objects for conversations and responses, parallel arrays for completions."""

import codecs
from collections.abc import Iterable
from typing import Any

from llamay.serve.logprobs import Scored
from llamay.tok import Tokenizer


def content(tokenizer: Tokenizer, scored: Iterable[Scored], *, ids: bool = False) -> list[dict[str, Any]]:
    """The tokens with their bytes, which put together are the text's; with `ids` as llama.cpp has them."""

    def entry(token: int, logprob: float) -> dict[str, Any]:
        return {"id": token, **_entry(tokenizer, token, logprob)} if ids else _entry(tokenizer, token, logprob)

    return [
        {
            **entry(one.token, one.logprob),
            "top_logprobs": [entry(other.token, other.logprob) for other in one.likeliest],
        }
        for one in scored
    ]


def choice(tokenizer: Tokenizer, scored: Iterable[Scored] | None) -> dict[str, Any] | None:
    """The logprobs of a choice, null where they were not asked for."""
    return None if scored is None else {"content": content(tokenizer, scored), "refusal": None}


def name(tokenizer: Tokenizer, token: int) -> str:
    """A token as text; the bytes of one that is a part of a character are spelled."""
    raw = tokenizer.token_bytes(token)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join([f"\\x{byte:02x}" for byte in raw])


class Arrays:
    """The arrays of one choice of a completion, whole or piece by piece; offsets go on from piece to piece."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._characters = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._at = 0  # characters before the next token

    def of(self, scored: Iterable[Scored], first: int | None = None) -> dict[str, list[Any]]:
        """The next tokens; before them `first`, of which nothing is known because nothing stands before it."""
        found: dict[str, list[Any]] = {"tokens": [], "token_logprobs": [], "top_logprobs": [], "text_offset": []}
        if first is not None:
            self._add(found, first, None)
        for one in scored:
            self._add(found, one.token, one)
        return found

    def _add(self, found: dict[str, list[Any]], token: int, scored: Scored | None) -> None:
        found["tokens"].append(name(self._tokenizer, token))
        found["token_logprobs"].append(None if scored is None else scored.logprob)
        likeliest = () if scored is None else scored.likeliest
        best: dict[str, float] = {}
        for one in likeliest:  # of equal names the likelier
            best.setdefault(name(self._tokenizer, one.token), one.logprob)
        found["top_logprobs"].append(None if scored is None else best)
        found["text_offset"].append(self._at)
        self._at += len(self._characters.decode(self._tokenizer.token_bytes(token, special=False)))


def _entry(tokenizer: Tokenizer, token: int, logprob: float) -> dict[str, Any]:
    """A control token has a name, and no bytes: it is none of the text."""
    raw = tokenizer.token_bytes(token)
    spelled = tokenizer.token_bytes(token, special=False)
    return {"token": raw.decode("utf-8", "replace"), "bytes": list(spelled), "logprob": logprob}
