"""Messages of OpenAI's clients as a chat template takes them."""

from collections.abc import Mapping
from typing import Any

from llamay.errors import UsageError
from llamay.server import bodies

ROLES = {"developer": "system"}  # templates know no developer
OURS = frozenset({"self", "messages", "start", "tools", "add_generation_prompt", "now"})  # what a template is given besides its variables


def conversation(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same messages with text for content; UsageError names what is no text."""
    return [_message(index, message) for index, message in enumerate(messages)]


def parted(messages: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], str]:
    """The conversation up to the answer, and the beginning of the answer where the last message is the assistant's."""
    if not messages or messages[-1]["role"] != "assistant":
        return messages, ""
    if len(messages) > 1 and messages[-2]["role"] == "assistant":
        raise UsageError("the last two messages are the assistant's; the answer can go on from one only")
    return messages[:-1], messages[-1]["content"]


def variables(
    given: Mapping[str, Any] | None, effort: str | None = None, reasoning: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The variables of a chat template: those that are given, and what the ways to ask for reasoning come to."""
    found = dict(given or {})
    for name in found:
        if name in OURS or not name.isidentifier():
            raise UsageError(f"chat_template_kwargs holds {name[:40]!r}, which is no variable of a chat template's own")
    told = (reasoning or {}).get("effort")
    effort = effort or (told if isinstance(told, str) else None)
    if effort == "none":
        found.setdefault("enable_thinking", False)
    elif effort:
        found.setdefault("reasoning_effort", effort)
    return found


def _message(index: int, message: dict[str, Any]) -> dict[str, Any]:
    role = message.get("role")
    if not isinstance(role, str):
        raise UsageError(f"messages[{index}].role is {bodies.kind(role)}; a string was expected")
    found = {"role": ROLES.get(role, role), "content": text(f"messages[{index}].content", message.get("content"))}
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if isinstance(reasoning, str):
        found["reasoning_content"] = reasoning
    return found


def text(where: str, content: Any) -> str:
    """The text of a message's content, which `where` names."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise UsageError(f"{where} is {bodies.kind(content)}; a string or an array was expected")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else None
        words = part.get("text" if kind != "refusal" else "refusal") if isinstance(part, dict) else part
        if kind not in ("text", "input_text", "output_text", "refusal") or not isinstance(words, str):
            raise UsageError(f"{where} has a part of type {kind!r:.60}; this model takes text alone")
        texts.append(words)
    return "".join(texts)
