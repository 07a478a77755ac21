"""What Ollama's clients send, as far as it changes anything; unknown fields are ignored."""

from typing import Any

import msgspec

from llamay.errors import UsageError
from llamay.serve.logprobs import MOST_LIKELIEST
from llamay.server.configuration import duration
from llamay.server.refusals import Unbuilt

LEVELS = ("low", "medium", "high", "max")  # of thinking


class Named(msgspec.Struct):
    """A model by its name, which older clients send as `name`."""

    model: str | None = None
    name: str | None = None
    stream: bool | None = None  # yes, where nothing is said

    @property
    def called(self) -> str:
        """The name, empty where none was sent."""
        return self.model or self.name or ""

    @property
    def streamed(self) -> bool:
        """Whether the answer comes in lines."""
        return self.stream is not False


class Answered(Named):
    """What generate and chat share."""

    options: dict[str, Any] | None = None
    keep_alive: str | float | None = None
    format: Any = None
    think: bool | str | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    llamay_context: str | None = None

    @property
    def likeliest(self) -> int | None:
        """How many likely tokens are told with each; None: no logprobs."""
        return (self.top_logprobs or 0) if self.logprobs else None

    @property
    def variables(self) -> dict[str, Any]:
        """What `think` comes to for a chat template: a level is a yes as well."""
        if self.think is None:
            return {}
        level = {"reasoning_effort": self.think} if isinstance(self.think, str) else {}
        return {"enable_thinking": bool(self.think), **level}


class Generate(Answered):
    """POST /api/generate."""

    prompt: str | None = None
    suffix: str | None = None
    system: str | None = None
    template: str | None = None
    context: list[int] | None = None
    raw: bool | None = None
    images: list[Any] | None = None


class Chat(Answered):
    """POST /api/chat."""

    messages: list[dict[str, Any]] | None = None
    tools: list[Any] | None = None


class Embed(Named):
    """POST /api/embed and, with `prompt`, /api/embeddings."""

    input: str | list[str] | None = None
    prompt: str | None = None
    truncate: bool | None = None
    dimensions: int | None = None
    options: dict[str, Any] | None = None
    keep_alive: str | float | None = None


class Show(Named):
    """POST /api/show."""

    verbose: bool | None = None


class Copy(msgspec.Struct):
    """POST /api/copy."""

    source: str = ""
    destination: str = ""


class Create(Named):
    """POST /api/create."""

    from_: str | None = msgspec.field(default=None, name="from")
    files: dict[str, str] | None = None
    adapters: dict[str, str] | None = None
    template: str | None = None
    system: str | None = None
    license: str | list[str] | None = None
    parameters: dict[str, Any] | None = None
    messages: list[dict[str, Any]] | None = None
    quantize: str | None = None


def check(body: Answered) -> None:
    """Refuses by name what is not there."""
    if body.format:
        raise Unbuilt("format is not supported yet; send the request without it")
    if isinstance(body.think, str) and body.think not in LEVELS:
        raise UsageError(f"think is {body.think[:40]!r}; it may be true, false, {', '.join(LEVELS[:-1])} or {LEVELS[-1]}")
    if body.top_logprobs is not None and not 0 <= body.top_logprobs <= MOST_LIKELIEST:
        raise UsageError(f"top_logprobs is {body.top_logprobs}; it may be 0 to {MOST_LIKELIEST}")
    if isinstance(body, Generate):
        _check_generate(body)
    if isinstance(body, Chat) and body.tools:
        raise Unbuilt(f"{body.called or 'the model'} does not support tools yet; send the request without them")


def check_thinking(body: Answered, thinks: object) -> None:
    """`thinks` are the marks of a chat template that knows thoughts, None for others."""
    if body.think and thinks is None:
        raise Unbuilt(f"{body.called or 'the model'} does not support thinking; send the request without `think`")


def _check_generate(body: Generate) -> None:
    if body.images:
        raise Unbuilt(f"{body.called or 'the model'} does not support images")
    if body.template:
        raise Unbuilt("template is not supported: the model's own chat template is used; `raw` uses none")
    if body.raw and (body.system or body.context):
        raise UsageError("raw takes the prompt as it is; system and context go without raw")


def kept(value: str | float | None) -> float | None:
    """The seconds of a keep_alive; None, for good, where it is negative.  Call it where one was sent."""
    try:
        return duration(0.0 if value is None else value)
    except UsageError:
        raise UsageError(f"keep_alive is {ascii(value)[:60]}; expected seconds, or as in 5m, 1h30m, 0 or -1") from None
