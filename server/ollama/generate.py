"""POST /api/generate."""

from typing import ClassVar

import falcon

from llamay.errors import UsageError
from llamay.serve.contexts import turns
from llamay.serve.loading.language import Message, Prompt
from llamay.server import bodies
from llamay.server.continuing import Going
from llamay.server.ollama import answer, wire
from llamay.server.ollama.recipe import Recipe
from llamay.server.refusals import Unbuilt
from llamay.server.site import Site


class Generate:
    """Answers a prompt, through the chat template or raw."""

    takes: ClassVar = {"POST": wire.Generate}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        body = bodies.read(request, wire.Generate, self._site.configuration.body)
        made = answer.Answer.of(self._site, request, body, answer.response, returns=not body.raw)
        if not body.prompt and made.going.parent is None:
            made.idle(response)
            return
        recipe = made.recipe
        prompt(made.going, body, recipe)
        made.reply(request, response, recipe)


def prompt(going: Going, body: wire.Generate, recipe: Recipe) -> None:
    """Has `going` hold what is to be continued: behind an earlier answer, the new prompt alone."""
    new: list[Message] = [{"role": "user", "content": body.prompt}] if body.prompt else []
    if body.suffix:
        going.prompt = _filled(going, body.prompt or "", body.suffix, body.context)
    elif body.raw:
        going.write(body.prompt or "")
    elif body.context:
        going.prompt = turns.after_answer(going.language, _earlier(going, body.context), _with(body.system, new), **body.variables)
    elif going.parent is not None:
        going.say(_with(body.system, new), **body.variables)
    else:
        going.say([*_with(body.system or recipe.system, []), *recipe.messages, *new], **body.variables)


def _filled(going: Going, before: str, after: str, earlier: list[int] | None) -> Prompt:
    if going.parent is not None or earlier:
        raise UsageError("a gap is filled in a text of its own; suffix goes without a context")
    if not going.language.fills:
        raise Unbuilt(f"{going.served.name} does not support insert; send the request without `suffix`")
    return going.language.infill(before, after)


def _with(system: str | None, messages: list[Message]) -> list[Message]:
    return [{"role": "system", "content": system}, *messages] if system else messages


def _earlier(going: Going, context: list[int]) -> list[int]:
    """The tokens that an earlier answer brought."""
    if going.parent is not None:
        raise UsageError("both context and a context of llamay's were sent; one of them is enough")
    size = len(going.language.tokenizer)
    wrong = next((token for token in context if not 0 <= token < size), None)
    if wrong is not None:
        raise UsageError(f"context holds {wrong}; this model's tokens are 0 to {size - 1}")
    return context
