"""POST /v1/chat/completions."""

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import falcon

from llamay.errors import LlamayError, UsageError
from llamay.serve.events import Done, Ended, Timings
from llamay.serve.loading.language import Prompt
from llamay.serve.logprobs import Scored
from llamay.serve.speech import Spoken, spoken
from llamay.server import bodies, failures, replies, sse
from llamay.server.continuing import Going
from llamay.server.openai import logprobs, wire
from llamay.server.openai.messages import conversation, parted, variables
from llamay.server.openai.usage import fingerprint, finish, usage
from llamay.server.refusals import Unbuilt
from llamay.server.site import Site
from llamay.server.turn import Turn


class ChatCompletions:
    """Answers a conversation, whole or as a stream of chunks."""

    takes: ClassVar = {"POST": wire.Chat}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        body = bodies.read(request, wire.Chat, self._site.configuration.body)
        going = Going.of(self._site, request, body.llamay_context, body.model)
        check(body, begun=going.parent is not None)
        prompted(body, going.say)
        options = wire.options(body, body.most, going.language.tokenizer, body.likeliest)
        turn = Turn(self._site, lambda: going.ask(options), replies.gone(request))
        reply = _Reply(going, body)
        replies.answer(response, turn, reply, going.headers, streamed=body.stream)


class ChatTokens:
    """POST /v1/chat/completions/input_tokens: how many tokens a conversation has, without computing it."""

    takes: ClassVar = {"POST": wire.Chat}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        body = bodies.read(request, wire.Chat, self._site.configuration.body)
        check(body)
        language = self._site.models.language(self._site.models.served(body.model))
        count = len(prompted(body, language.chat).tokens)
        replies.json(response, {"object": "response.input_tokens", "input_tokens": count})


def prompted(body: wire.Chat, say: Callable[..., Prompt]) -> Prompt:
    """The conversation of a body as tokens, which `say` makes of it; a last message of the assistant's is the beginning of the answer."""
    told = variables(body.chat_template_kwargs, body.reasoning_effort, body.reasoning)
    messages, start = parted(conversation(body.messages))
    return say(messages, start, **told)


class _Reply:
    """What one request is told."""

    def __init__(self, going: Going, body: wire.Chat) -> None:
        self._going, self._tokenizer = going, going.language.tokenizer
        self._scoring, self._with_usage = body.likeliest is not None, body.with_usage
        self._thinking = going.prompt.thinking if body.apart else None
        self._id = replies.made("chatcmpl-")
        self._created = int(time.time())
        self._model = body.model or going.served.name

    def head(self, kind: str) -> dict[str, Any]:
        """The fields of every object."""
        made = fingerprint(self._going.site, self._going.served)
        head = {"id": self._id, "object": kind, "created": self._created, "model": self._model}
        return {**head, "system_fingerprint": made}

    def whole(self, turn: Turn) -> dict[str, Any]:
        """The reply in one piece."""
        answer = turn.answer(self._thinking)
        choices = [
            {
                "index": one.index,
                "message": {"role": "assistant", "content": text, "refusal": None, **({"reasoning_content": thought} if thought else {})},
                "logprobs": logprobs.choice(self._tokenizer, scored if self._scoring else None),
                "finish_reason": finish(one),
            }
            for text, thought, one, scored in zip(answer.texts, answer.thoughts, answer.ended, answer.scored, strict=True)
        ]
        return {**self.head("chat.completion"), "choices": choices, "usage": self._usage(answer.timings, answer.ended)}

    def events(self, turn: Turn) -> Iterator[bytes]:
        """The reply as server-sent events; whatever happens, the stream has its end."""
        begun: set[int] = set()
        ended: list[Ended] = []
        try:
            for event in spoken(turn, self._thinking):
                match event:
                    case None:
                        yield sse.PING
                    case Spoken(index=index) | Ended(index=index) if index not in begun:
                        begun.add(index)
                        yield self._chunk(index, {"role": "assistant", "content": ""})
                match event:
                    case Spoken(text, index, scored, thought):
                        yield self._chunk(index, {"reasoning_content" if thought else "content": text}, scored or None)
                    case Ended(index=index):
                        ended.append(event)
                        yield self._chunk(index, {}, None, finish(event))
                    case Done(timings=timings) if self._with_usage:
                        told = self._usage(timings, ended)
                        yield sse.event({**self.head("chat.completion.chunk"), "choices": [], "usage": told})
            yield sse.DONE
        except LlamayError as error:
            yield sse.event(failures.of(error, "openai").body)
            yield sse.DONE

    def _usage(self, timings: Timings, ended: Iterable[Ended]) -> dict[str, Any]:
        thinking, ids = self._thinking, self._tokenizer.ids
        thought = 0 if thinking is None else sum(thinking.count(one.tokens, ids) for one in ended)
        return usage(timings, thought=thought) | self._going.missed(timings)

    def _chunk(
        self, index: int, delta: dict[str, str], scored: tuple[Scored, ...] | None = None, reason: str | None = None
    ) -> bytes:
        told = logprobs.choice(self._tokenizer, scored)
        choice = {"index": index, "delta": delta, "logprobs": told, "finish_reason": reason}
        return sse.event({**self.head("chat.completion.chunk"), "choices": [choice]})


def check(body: wire.Chat, *, begun: bool = False) -> None:
    """Refuses by name what is not there; a conversation that has `begun` may go on without new messages."""
    if not body.messages and not begun:
        raise UsageError("messages is empty; a conversation has one or more")
    if body.tools or body.functions:
        raise Unbuilt("tools are not supported yet; send the request without `tools`")
    kind = (body.response_format or {}).get("type", "text")
    if kind != "text":
        raise Unbuilt(f"response_format {kind!r:.60} is not supported yet; `text` is")
    if body.modalities and body.modalities != ["text"]:
        raise Unbuilt(f"modalities {body.modalities!r:.60} are not supported; ['text'] is")
