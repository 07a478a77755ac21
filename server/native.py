"""POST /completion and /infill: llama.cpp's own ways to have a text gone on with, and a gap in one filled."""

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import falcon
import msgspec

from llamay.errors import LlamayError, UsageError
from llamay.serve.events import Done, Ended, Timings
from llamay.serve.loading.language import Prompt
from llamay.serve.logprobs import Scored
from llamay.serve.speech import Spoken, spoken
from llamay.server import bodies, failures, replies, sse
from llamay.server.continuing import Going
from llamay.server.openai import logprobs, wire
from llamay.server.openai.completions import begun, continued
from llamay.server.refusals import Unoffered
from llamay.server.site import Site
from llamay.server.turn import Turn
from llamay.tok import Tokenizer

STOPPED = {"end": "eos", "stop": "word", "length": "limit", "context": "limit", "cancel": "none"}


class Native(wire.Sampling):
    """What it takes."""

    prompt: str | list[Any] | None = None
    n_predict: int | None = None
    n_probs: int | None = None


class Extra(msgspec.Struct):
    """A file that a gap may refer to."""

    text: str
    filename: str = "snippet"


class Gap(Native):
    """What /infill takes: the text around the gap, files that stand before it, and as the prompt the beginning of the answer."""

    input_prefix: str = ""
    input_suffix: str = ""
    input_extra: list[Extra] | None = None


class NativeCompletion:
    """Goes on with one text."""

    takes: ClassVar = {"POST": Native}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        body = bodies.read(request, Native, self._site.configuration.body)
        going = Going.of(self._site, request, body.llamay_context, body.model)
        language, asked = going.language, wire.Completion(prompt=body.prompt)
        prompts = begun(asked, language) if going.parent is None else continued(asked, going)
        if len(prompts) > 1:
            raise UsageError(f"prompt holds {len(prompts)} texts; /v1/completions goes on with several")
        going.prompt = Prompt(list(prompts[0].tokens))
        _answer(going, body, prompts[0].text, request, response)


class NativeInfill:
    """Fills the gap in one text."""

    takes: ClassVar = {"POST": Gap}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        body = bodies.read(request, Gap, self._site.configuration.body)
        going = Going(self._site, self._site.models.served(body.model))
        if not going.language.fills:
            raise Unoffered(f"{going.served.name} has no tokens for filling in the middle; /completion goes on with a text")
        if not isinstance(body.prompt or "", str):
            raise UsageError("prompt is no text; here it is the beginning of what fills the gap")
        files = [(one.filename, one.text) for one in body.input_extra or ()]
        going.prompt = going.language.infill(body.input_prefix, body.input_suffix, files, str(body.prompt or ""))
        _answer(going, body, going.language.tokenizer.text(going.prompt.tokens, special=True), request, response)


def _answer(going: Going, body: Native, prompt: str, request: falcon.Request, response: falcon.Response) -> None:
    """Has the prompt gone on with, which is that text."""
    going.via = "llama.cpp"
    tokenizer = going.language.tokenizer
    options = wire.options(body, body.n_predict, tokenizer, body.n_probs or None)
    options["n"] = None
    turn = Turn(going.site, lambda: going.ask(options), replies.gone(request))
    told = _Told(body.model or going.served.name, prompt, tokenizer, scoring=bool(body.n_probs))
    replies.answer(response, turn, told, going.headers, streamed=body.stream)


class _Told:
    """What one request is told."""

    def __init__(self, model: str, prompt: str, tokenizer: Tokenizer, *, scoring: bool) -> None:
        self._model, self._prompt, self._tokenizer, self._scoring = model, prompt, tokenizer, scoring

    def whole(self, turn: Turn) -> dict[str, Any]:
        """The reply in one piece."""
        pieces = [piece for piece in self._pieces(turn) if piece is not None]
        found = {**pieces[-1], "content": "".join([piece["content"] for piece in pieces])}
        if self._scoring:
            told = [one for piece in pieces for one in piece["completion_probabilities"]]
            found["completion_probabilities"] = told
        return found

    def events(self, turn: Turn) -> Iterator[bytes]:
        """The reply as server-sent events, of which the last has `stop` true."""
        try:
            for piece in self._pieces(turn):
                yield sse.PING if piece is None else sse.event(piece)
        except LlamayError as error:
            yield sse.event(failures.of(error, "openai").body)

    def _pieces(self, turn: Turn) -> Iterator[dict[str, Any] | None]:
        ended: Ended | None = None
        for event in spoken(turn):
            match event:
                case None:
                    yield None
                case Spoken(text, scored=scored):
                    yield self._piece(text, scored)
                case Ended():
                    ended = event
                case Done(timings=timings):
                    yield {**self._piece("", (), stop=True), **self._end(ended, timings)}

    def _piece(self, text: str, scored: Sequence[Scored], *, stop: bool = False) -> dict[str, Any]:
        piece: dict[str, Any] = {"index": 0, "content": text, "stop": stop}
        if self._scoring:
            piece["completion_probabilities"] = logprobs.content(self._tokenizer, scored, ids=True)
        return piece

    def _end(self, ended: Ended | None, timings: Timings) -> dict[str, Any]:
        return {
            "id_slot": -1,
            "model": self._model,
            "prompt": self._prompt,
            "tokens": [] if ended is None else list(ended.tokens),
            "stop_type": "limit" if ended is None else STOPPED[ended.reason],
            "stopping_word": "" if ended is None else ended.stop or "",
            "tokens_predicted": timings.generated_tokens,
            "tokens_evaluated": timings.prompt_tokens,
            "tokens_cached": timings.cached_tokens,
            "truncated": False,
            "timings": _timings(timings),
        }


def _timings(timings: Timings) -> dict[str, Any]:
    prompt = timings.prompt_tokens - timings.cached_tokens
    return {
        "cache_n": timings.cached_tokens,
        "prompt_n": prompt,
        "prompt_ms": timings.prompt_seconds * 1e3,
        "prompt_per_token_ms": timings.prompt_seconds * 1e3 / max(prompt, 1),
        "prompt_per_second": timings.prompt_rate,
        "predicted_n": timings.generated_tokens,
        "predicted_ms": timings.decode_seconds * 1e3,
        "predicted_per_token_ms": timings.decode_seconds * 1e3 / max(timings.generated_tokens, 1),
        "predicted_per_second": timings.generated_rate,
    }
