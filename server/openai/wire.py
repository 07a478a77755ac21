"""What OpenAI's clients send, as far as it changes anything; unknown fields are ignored."""

from collections.abc import Iterator
from typing import Any

import msgspec

from llamay.errors import UsageError
from llamay.serve.options import Options
from llamay.tok import Tokenizer

MOST_LIKELIEST = 20
MOST_BIASES = 16384  # tokens or texts of one request, which each of its choices has
LONGEST_BIAS = 256  # characters of a text, which is encoded
DEFAULT_TOKENS = 16  # of a completion; a conversation has no such bound


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None


class Sampling(msgspec.Struct):
    """The fields that chat/completions and completions share."""

    model: str = ""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    typical_p: float | None = None
    repeat_penalty: float | None = None
    repeat_last_n: int | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float | bool] | list[Any] | None = None
    ignore_eos: bool | None = None
    cache_prompt: bool | None = None
    user: str | None = None
    llamay_context: str | None = None

    @property
    def with_usage(self) -> bool:
        """Whether a stream is to end with the usage."""
        return bool(self.stream_options and self.stream_options.include_usage)


class Chat(Sampling):
    """POST /v1/chat/completions."""

    messages: list[dict[str, Any]] = []
    max_tokens: int | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[Any] | None = None
    functions: list[Any] | None = None
    response_format: dict[str, Any] | None = None
    modalities: list[str] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    reasoning_effort: str | None = None
    reasoning: dict[str, Any] | None = None
    reasoning_format: str | None = None

    @property
    def apart(self) -> bool:
        """Whether what is thought is told apart from the content."""
        return self.reasoning_format != "none"

    @property
    def most(self) -> int | None:
        """How many tokens the answer may have."""
        return self.max_completion_tokens if self.max_completion_tokens is not None else self.max_tokens

    @property
    def likeliest(self) -> int | None:
        """How many likely tokens are told with each; None: no logprobs."""
        if self.top_logprobs is not None and not self.logprobs:
            raise UsageError("top_logprobs needs logprobs to be true")
        _check_likeliest("top_logprobs", self.top_logprobs)
        return (self.top_logprobs or 0) if self.logprobs else None


class Completion(Sampling):
    """POST /v1/completions."""

    prompt: str | list[Any] | None = None
    suffix: str | None = None
    max_tokens: int | None = DEFAULT_TOKENS
    best_of: int | None = None
    echo: bool | None = None
    logprobs: int | None = None

    @property
    def likeliest(self) -> int | None:
        """How many likely tokens are told with each; None: no logprobs."""
        _check_likeliest("logprobs", self.logprobs)
        return self.logprobs


class Response(Sampling):
    """POST /v1/responses."""

    input: str | list[Any] | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    top_logprobs: int | None = None
    include: list[str] | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    truncation: str | None = None
    metadata: dict[str, Any] | None = None
    store: bool | None = None
    background: bool | None = None
    conversation: Any = None
    previous_response_id: str | None = None

    @property
    def likeliest(self) -> int | None:
        """How many likely tokens are told with each; None: no logprobs."""
        _check_likeliest("top_logprobs", self.top_logprobs)
        wanted = "message.output_text.logprobs" in (self.include or ()) or bool(self.top_logprobs)
        return (self.top_logprobs or 0) if wanted else None


def options(body: Sampling, most: int | None, tokenizer: Tokenizer, likeliest: int | None = None) -> Options:
    """What they come to for the engine; at most `most` tokens are to be generated, -1 and None: as many as there is place for."""
    stop = [body.stop] if isinstance(body.stop, str) else body.stop
    found: Options = {
        "max_tokens": None if most == -1 else most,
        "temperature": body.temperature,
        "top_k": body.top_k,
        "top_p": body.top_p,
        "min_p": body.min_p,
        "typical_p": body.typical_p,
        "repeat_penalty": body.repeat_penalty,
        "presence_penalty": body.presence_penalty,
        "frequency_penalty": body.frequency_penalty,
        "repeat_last_n": body.repeat_last_n,
        "logit_bias": bias(body.logit_bias, tokenizer),
        "seed": None if body.seed is None else body.seed % (1 << 32),  # hosts take 64 bits, negative ones too
        "stop": [one for one in stop if one] if stop else None,
        "ignore_end": body.ignore_eos,
        "n": body.n,
        "prefix_cache": body.cache_prompt,
        "client": body.user,
        "logprobs": likeliest,
    }
    return found


def bias(given: dict[str, float | bool] | list[Any] | None, tokenizer: Tokenizer) -> dict[int, float] | None:
    """Token id -> what is added to its logit, of OpenAI's object or llama.cpp's array of [id or text, number or false]."""
    if given is None:
        return None
    if len(given) > MOST_BIASES:
        raise UsageError(f"logit_bias has {len(given)} entries; it may have {MOST_BIASES}")
    found: dict[int, float] = {}
    for tokens, value in _biases(given, tokenizer):
        for token in tokens:
            found[token] = found.get(token, 0.0) + value
    return found


def _biases(given: dict[str, float | bool] | list[Any], tokenizer: Tokenizer) -> Iterator[tuple[list[int], float]]:
    if isinstance(given, dict):
        for key, value in given.items():
            try:
                token = int(key)
            except ValueError:
                raise UsageError(f"logit_bias has the key {key[:40]!r}; expected a token id") from None
            yield [token], _weight(value)
        return
    for pair in given:
        if not isinstance(pair, list) or len(pair) != 2 or isinstance(pair[0], bool) or not isinstance(pair[0], int | str):
            raise UsageError("logit_bias has an element that is no pair of a token id or text and a number or false")
        if isinstance(pair[0], str) and len(pair[0]) > LONGEST_BIAS:
            raise UsageError(f"logit_bias has a text of {len(pair[0])} characters; it may have {LONGEST_BIAS}")
        yield tokenizer.encode(pair[0]) if isinstance(pair[0], str) else [pair[0]], _weight(pair[1])


def _weight(value: Any) -> float:
    if value is False:
        return float("-inf")
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise UsageError(f"logit_bias holds {value!r:.40}; expected a number, or false for never")
    try:
        return float(value)
    except OverflowError:
        raise UsageError("logit_bias holds a number that is beyond every float") from None


def _check_likeliest(name: str, count: int | None) -> None:
    if count is not None and not 0 <= count <= MOST_LIKELIEST:
        raise UsageError(f"{name} is {count}; it may be 0 to {MOST_LIKELIEST}")
