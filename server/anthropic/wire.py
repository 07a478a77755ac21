"""What Anthropic's clients send, as far as it changes anything; unknown fields are ignored."""

from typing import Any

import msgspec

from llamay.errors import UsageError
from llamay.serve.options import Options
from llamay.server.refusals import Unbuilt

MOST_TOKENS = 4096  # of an answer, where a client forgot the field that Anthropic requires
THINKING = {  # kind -> the variable of chat templates that know it; the API thinks only where it is asked to
    None: {"enable_thinking": False},
    "disabled": {"enable_thinking": False},
    "enabled": {"enable_thinking": True},
    "adaptive": {},
    "between_tools": {},
}


class Counted(msgspec.Struct):
    """POST /v1/messages/count_tokens, and what /v1/messages shares with it."""

    model: str = ""
    messages: list[dict[str, Any]] = []
    system: str | list[Any] | None = None
    tools: list[Any] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: dict[str, Any] | None = None
    output_format: dict[str, Any] | None = None


class Asked(Counted):
    """POST /v1/messages."""

    max_tokens: int | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    metadata: dict[str, Any] | None = None
    llamay_context: str | None = None


def check(body: Counted, *, begun: bool = False) -> None:
    """Refuses by name what is not there; a conversation that has `begun` may go on without new messages."""
    if not body.messages and not begun:
        raise UsageError("messages: at least one message is required")
    if body.tools:
        raise Unbuilt("tools are not supported yet; send the request without `tools`")
    choice = (body.tool_choice or {}).get("type", "auto")
    if choice not in ("auto", "none"):
        raise Unbuilt(f"tool_choice {choice!r} is not supported yet, as tools are not")
    thinking = (body.thinking or {}).get("type")
    if not (thinking is None or isinstance(thinking, str)) or thinking not in THINKING:
        raise UsageError(f"thinking.type is {ascii(thinking)[:60]}; it may be enabled, adaptive, between_tools or disabled")
    if (body.output_config or {}).get("format") or body.output_format:
        raise Unbuilt("output_config.format is not supported yet; the answer is text")


def variables(body: Counted, thinks: object) -> dict[str, Any]:
    """The variables of the chat template; `thinks` are the marks of one that knows thoughts, None for others."""
    kind = (body.thinking or {}).get("type")
    if thinks is None and kind == "enabled":
        raise Unbuilt("this model's chat template knows no thinking; send the request without `thinking`")
    return {} if thinks is None else dict(THINKING[kind])


def options(body: Asked) -> Options:
    """What they come to for the engine."""
    user = (body.metadata or {}).get("user_id")
    return {
        "max_tokens": MOST_TOKENS if body.max_tokens is None else body.max_tokens,
        "temperature": body.temperature,
        "top_p": body.top_p,
        "top_k": body.top_k,
        "stop": body.stop_sequences or None,
        "client": user if isinstance(user, str) else None,
    }
