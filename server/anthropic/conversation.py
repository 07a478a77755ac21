"""Anthropic's messages as a chat template takes them, and the beginning of an answer that a client puts in the model's mouth."""

from dataclasses import dataclass
from typing import Any

from llamay.errors import UsageError
from llamay.server import bodies
from llamay.server.refusals import Unbuilt

ROLES = ("user", "assistant", "system")
PRIVATE = "x-anthropic-"  # begins what Claude Code says about itself: it changes with every request, and no prefix of a prompt would be known


@dataclass(frozen=True, slots=True)
class Conversation:
    """What is to be answered."""

    messages: list[dict[str, Any]]
    start: str = ""  # of the answer: a trailing message of the assistant


def conversation(
    system: str | list[Any] | None, messages: list[dict[str, Any]], *, begun: bool = False
) -> Conversation:
    """The conversation of a request, or what goes on one that has `begun`; UsageError names what is wrong or no text."""
    found: list[dict[str, Any]] = []
    for index, message in enumerate(messages):
        made = _message(f"messages[{index}]", message)
        if found and found[-1]["role"] == made["role"]:
            found[-1] = _joined(found[-1], made)
        else:
            found.append(made)
    start = found.pop()["content"] if found and found[-1]["role"] == "assistant" else ""
    text = _system(system)
    if text:
        found.insert(0, {"role": "system", "content": text})
    if not begun and not any(message["role"] == "user" for message in found):
        raise UsageError("messages holds no message of the user, so there is nothing to answer")
    return Conversation(found, start)


def _system(system: str | list[Any] | None) -> str:
    if system is None or isinstance(system, str):
        lines = (system or "").split("\n")
        while lines and lines[0].startswith(PRIVATE):
            lines.pop(0)
        return "\n".join(lines)
    texts = [_text(f"system[{index}]", block) for index, block in enumerate(system)]
    while texts and texts[0].lstrip().startswith(PRIVATE):
        texts.pop(0)
    return "\n\n".join(text for text in texts if text)


def _message(where: str, message: dict[str, Any]) -> dict[str, Any]:
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        raise UsageError(f"{where}.role is {ascii(role)[:60]}; it may be user, assistant or system")
    if isinstance(content, str):
        return {"role": role, "content": content}
    if not isinstance(content, list):
        raise UsageError(f"{where}.content is {bodies.kind(content)}; a string or an array was expected")
    texts, thoughts = [], []
    for index, block in enumerate(content):
        kind = block.get("type") if isinstance(block, dict) else None
        if kind == "redacted_thinking":
            continue  # nobody but its author can read it
        if kind == "thinking":
            thoughts.append(str(block.get("thinking") or ""))
        else:
            texts.append(_text(f"{where}.content[{index}]", block))
    made = {"role": role, "content": "".join(texts)}
    if any(thoughts):
        made["reasoning_content"] = "".join(thoughts)
    return made


def _text(where: str, block: Any) -> str:
    if isinstance(block, str):
        return block
    kind = block.get("type") if isinstance(block, dict) else bodies.kind(block)
    if kind != "text":
        raise Unbuilt(f"{where} is a block of type {ascii(kind)[:60]}, which is not supported yet; this server takes text")
    text = block.get("text")
    if not isinstance(text, str):
        raise UsageError(f"{where}.text is {bodies.kind(text)}; a string was expected")
    return text


def _joined(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Two messages of one role as one."""
    return {**first, **second, "content": "\n\n".join(text for text in (first["content"], second["content"]) if text)}
