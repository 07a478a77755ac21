"""POST /v1/completions: texts to go on with, several in one request, with the arrays of logprobs that evaluations read."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import falcon

from llamay.errors import LlamayError, UsageError
from llamay.serve.events import Done, Ended, Logprobs, Timings
from llamay.serve.loading.language import Language
from llamay.serve.logprobs import Scored
from llamay.serve.models import Served
from llamay.serve.options import Options
from llamay.serve.request import LONGEST_CLIENT, Reading
from llamay.serve.speech import Spoken, spoken
from llamay.server import bodies, failures, replies, sse
from llamay.server.continuing import Going
from llamay.server.openai import wire
from llamay.server.openai.logprobs import Arrays
from llamay.server.openai.usage import fingerprint, finish, usage
from llamay.server.refusals import Unbuilt
from llamay.server.site import Site
from llamay.server.turn import Turn
from llamay.server.turns import Turns

MOST_PROMPTS = 1024  # of one request


@dataclass(frozen=True, slots=True)
class Begun:
    """A text to go on with; `text` is what an echo says of it."""

    tokens: tuple[int, ...]
    text: str


class Completions:
    """Goes on with texts, whole or as a stream of chunks."""

    takes: ClassVar = {"POST": wire.Completion}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        body = bodies.read(request, wire.Completion, self._site.configuration.body)
        check(body)
        going = Going.of(self._site, request, body.llamay_context, body.model)
        language = going.language
        prompts = begun(body, language) if going.parent is None else continued(body, going)
        options = wire.options(body, body.max_tokens, language.tokenizer, body.likeliest)
        asks = asked(going, prompts, options, body, replies.gone(request))
        turns = Turns(asks, max(2, self._site.configuration.batch))  # a reading and its answer at least
        reply = _Reply(self._site, going.served, body, language, prompts)
        replies.answer(response, turns, reply, going.headers, streamed=body.stream)


def asked(
    going: Going, prompts: list[Begun], options: Options, body: wire.Completion, gone: Callable[[], bool]
) -> list[Callable[[], Turn]]:
    """What is to be generated, in order.  An echo with logprobs is a reading of the prompt, before its answer."""
    found: list[Callable[[], Turn]] = []
    site, served = going.site, going.served

    def answer(prompt: Begun) -> Callable[[], Turn]:
        if going.parent is not None:
            return lambda: Turn(site, lambda: going.ask(options), gone)
        return lambda: Turn(site, lambda: site.models.ask(served, prompt.tokens, options, via=going.via), gone)

    def reading(prompt: Begun) -> Callable[[], Turn]:
        read = Reading(
            prompt.tokens, client=(body.user or "")[:LONGEST_CLIENT], via=going.via, model=served.name, prefix_cache=body.cache_prompt is not False,
            logprobs=body.likeliest,
        )  # fmt: skip
        return lambda: Turn(site, lambda: site.models.engine.submit(read), gone)

    for prompt in prompts:
        if body.echo and body.likeliest is not None:
            found.append(reading(prompt))
        found.append(answer(prompt))
    return found


def begun(body: wire.Completion, language: Language) -> list[Begun]:
    """The prompts of a body: a text, token ids, or several of either."""
    given = body.prompt
    if given is None:
        raise UsageError("prompt is missing; a text, token ids, or an array of either was expected")
    if isinstance(given, list) and all(isinstance(one, int) and not isinstance(one, bool) for one in given):
        given = [given]
    several = [given] if isinstance(given, str) else given
    if not 1 <= len(several) <= MOST_PROMPTS:
        raise UsageError(f"prompt has {len(several)} elements; 1 to {MOST_PROMPTS} can be gone on with")
    return [_begun(index, one, body.suffix, language) for index, one in enumerate(several)]


def continued(body: wire.Completion, going: Going) -> list[Begun]:
    """The one prompt that goes on with a context; it may be empty."""
    given = body.prompt or ""
    ids = isinstance(given, list) and all(isinstance(one, int) and not isinstance(one, bool) for one in given)
    if body.suffix or not (ids or isinstance(given, str)):
        raise UsageError("a context is gone on with by one prompt, a text or token ids, and without a suffix")
    text = given if isinstance(given, str) else going.language.tokenizer.text(given, continues=True)
    return [Begun(tuple(going.write(given).tokens), text)]


def _begun(index: int, prompt: Any, suffix: str | None, language: Language) -> Begun:
    if isinstance(prompt, str):
        found = language.infill(prompt, suffix) if suffix else language.raw(prompt)
        return Begun(_some(found.tokens), prompt)
    if not isinstance(prompt, list) or any(isinstance(one, bool) or not isinstance(one, int) for one in prompt):
        raise UsageError(f"prompt[{index}] is {bodies.kind(prompt)}; a text or an array of token ids was expected")
    if suffix:
        raise UsageError("a suffix needs a prompt that is text; this one is token ids")
    return Begun(_some(prompt), language.tokenizer.text(prompt))


def _some(tokens: list[int]) -> tuple[int, ...]:
    if not tokens:
        raise UsageError("the prompt has no tokens, so there is nothing to continue")
    return tuple(tokens)


@dataclass(slots=True)
class _Choice:
    """One choice on its way."""

    arrays: Arrays
    begun: bool = False
    waiting: list[Scored] = field(default_factory=list)  # for its next piece
    first: int | None = None  # the prompt's first token, where that is to be told


class _Reply:
    """What one request is told: pieces of its choices, put together or one by one."""

    def __init__(self, site: Site, served: Served, body: wire.Completion, language: Language, prompts: list[Begun]) -> None:
        self._site, self._served, self._tokenizer, self._prompts = site, served, language.tokenizer, prompts
        self._scoring, self._echo, self._with_usage = body.likeliest is not None, bool(body.echo), body.with_usage
        self._choices = body.n or 1
        self._id = replies.made("cmpl-")
        self._created = int(time.time())
        self._model = body.model or served.name
        self._timings: list[Timings] = []

    def whole(self, turns: Turns) -> dict[str, Any]:
        """The reply in one piece."""
        found: dict[int, dict[str, Any]] = {}
        for piece in self._pieces(turns):
            if piece is not None:
                _join(found.setdefault(piece["index"], {**piece, "text": "", "logprobs": None}), piece)
        return {**self._head(), "choices": [found[index] for index in sorted(found)], "usage": usage(*self._timings)}

    def events(self, turns: Turns) -> Iterator[bytes]:
        """The reply as server-sent events; whatever happens, the stream has its end."""
        try:
            for piece in self._pieces(turns):
                yield sse.PING if piece is None else sse.event({**self._head(), "choices": [piece]})
            if self._with_usage:
                yield sse.event({**self._head(), "choices": [], "usage": usage(*self._timings)})
            yield sse.DONE
        except LlamayError as error:
            yield sse.event(failures.of(error, "openai").body)
            yield sse.DONE

    def _head(self) -> dict[str, Any]:
        head = {"id": self._id, "object": "text_completion", "created": self._created, "model": self._model}
        return {**head, "system_fingerprint": fingerprint(self._site, self._served)}

    def _pieces(self, turns: Turns) -> Iterator[dict[str, Any] | None]:
        """Pieces of the choices of all prompts; None for silence."""
        read: list[Scored] | None = None
        number = 0
        for turn in turns:
            if isinstance(turn.ticket.asked, Reading):
                read = []
                for event in turn:
                    if event is None:
                        yield None
                    elif isinstance(event, Logprobs):
                        read += event.tokens
                continue
            yield from self._answer(turn, number, read)
            read, number = None, number + 1

    def _answer(self, turn: Turn, number: int, read: list[Scored] | None) -> Iterator[dict[str, Any] | None]:
        """The pieces of one prompt's choices; `read` are the prompt's tokens where they are to be told."""
        prompt = self._prompts[number]
        choices = [_Choice(Arrays(self._tokenizer)) for _ in range(self._choices)]
        for choice in choices:
            if read is not None:
                choice.first, choice.waiting = prompt.tokens[0], list(read)
        for event in spoken(turn):
            match event:
                case None:
                    yield None
                case Spoken(text, index, scored):
                    choices[index].waiting += scored
                    yield self._piece(choices, number, index, text)
                case Ended(index=index):
                    yield self._piece(choices, number, index, "", finish(event))
                case Done(timings=timings):
                    self._timings.append(timings)

    def _piece(
        self, choices: list[_Choice], number: int, index: int, text: str, reason: str | None = None
    ) -> dict[str, Any]:
        choice = choices[index]
        if self._echo and not choice.begun:
            text = self._prompts[number].text + text
        told = None
        if self._scoring and (choice.waiting or choice.first is not None or not choice.begun):
            told = choice.arrays.of(choice.waiting, choice.first)
            choice.waiting, choice.first = [], None
        choice.begun = True
        return {"index": number * len(choices) + index, "text": text, "logprobs": told, "finish_reason": reason}


def _join(whole: dict[str, Any], piece: dict[str, Any]) -> None:
    """Adds a piece of a choice to what is known of it."""
    whole["text"] += piece["text"]
    whole["finish_reason"] = piece["finish_reason"] or whole["finish_reason"]
    if piece["logprobs"] is None:
        return
    if whole["logprobs"] is None:
        whole["logprobs"] = {name: [] for name in piece["logprobs"]}
    for name, values in piece["logprobs"].items():
        whole["logprobs"][name] += values


def check(body: wire.Completion) -> None:
    """Refuses by name what is not there."""
    if body.best_of is not None and body.best_of != (body.n or 1):
        raise Unbuilt("best_of other than n is not supported yet; send n alone")
