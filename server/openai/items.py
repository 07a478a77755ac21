"""Items: what goes into a response and comes out of it, between OpenAI's shapes and the messages of a conversation."""

from dataclasses import dataclass, field
from typing import Any

from llamay.errors import UsageError
from llamay.server import bodies, replies
from llamay.server.openai.messages import ROLES, text
from llamay.server.refusals import Unbuilt

Message = dict[str, Any]


def messages(given: str | list[Any] | None) -> list[Message]:
    """The messages of an input; UsageError names what is none."""
    if given is None:
        return []
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    found: list[Message] = []
    reasoning = ""
    for index, item in enumerate(given):
        where = f"input[{index}]"
        if not isinstance(item, dict):
            raise UsageError(f"{where} is {bodies.kind(item)}; an object was expected")
        kind = item.get("type", "message")
        if kind == "reasoning":
            reasoning = _reasoning(item)
        elif kind == "message":
            found.append(_message(where, item, reasoning))
            reasoning = ""
        elif kind in ("function_call", "function_call_output"):
            raise Unbuilt(f"{where} is a {kind}; tools are not supported yet")
        else:
            raise Unbuilt(f"{where} is of type {kind!r:.60}; messages and reasoning are supported")
    return found


def listed(given: str | list[Any] | None) -> list[dict[str, Any]]:
    """An input as items, as they are listed to those who ask for them."""
    if isinstance(given, str):
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": given}]}]
    return list(given or [])


@dataclass(slots=True)
class Output:
    """An item of the output on its way: what is thought, or what is said."""

    thought: bool
    index: int  # in the output
    text: str = ""
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    id: str = ""

    def __post_init__(self) -> None:
        self.id = replies.made("rs_" if self.thought else "msg_")

    @property
    def kind(self) -> str:
        """Of its one content part, which events are named after."""
        return "reasoning_text" if self.thought else "output_text"

    def item(self, status: str) -> dict[str, Any]:
        """The item as it is just now; without content while it is in progress."""
        content = [] if status == "in_progress" else [self.part()]
        if self.thought:
            return {"id": self.id, "type": "reasoning", "status": status, "summary": [], "content": content}
        return {"id": self.id, "type": "message", "status": status, "role": "assistant", "content": content}

    def part(self) -> dict[str, Any]:
        """The content part as it is just now."""
        return {"type": self.kind, "text": self.text, **({} if self.thought else {"annotations": [], "logprobs": self.logprobs})}


def _message(where: str, item: dict[str, Any], reasoning: str) -> Message:
    role = item.get("role")
    if not isinstance(role, str):
        raise UsageError(f"{where}.role is {bodies.kind(role)}; a string was expected")
    found = {"role": ROLES.get(role, role), "content": text(f"{where}.content", item.get("content"))}
    if reasoning and role == "assistant":
        found["reasoning_content"] = reasoning
    return found


def _reasoning(item: dict[str, Any]) -> str:
    """The text of thoughts that were told, for templates that want them back."""
    parts = item.get("content") or item.get("summary")
    if not isinstance(parts, list):
        return ""
    return "\n".join([one["text"] for one in parts if isinstance(one, dict) and isinstance(one.get("text"), str)])
