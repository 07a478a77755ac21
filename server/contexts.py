"""/v1/contexts: contexts that clients keep, fork, rewind, save and compare."""

from typing import Any, ClassVar

import falcon
import msgspec

from llamay.errors import UsageError
from llamay.serve.contexts import turns
from llamay.serve.contexts.kept import Kept, Told
from llamay.serve.models import Served
from llamay.serve.ticket import Ticket
from llamay.server import bodies, replies, visits
from llamay.server.openai.messages import conversation
from llamay.server.site import Site
from llamay.server.turn import Turn


class Making(msgspec.Struct):
    """POST /v1/contexts."""

    model: str = ""
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    tokens: list[int] | None = None
    name: str | None = None
    pin: bool | None = None


class Rewinding(msgspec.Struct):
    """POST /v1/contexts/{id}/rewind."""

    to: int


class Saving(msgspec.Struct):
    """POST /v1/contexts/{id}/snapshot."""

    name: str | None = None
    tags: list[str] | None = None
    replace: bool | None = None


class Restoring(msgspec.Struct):
    """POST /v1/contexts/restore."""

    snapshot: str
    model: str = ""
    name: str | None = None
    tokens: int | None = None
    recompute: bool | None = None
    pin: bool | None = None


class Contexts:
    """/v1/contexts."""

    takes: ClassVar = {"POST": Making}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        """All of them, the oldest first."""
        shelf = self._site.shelf
        replies.json(response, listed(shelf.told(shelf.all())))

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        """Makes one, and computes it."""
        body = bodies.read(request, Making, self._site.configuration.body)
        served = self._site.models.served(body.model)
        tokens, messages = self._held(served, body)
        made: list[Kept] = []
        address = visits.of(request.env).address

        def ask() -> Ticket:
            kept, ticket = self._site.shelf.grow(
                served, tokens, {"max_tokens": 0}, messages=messages, name=body.name or "", pinned=bool(body.pin),
                client=address, via="contexts",
            )  # fmt: skip
            made.append(kept)
            return ticket

        Turn(self._site, ask, replies.gone(request)).answer()
        _one(self._site, response, made[0], 201)

    def _held(self, served: Served, body: Making) -> tuple[list[int], list[dict[str, Any]] | None]:
        """The tokens, and the messages that they are."""
        language = self._site.models.language(served)
        given = [name for name in ("prompt", "messages", "tokens") if getattr(body, name) is not None]
        if len(given) != 1:
            raise UsageError(f"a context is made from one of prompt, messages and tokens; given: {' and '.join(given) or 'none'}")
        if body.messages is not None:
            if not body.messages:
                raise UsageError("messages is empty; a conversation has one or more")
            messages = conversation(body.messages)
            return turns.opening(language, messages).tokens, messages
        if body.prompt is not None:
            return language.raw(body.prompt).tokens, None
        tokens, end = body.tokens or [], len(language.tokenizer)
        outside = next((token for token in tokens if not 0 <= token < end), None)
        if outside is not None:
            raise UsageError(f"tokens holds {outside}; the vocabulary ends at {end - 1}")
        return tokens, None


class Context:
    """/v1/contexts/{id}."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_get(self, request: falcon.Request, response: falcon.Response, id: str) -> None:
        """What it is now."""
        _one(self._site, response, self._site.shelf.find(id))

    def on_delete(self, request: falcon.Request, response: falcon.Response, id: str) -> None:
        """Gives it up; its forks and children stay."""
        kept = self._site.shelf.find(id)
        self._site.shelf.delete(kept)
        replies.json(response, {"id": kept.id, "object": "context", "deleted": True})


class Forks:
    """POST /v1/contexts/{id}/fork?n=8."""

    queries: ClassVar = {"POST": {"n": {"type": "integer", "minimum": 1}}}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_post(self, request: falcon.Request, response: falcon.Response, id: str) -> None:
        shelf = self._site.shelf
        made = shelf.fork(shelf.find(id), request.get_param_as_int("n", default=1))
        replies.json(response, listed(shelf.told(made)), 201)


class Rewind:
    """POST /v1/contexts/{id}/rewind."""

    takes: ClassVar = {"POST": Rewinding}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_post(self, request: falcon.Request, response: falcon.Response, id: str) -> None:
        body = bodies.read(request, Rewinding, self._site.configuration.body)
        kept = self._site.shelf.find(id)
        self._site.shelf.rewind(kept, body.to)
        _one(self._site, response, kept)


class Snapshot:
    """POST /v1/contexts/{id}/snapshot."""

    takes: ClassVar = {"POST": Saving}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_post(self, request: falcon.Request, response: falcon.Response, id: str) -> None:
        body = bodies.read(request, Saving, self._site.configuration.body) if request.content_length else Saving()
        kept = self._site.shelf.find(id)
        saved = self._site.shelf.snapshot(kept, body.name or "", body.tags or (), replace=bool(body.replace)).manifest
        told = {
            "object": "context.snapshot", "context": kept.id, "name": saved.name, "tags": list(saved.tags),
            "model": kept.served.name, "parent": saved.parent or None, "tokens": len(saved.tokens),
            "created": int(saved.created),
        }  # fmt: skip
        replies.json(response, told, 201)


class Restore:
    """POST /v1/contexts/restore."""

    takes: ClassVar = {"POST": Restoring}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        body = bodies.read(request, Restoring, self._site.configuration.body)
        served = self._site.models.served(body.model)
        kept, ticket, note = self._site.shelf.restore(
            served, body.snapshot, name=body.name or "", pinned=bool(body.pin), client=visits.of(request.env).address,
            tokens=body.tokens, recompute=bool(body.recompute),
        )  # fmt: skip
        if ticket is not None:
            try:
                turn = Turn(self._site, lambda: ticket, replies.gone(request))
            except BaseException:
                ticket.cancel()  # there was no place: nobody would know of it
                raise
            turn.answer()
        _one(self._site, response, kept, 201, snapshot=body.snapshot, note=note)


class Diff:
    """GET /v1/contexts/{id}/diff/{other}."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_get(self, request: falcon.Request, response: falcon.Response, id: str, other: str) -> None:
        """Where they part, in the words of `llamay context diff -json`."""
        shelf = self._site.shelf
        left, right = shelf.find(id), shelf.find(other)
        found = shelf.diff(left, right)
        told = {
            "object": "context.diff", "contexts": [left.id, right.id], "common_tokens": found.common,
            "tokens": found.tokens, "rest": found.rest, "texts": found.texts, "shared_pages": found.shared,
            "pages": found.pages,
        }  # fmt: skip
        replies.json(response, told)


def routes(site: Site) -> dict[str, Any]:
    """Path -> resource."""
    return {
        "/v1/contexts": Contexts(site),
        "/v1/contexts/restore": Restore(site),
        "/v1/contexts/{id}": Context(site),
        "/v1/contexts/{id}/fork": Forks(site),
        "/v1/contexts/{id}/rewind": Rewind(site),
        "/v1/contexts/{id}/snapshot": Snapshot(site),
        "/v1/contexts/{id}/diff/{other}": Diff(site),
    }


def wire(told: Told) -> dict[str, Any]:
    """A context as JSON."""
    return {
        "id": told.id,
        "object": "context",
        "model": told.model,
        "name": told.name or None,
        "parent": told.parent,
        "fork_point": told.fork_point,
        "tokens": told.tokens,
        "pages": {"own": told.own, "shared": told.shared},
        "pinned": told.pinned,
        "created": told.created,
    }


def listed(told: list[Told]) -> dict[str, Any]:
    """Several."""
    return {"object": "list", "data": [wire(one) for one in told]}


def _one(site: Site, response: falcon.Response, kept: Kept, status: int = 200, **more: Any) -> None:
    replies.json(response, {**wire(site.shelf.told([kept])[0]), **more}, status)
