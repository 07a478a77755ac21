"""Conversations in the shape of the OpenAI API, brought into one that a chat template can take without losing words."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llamay.errors import UsageError

Message = dict[str, Any]
DEEPEST = 64  # levels of lists and objects in a message


def checked(messages: Iterable[Mapping[str, Any]], typed: bool) -> list[Message]:
    """A deep copy with `developer` as system, no null content, and content as text (as a list of parts if `typed`).

    UsageError for what is no conversation.
    """
    found = [_message(message, at, typed) for at, message in enumerate(messages)]
    if not found:
        raise UsageError("there are no messages; a conversation needs at least one")
    return found


def _message(message: Mapping[str, Any], at: int, typed: bool) -> Message:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise UsageError(f"message {at} is no object with a text `role`")
    copy: Message = copied(message, f"message {at}")
    copy["role"] = "system" if copy["role"] == "developer" else copy["role"]
    content = copy.get("content")
    if content is not None and not isinstance(content, (str, list)):
        raise UsageError(f"the content of message {at} is a {type(content).__name__}; text or a list of parts is needed")
    if typed:
        copy["content"] = [{"type": "text", "text": content or ""}] if not isinstance(content, list) else content
    else:
        copy["content"] = content if isinstance(content, str) else _text(content or [], at)
    for call in copy.get("tool_calls") or ():
        function = call.get("function") if isinstance(call, dict) else None
        if not isinstance(function, dict):
            raise UsageError(f"a tool call of message {at} has no `function` object")
        function["arguments"] = _arguments(function.get("arguments"))
    return copy


def _text(parts: list[Any], at: int) -> str:
    texts = []
    for part in parts:
        if not isinstance(part, dict) or part.get("type") not in ("text", "input_text", "output_text"):
            kind = part.get("type") if isinstance(part, dict) else type(part).__name__
            raise UsageError(f"message {at} has a part of type {kind!r}; this model's template takes text parts only")
        texts.append(part["text"] if isinstance(part.get("text"), str) else "")
    return "\n".join(texts)


def _arguments(value: Any) -> Any:
    """Arguments as an object where they are one: most templates print JSON text a second time as JSON."""
    if isinstance(value, str):
        try:
            found = json.loads(value)
        except (ValueError, RecursionError):
            return value
        return found if isinstance(found, dict) else value
    return {} if value is None else value


def copied(value: Any, where: str, depth: int = 0) -> Any:
    """A deep copy of JSON-like data; UsageError for anything else."""
    if depth > DEEPEST:
        raise UsageError(f"{where} is nested deeper than {DEEPEST} levels")
    if isinstance(value, Mapping):
        if wrong := next((key for key in value if not isinstance(key, str)), None):
            raise UsageError(f"{where} has the key {wrong!r}; keys are texts")
        return {key: copied(item, where, depth + 1) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [copied(item, where, depth + 1) for item in value]
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    raise UsageError(f"{where} holds a {type(value).__name__}; only what JSON has is possible")


def added(first: Message, second: Message) -> Message:
    """Two messages of one role as one."""
    a, b = first["content"], second["content"]
    joined = a + b if isinstance(a, list) else "\n\n".join(text for text in (a, b) if text)
    calls = [*(first.get("tool_calls") or ()), *(second.get("tool_calls") or ())]
    return first | second | {"content": joined} | ({"tool_calls": calls} if calls else {})


def with_one_system(messages: Sequence[Message]) -> list[Message]:
    """The system messages at the start as one."""
    count = next((at for at, message in enumerate(messages) if message["role"] != "system"), len(messages))
    if count < 2:
        return list(messages)
    system = messages[0]
    for message in messages[1:count]:
        system = added(system, message)
    return [system, *messages[count:]]


def without_system(messages: Sequence[Message]) -> list[Message]:
    """The system text at the start of the first user message; a conversation without one starts with it."""
    if messages[0]["role"] != "system":
        return list(messages)
    system, rest = messages[0] | {"role": "user"}, list(messages[1:])
    at = next((at for at, message in enumerate(rest) if message["role"] == "user"), None)
    if at is None:
        return [system, *rest]
    rest[at] = added(system, rest[at])
    return rest


def late_system_as_user(messages: Sequence[Message]) -> list[Message]:
    """System messages after the first message as marked words of the user."""
    note: Any = "[system] "
    found = []
    for at, message in enumerate(messages):
        if at and message["role"] == "system":
            text = message["content"]
            text = [{"type": "text", "text": note}, *text] if isinstance(text, list) else note + text
            message = message | {"role": "user", "content": text}
        found.append(message)
    return found


def neighbours_merged(messages: Sequence[Message]) -> list[Message]:
    """Messages of one role in a row as one (not tool results, which answer a call each)."""
    found: list[Message] = []
    for message in messages:
        if found and found[-1]["role"] == message["role"] != "tool":
            found[-1] = added(found[-1], message)
        else:
            found.append(message)
    return found


def thinking_dropped(messages: Sequence[Message]) -> list[Message]:
    """Messages with content and tool calls without their thinking, which some templates refuse beside both."""
    keys = ("thinking", "reasoning", "reasoning_content")
    return [
        {key: value for key, value in message.items() if key not in keys}
        if message["content"] and message.get("tool_calls")
        else message
        for message in messages
    ]


def arguments_as_text(messages: Sequence[Message]) -> list[Message]:
    """Tool calls with their arguments as JSON text."""
    return _calls(messages, lambda call: call["function"].update(arguments=json.dumps(call["function"]["arguments"])))


def short_ids(messages: Sequence[Message]) -> list[Message]:
    """Tool call ids as nine letters and digits, as Mistral's templates demand; equal ids stay equal."""

    def short(id: Any) -> str:
        return hashlib.sha256(str(id).encode("utf-8", "surrogatepass")).hexdigest()[:9]

    found = _calls(messages, lambda call: call.update(id=short(call.get("id"))))
    return [
        message | {"tool_call_id": short(message["tool_call_id"])} if "tool_call_id" in message else message
        for message in found
    ]


def _calls(messages: Sequence[Message], change: Any) -> list[Message]:
    found: list[Message] = [copied(message, "a message") for message in messages]
    for message in found:
        for call in message.get("tool_calls") or ():
            change(call)
    return found
