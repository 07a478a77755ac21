"""/v1/responses: answers that may be asked for again, and that the next request goes on from."""

import contextlib
from collections.abc import Callable
from typing import Any, ClassVar

import falcon

from llamay.errors import ContextBusy, ContextLost
from llamay.serve.contexts.kept import Kept
from llamay.serve.loading.language import Prompt
from llamay.server import bodies, failures, replies
from llamay.server.continuing import Going, context_id
from llamay.server.openai import items, wire
from llamay.server.openai.kept import Kept as Responded
from llamay.server.openai.kept import Stored
from llamay.server.openai.messages import parted, variables
from llamay.server.openai.response import Response
from llamay.server.refusals import Unbuilt
from llamay.server.site import Site
from llamay.server.turn import Turn

Message = dict[str, Any]


class Responses:
    """POST /v1/responses."""

    takes: ClassVar = {"POST": wire.Response}

    def __init__(self, site: Site, kept: Responded) -> None:
        self._site, self._kept = site, kept

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        body = bodies.read(request, wire.Response, self._site.configuration.body)
        check(body)
        going, said = self._going(request, body)
        options = wire.options(body, body.max_output_tokens, going.language.tokenizer, body.likeliest)
        options["n"] = None

        def keep(reply: dict[str, Any], text: str) -> None:
            if body.store is not False:
                conversation = None if said is None else [*said, {"role": "assistant", "content": text}]
                context = going.child.id if going.child is not None else ""
                self._kept.put(Stored(reply, items.listed(body.input), conversation, context))

        made = Response(body, body.model or going.served.name, going.language.tokenizer, going.prompt.thinking, keep)
        if body.store is not False:
            going.keep = context_id(made.id)
        turn = Turn(self._site, lambda: going.ask(options), replies.gone(request))
        replies.answer(response, turn, made, going.headers, streamed=body.stream)

    def _going(self, request: falcon.Request, body: wire.Response) -> tuple[Going, list[Message] | None]:
        """What the answer goes on from, and all that was said then; None where only a context holds that.

        It is the context of the response before, as long as that is kept and the instructions are the
        same and for the same model; else the conversation is rendered anew, as instructions are not carried over.
        """
        new = items.messages(body.input)
        if not body.previous_response_id:
            going = Going.of(self._site, request, body.llamay_context, body.model)
            prompted(body, new, going.say)
            return going, new if going.parent is None else None
        earlier = self._kept.get(body.previous_response_id)
        said = None if earlier.conversation is None else [*earlier.conversation, *new]
        parent = self._context(earlier, body)
        if parent is not None:
            going = Going.after(self._site, parent, body.model)
            prompted(body, new, going.say, instructed=earlier.reply["instructions"] == body.instructions)
        else:
            going = Going(self._site, self._site.models.served(body.model or earlier.reply["model"]))
            prompted(body, said or new, going.say)
        going.via = failures.family_of(request)
        return going, said

    def _context(self, earlier: Stored, body: wire.Response) -> Kept | None:
        """That of a response; ContextLost where it is lost and the conversation is not known either."""
        if earlier.conversation is None:
            return self._site.shelf.find(earlier.context)
        try:
            found = self._site.shelf.find(earlier.context)
        except ContextLost:
            return None
        other = bool(body.model) and self._site.models.served(body.model).name != found.served.name
        return None if other or earlier.reply["instructions"] != body.instructions else found


class OneResponse:
    """GET and DELETE /v1/responses/{id}."""

    def __init__(self, site: Site, kept: Responded) -> None:
        self._site, self._kept = site, kept

    def on_get(self, request: falcon.Request, response: falcon.Response, id: str) -> None:
        replies.json(response, self._kept.get(id).reply)

    def on_delete(self, request: falcon.Request, response: falcon.Response, id: str) -> None:
        context = self._kept.remove(id).context
        with contextlib.suppress(ContextLost, ContextBusy):
            self._site.shelf.delete(self._site.shelf.find(context))
        replies.json(response, {"id": id, "object": "response", "deleted": True})


class InputItems:
    """GET /v1/responses/{id}/input_items."""

    def __init__(self, kept: Responded) -> None:
        self._kept = kept

    def on_get(self, request: falcon.Request, response: falcon.Response, id: str) -> None:
        found = [{"id": f"{id}_{index}", **item} for index, item in enumerate(self._kept.get(id).items)]
        ends = {"first_id": found[0]["id"], "last_id": found[-1]["id"]} if found else {"first_id": None, "last_id": None}
        replies.json(response, {"object": "list", "data": found, "has_more": False, **ends})


class ResponseTokens:
    """POST /v1/responses/input_tokens: how many tokens an input has, without computing it."""

    takes: ClassVar = {"POST": wire.Response}

    def __init__(self, site: Site, kept: Responded) -> None:
        self._site, self._kept = site, kept

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        body = bodies.read(request, wire.Response, self._site.configuration.body)
        check(body)
        language = self._site.models.language(self._site.models.served(body.model))
        before = self._kept.get(body.previous_response_id).conversation if body.previous_response_id else []
        said = [*(before or ()), *items.messages(body.input)]
        count = len(prompted(body, said, language.chat).tokens)
        replies.json(response, {"object": "response.input_tokens", "input_tokens": count})


def prompted(
    body: wire.Response, conversation: list[Message], say: Callable[..., Prompt], *, instructed: bool = False
) -> Prompt:
    """The conversation as tokens, which `say` makes of it; a last message of the assistant's is the beginning of the answer."""
    if body.instructions is not None and not instructed:
        conversation = [{"role": "system", "content": body.instructions}, *conversation]
    if all(message["role"] == "system" for message in conversation):  # clients probe with no input at all
        conversation = [*conversation, {"role": "user", "content": ""}]
    messages, start = parted(conversation)
    return say(messages, start, **variables(None, None, body.reasoning))


def check(body: wire.Response) -> None:
    """Refuses by name what is not there.  Tools of unknown kinds are passed over, as clients send what hosts have."""
    if any(isinstance(tool, dict) and tool.get("type") == "function" for tool in body.tools or ()):
        raise Unbuilt("function tools are not supported yet; send the request without them")
    form = (body.text or {}).get("format")
    kind = form.get("type", "text") if isinstance(form, dict) else "text"
    if kind != "text":
        raise Unbuilt(f"text.format {kind!r:.60} is not supported yet; `text` is")
    if body.background:
        raise Unbuilt("background responses are not supported; send the request without `background`")
    if body.conversation is not None:
        raise Unbuilt("conversations are not kept; previous_response_id goes on from a response")
