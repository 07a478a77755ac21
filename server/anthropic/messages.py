"""POST /v1/messages and /v1/messages/count_tokens."""

from collections.abc import Iterator
from typing import Any, ClassVar

import falcon

from llamay.errors import LlamayError, NotInstalled
from llamay.serve.events import Done, Ended, Timings
from llamay.serve.models import Models, Served
from llamay.serve.speech import Spoken, spoken
from llamay.server import bodies, failures, replies, sse, visits
from llamay.server.anthropic import wire
from llamay.server.anthropic.conversation import conversation
from llamay.server.anthropic.usage import stop, usage
from llamay.server.continuing import Going
from llamay.server.site import Site
from llamay.server.turn import Turn

HOSTED = "claude-"  # begins the names that tools ask for in the background, whatever model was chosen


class Messages:
    """Answers a conversation, whole or as a stream of events."""

    takes: ClassVar = {"POST": wire.Asked}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        body = bodies.read(request, wire.Asked, self._site.configuration.body)
        models = self._site.models
        going = Going.of(self._site, request, body.llamay_context, body.model, lambda name: served_as(models, name))
        begun = going.parent is not None
        wire.check(body, begun=begun)
        said = conversation(body.system, body.messages, begun=begun)
        going.say(said.messages, said.start, **wire.variables(body, going.language.template.thinks))
        options = wire.options(body)
        turn = Turn(self._site, lambda: going.ask(options), replies.gone(request))
        reply = _Reply(going, body, visits.of(request.env).id)
        replies.answer(response, turn, reply, going.headers, streamed=body.stream)


class CountTokens:
    """Counts a conversation's tokens; no model is loaded for it."""

    takes: ClassVar = {"POST": wire.Counted}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        body = bodies.read(request, wire.Counted, self._site.configuration.body)
        wire.check(body)
        models = self._site.models
        said = conversation(body.system, body.messages)
        language = models.language(served_as(models, body.model))
        prompt = language.chat(said.messages, said.start, **wire.variables(body, language.template.thinks))
        replies.json(response, {"input_tokens": len(prompt.tokens)})


def served_as(models: Models, name: str) -> Served:
    """The model of a name; the default for one of Anthropic's own that is not installed."""
    try:
        return models.served(name)
    except NotInstalled:
        if not name.startswith(HOSTED):
            raise
        return models.default


class _Reply:
    """What one request is told."""

    def __init__(self, going: Going, body: wire.Asked, request_id: str) -> None:
        self._going, self._sequences, self._request_id = going, body.stop_sequences, request_id
        self._thinking = going.prompt.thinking
        name = going.served.name if body.model.startswith(HOSTED) else body.model or going.served.name
        self._head = {"id": replies.made("msg_"), "type": "message", "role": "assistant", "model": name}

    def whole(self, turn: Turn) -> dict[str, Any]:
        """In one piece."""
        answer = turn.answer(self._thinking)
        told = [block(kind, text) for kind, text in (("thinking", answer.thoughts[0]), ("text", answer.texts[0])) if text]
        content = told or [block("text")]
        end = stop(answer.ended[0], self._sequences)
        return {**self._head, "content": content, **end, "usage": self._usage(answer.timings)}

    def events(self, turn: Turn) -> Iterator[bytes]:
        """As server-sent events, each under its name; a failure is an `error` event, and the end."""
        ended: Ended | None = None
        blocks = _Blocks()
        begun = usage(turn.ticket.clock.timings()) | {"output_tokens": 0}
        none = {"stop_reason": None, "stop_sequence": None}
        try:
            yield _event("message_start", message={**self._head, "content": [], **none, "usage": begun})
            if self._thinking is None:
                yield from blocks.open("text")
            for found in spoken(turn, self._thinking):
                match found:
                    case None:
                        yield _event("ping")
                    case Spoken(text, thought=thought):
                        yield from blocks.say("thinking" if thought else "text", text)
                    case Ended():
                        ended = found
                    case Done(timings=timings) if ended is not None:
                        end = stop(ended, self._sequences)
                        yield from blocks.end()
                        yield _event("message_delta", delta=end, usage=self._usage(timings))
                        yield _event("message_stop")
        except LlamayError as error:
            yield sse.event(failures.of(error, "anthropic", self._request_id).body, "error")

    def _usage(self, timings: Timings) -> dict[str, Any]:
        return usage(timings) | self._going.missed(timings)


def block(kind: str, text: str = "") -> dict[str, Any]:
    """One content block."""
    return {"type": kind, kind: text, **({"signature": ""} if kind == "thinking" else {})}


class _Blocks:
    """The content blocks of one stream: one after the other, each of another kind than that before it."""

    def __init__(self) -> None:
        self._kind, self._index = "", -1

    def open(self, kind: str) -> Iterator[bytes]:
        """Ends the block before, if any, and begins one."""
        yield from self._close()
        self._kind, self._index = kind, self._index + 1
        yield _event("content_block_start", index=self._index, content_block=block(kind))

    def say(self, kind: str, text: str) -> Iterator[bytes]:
        """A piece, in a block of its kind."""
        if kind != self._kind:
            yield from self.open(kind)
        yield _event("content_block_delta", index=self._index, delta={"type": f"{kind}_delta", kind: text})

    def end(self) -> Iterator[bytes]:
        """Every answer has a block."""
        if not self._kind:
            yield from self.open("text")
        yield from self._close()

    def _close(self) -> Iterator[bytes]:
        if self._kind == "thinking":
            yield _event("content_block_delta", index=self._index, delta={"type": "signature_delta", "signature": ""})
        if self._kind:
            yield _event("content_block_stop", index=self._index)


def _event(name: str, **data: Any) -> bytes:
    return sse.event({"type": name, **data}, name)
