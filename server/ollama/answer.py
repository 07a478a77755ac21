"""An Answer of generate or chat: asked of the engine, then told whole or in lines."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self

import falcon

from llamay.errors import LlamayError
from llamay.serve.events import Done, Ended, Timings
from llamay.serve.logprobs import Scored
from llamay.serve.speech import Spoken, spoken
from llamay.server import failures, replies
from llamay.server.continuing import Going
from llamay.server.ollama import lines, named, wire
from llamay.server.ollama.options import checked, options
from llamay.server.ollama.recipe import Recipe
from llamay.server.openai import logprobs
from llamay.server.site import Site
from llamay.server.turn import Turn

REASONS = {"end": "stop", "stop": "stop", "length": "length", "context": "length", "cancel": "length"}

Held = Callable[[str, str], dict[str, Any]]  # the fields that hold a piece of text, and one of a thought


def response(text: str, thought: str = "") -> dict[str, Any]:
    """As generate holds it."""
    return {"response": text, **({"thinking": thought} if thought else {})}


def message(text: str, thought: str = "") -> dict[str, Any]:
    """As chat holds it."""
    return {"message": {"role": "assistant", "content": text, **({"thinking": thought} if thought else {})}}


@dataclass(slots=True)
class Answer:
    """What one request of generate or chat is told."""

    site: Site
    going: Going
    body: wire.Answered
    held: Held
    returns: bool = False  # whether the end brings the context as token ids
    _started: float = field(default_factory=time.perf_counter)
    _loaded: bool = False  # before it was asked

    @classmethod
    def of(cls, site: Site, request: falcon.Request, body: wire.Answered, held: Held, *, returns: bool = False) -> Self:
        """Raises what is wrong with the request before its prompt is looked at."""
        wire.check(body)
        going = Going.of(site, request, body.llamay_context, body.called, lambda name: named.served(site.models, name))
        if body.think:
            wire.check_thinking(body, going.language.template.thinks)
        return cls(site, going, body, held, returns)

    @property
    def recipe(self) -> Recipe:
        """What the model brings besides its weights."""
        return Recipe.of(self.site.models.store, self.going.served.installed)

    def idle(self, response: falcon.Response) -> None:
        """Without a prompt the model is loaded, or with a keep_alive of 0 given back."""
        engine, served, keep = self.site.models.engine, self.going.served, self.body.keep_alive
        if keep is not None and wire.kept(keep) == 0:
            engine.keep(served.name, 0.0)
            engine.visit(lambda scheduler: None, served.name)  # after which it is gone, unless somebody waits for it
            replies.json(response, self._end("unload"))
            return
        self.site.models.load(served)
        if keep is not None:
            engine.keep(served.name, wire.kept(keep))
        replies.json(response, self._end("load"))

    def reply(self, request: falcon.Request, response: falcon.Response, recipe: Recipe) -> None:
        """Asks for an answer to the prompt that `going` has, and tells it."""
        models, served, keep = self.site.models, self.going.served, self.body.keep_alive
        seconds = None if keep is None else wire.kept(keep)
        asked = options(recipe.values | checked(self.body.options), len(self.going.prompt.tokens))
        asked["logprobs"] = self.body.likeliest
        self._loaded = models.loaded(served.name) is not None
        turn = Turn(self.site, lambda: self.going.ask(asked), replies.gone(request))
        if keep is not None:
            models.engine.keep(served.name, seconds)
        replies.answer(response, turn, self, self.going.headers, streamed=self.body.streamed, type=lines.TYPE)

    def whole(self, turn: Turn) -> dict[str, Any]:
        """The answer in one piece."""
        found = turn.answer(self.going.prompt.thinking)
        scored = self._scored(found.scored[0])
        return {**self._final(turn, found.ended[0], found.timings, found.texts[0], found.thoughts[0]), **scored}

    def events(self, turn: Turn) -> Iterator[bytes]:
        """A line a piece of text, and one at the end; a failure is a line, and the end."""
        ended: Ended | None = None
        try:
            for event in spoken(turn, self.going.prompt.thinking):
                match event:
                    case Spoken(text, scored=scored, thought=thought):
                        held = self.held("", text) if thought else self.held(text, "")
                        yield lines.line({**self._head(), **held, "done": False, **self._scored(scored)})
                    case Ended():
                        ended = event
                    case Done(timings=timings) if ended is not None:
                        yield lines.line(self._final(turn, ended, timings, ""))
        except LlamayError as error:
            yield lines.line(failures.of(error, "ollama").body)

    def _head(self) -> dict[str, Any]:
        return {"model": self.body.called or self.going.served.name, "created_at": lines.now()}

    def _scored(self, scored: Sequence[Scored]) -> dict[str, Any]:
        tokenizer = self.going.language.tokenizer
        return {"logprobs": logprobs.content(tokenizer, scored)} if self.body.logprobs else {}

    def _end(self, reason: str, text: str = "", thought: str = "") -> dict[str, Any]:
        return {**self._head(), **self.held(text, thought), "done": True, "done_reason": reason}

    def _final(self, turn: Turn, ended: Ended, timings: Timings, text: str, thought: str = "") -> dict[str, Any]:
        # Few tokens come all at once: then it took no longer than they and the prompt did together.
        decoded = timings.decode_seconds or timings.prompt_seconds
        context = {"context": [*turn.ticket.asked.tokens, *ended.tokens]} if self.returns else {}
        return {
            **self._end(REASONS[ended.reason], text, thought),
            **context,
            "total_duration": lines.length(time.perf_counter() - self._started),
            "load_duration": lines.length(self._load_seconds()),
            "prompt_eval_count": timings.prompt_tokens,
            "prompt_eval_duration": lines.length(timings.prompt_seconds),
            "eval_count": timings.generated_tokens,
            "eval_duration": max(1, lines.length(decoded)),  # clients divide by it
            "llamay_cached_prompt_tokens": timings.cached_tokens,
            **self.going.missed(timings),
        }

    def _load_seconds(self) -> float:
        """What loading took, where this request waited for it."""
        loaded = None if self._loaded else self.site.models.loaded(self.going.served.name)
        return 0.0 if loaded is None else loaded.seconds
