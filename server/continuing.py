"""Continuing: what a completion of any family goes on from, and the context that is to hold its answer."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import falcon

from llamay.errors import UsageError
from llamay.serve.contexts import turns
from llamay.serve.contexts.kept import PREFIX, Kept
from llamay.serve.events import Timings
from llamay.serve.loading.language import Language, Message, Prompt
from llamay.serve.models import Served
from llamay.serve.options import Options
from llamay.serve.ticket import Ticket
from llamay.server import failures
from llamay.server.site import Site
from llamay.tensor.batch import PAGE

HEADER = "X-Llamay-Context"
RESPONSE = "resp_"
SHOWN = 80  # characters of each text where a request parts from a context


@dataclass(slots=True, eq=False)
class Going:
    """One completion: `say` or `write` what is new, `ask`, and send `headers` before the body.

    The context that is named never changes: a child of it holds what was asked and answered.  The child is
    there as soon as `headers` tell its id and complete when the answer is.  It is gone where the request fails or is
    cancelled before its first token; cancelled later, it holds what was generated until then.
    """

    site: Site
    served: Served
    parent: Kept | None = None
    keep: str | None = None  # "" or an id: there is to be a child, a parent or not
    via: str = ""  # the API family, for the statistics
    child: Kept | None = None
    prompt: Prompt = field(default_factory=lambda: Prompt([]))
    _near: tuple[Kept, int] | None = None
    _last: str = ""  # the text of the last message

    @classmethod
    def of(
        cls, site: Site, request: falcon.Request, named: str | None, model: str,
        served_as: Callable[[str], Served] | None = None,
    ) -> "Going":  # fmt: skip
        """By the header, or the field `named` of the body; ContextLost where there is no such context.

        `served_as` tells which model a family means by a name.
        """
        find = served_as or site.models.served
        header = request.get_header(HEADER)
        if header and named and header != named:
            raise UsageError(f"{HEADER} names {header[:100]!a} and llamay_context {named[:100]!a}; one of them is enough")
        id = header or named
        going = cls.after(site, site.shelf.find(id), model, find) if id else cls(site, find(model))
        going.via = failures.family_of(request)
        return going

    @classmethod
    def after(cls, site: Site, parent: Kept, model: str, served_as: Callable[[str], Served] | None = None) -> "Going":
        """Goes on from a context; UsageError where another model is named than the context's."""
        find = served_as or site.models.served
        if model and find(model).name != parent.served.name:
            raise UsageError(f"{parent.id} is a context of {parent.served.name!a}, and the request names {model[:100]!a}")
        parent.check()
        return cls(site, parent.served, parent)

    @property
    def language(self) -> Language:
        """Of the model."""
        return self.site.models.language(self.served)

    @property
    def headers(self) -> dict[str, str]:
        """For the reply, once it was asked."""
        return {} if self.child is None else {HEADER: self.child.id}

    def say(self, messages: Sequence[Message], start: str = "", /, **variables: Any) -> Prompt:
        """The prompt for an answer to messages, behind what the context holds; `start` begins the answer."""
        held = self.parent
        self._last = _said(messages[-1]) if messages else ""
        if held is None or held.messages is not None:
            before = () if held is None else held.messages or ()
            self.prompt = self.language.chat([*before, *messages], start, **variables)
        else:
            self.prompt = turns.after_answer(self.language, held.tokens, messages, start, **variables)
        return self.prompt

    def write(self, text: str | Sequence[int]) -> Prompt:
        """The prompt that a text, or tokens, behind what the context holds are."""
        held = () if self.parent is None else self.parent.tokens
        if isinstance(text, str):
            self.prompt = turns.after_text(self.language, held, text)
        else:
            self.prompt = Prompt([*held, *text])
        return self.prompt

    def ask(self, options: Options) -> Ticket:
        """Submits it."""
        tokens, shelf = tuple(self.prompt.tokens), self.site.shelf
        if self.parent is None and self.keep is None:
            self._near = shelf.nearest(self.served, tokens)
            return self.site.models.ask(self.served, tokens, options, stops=self.prompt.stops, via=self.via)
        self.child, ticket = shelf.grow(
            self.served, tokens, options, stops=self.prompt.stops, parent=self.parent, via=self.via, id=self.keep or "",
        )
        return ticket

    def missed(self, timings: Timings) -> dict[str, Any]:
        """`llamay_cache_miss`: where the prompt parts from the context that holds the most of it; empty where it does not.

        Told where at least half of the prompt is common, and either it parts before that context ends, not by
        asking something else in its last message, or the common pages were not found.
        """
        if self._near is None:
            return {}
        kept, common = self._near
        mine, theirs = self.prompt.tokens, kept.tokens
        parts = common < min(len(mine), len(theirs))
        lost = timings.cached_tokens + PAGE < common // PAGE * PAGE
        if 2 * common < len(mine) or not (lost or (parts and not self._asks_anew(common))):
            return {}
        text = self.language.tokenizer.text
        shown = [text(one[common : common + SHOWN], special=True, continues=True)[:SHOWN] for one in (mine, theirs)]
        told = {"context": kept.id, "common": common, "of": len(theirs), "yours": shown[0], "theirs": shown[1]}
        return {"llamay_cache_miss": told}

    def _asks_anew(self, common: int) -> bool:
        """Whether the prompt parts in the first half of its last message: behind the same beginning, another question."""
        text, tokens = self.language.tokenizer.text, self.prompt.tokens
        whole, before = text(tokens, special=True), len(text(tokens[:common], special=True))
        start = whole.rfind(self._last) if self._last else -1
        return start >= 0 and not whole[before:start].strip() and 2 * (before - start) < len(self._last)


def _said(message: Message) -> str:
    content = message.get("content")
    if isinstance(content, list):
        content = "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return content.strip() if isinstance(content, str) else ""


def context_id(response: str) -> str:
    """What the context of a response is to be called."""
    return PREFIX + response.removeprefix(RESPONSE)
