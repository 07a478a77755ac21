"""POST /api/chat."""

from typing import Any, ClassVar

import falcon

from llamay.errors import UsageError
from llamay.server import bodies
from llamay.server.ollama import answer, wire
from llamay.server.ollama.recipe import Recipe
from llamay.server.refusals import Unbuilt
from llamay.server.site import Site

ROLES = ("system", "user", "assistant")


class Chat:
    """Answers a conversation."""

    takes: ClassVar = {"POST": wire.Chat}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        body = bodies.read(request, wire.Chat, self._site.configuration.body)
        made = answer.Answer.of(self._site, request, body, answer.message)
        begun = made.going.parent is not None
        if not body.messages and not begun:
            made.idle(response)
            return
        recipe = made.recipe
        messages, start = conversation(body.messages or [], Recipe() if begun else recipe)
        made.going.say(messages, start, **body.variables)
        made.reply(request, response, recipe)


def conversation(messages: list[dict[str, Any]], recipe: Recipe) -> tuple[list[dict[str, Any]], str]:
    """The messages for a template, and the start of the answer where the last one is the assistant's."""
    found = [message_of(index, message) for index, message in enumerate(messages)]
    start = found.pop()["content"] if len(found) > 1 and found[-1]["role"] == "assistant" else ""
    found = [*recipe.messages, *found]
    if recipe.system and (not found or found[0]["role"] != "system"):
        found.insert(0, {"role": "system", "content": recipe.system})
    return found, start


def message_of(index: int, message: dict[str, Any]) -> dict[str, Any]:
    """One message for a template; UsageError names what is wrong with it."""
    role, content = message.get("role"), message.get("content")
    if not isinstance(role, str):
        raise UsageError(f"messages[{index}].role is {bodies.kind(role)}; a string was expected")
    if role.lower() == "tool" or message.get("tool_calls"):
        raise Unbuilt(f"messages[{index}] is about tools, which are not supported yet")
    if role.lower() not in ROLES:
        raise UsageError(f"messages[{index}].role is {ascii(role)[:60]}; it may be system, user or assistant")
    if message.get("images"):
        raise Unbuilt(f"messages[{index}] has images, which this model does not support")
    if content is not None and not isinstance(content, str):
        raise UsageError(f"messages[{index}].content is {bodies.kind(content)}; a string was expected")
    found = {"role": role.lower(), "content": content or ""}
    if isinstance(message.get("thinking"), str):
        found["reasoning_content"] = message["thinking"]
    return found
