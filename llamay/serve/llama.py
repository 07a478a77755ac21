"""Llama: a model for Python, with everything a server has but the server."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, Unpack, overload

import numpy as np

from llamay import settings
from llamay.errors import UsageError
from llamay.kv import snapshots
from llamay.sample import Sampling
from llamay.serve import options as asked
from llamay.serve import ranking
from llamay.serve.context import Context
from llamay.serve.contexts.pages import Pages
from llamay.serve.encoding import Encoder, Text
from llamay.serve.engine import Bounds, Engine
from llamay.serve.events import Failed, Rows
from llamay.serve.loading import usual
from llamay.serve.loading.language import Message
from llamay.serve.loading.load import Loaded, load
from llamay.serve.options import Options
from llamay.serve.request import Reading
from llamay.serve.results import Completion, Stream
from llamay.serve.scheduling.scheduler import Scheduler
from llamay.serve.stats import Stats
from llamay.tensor.program import Floats
from llamay.tok import Tokenizer


class Llama:
    """A model that answers.  Close it, or use it in a with statement.

    `model` is a GGUF file or an installed name; empty, the default model.  `device` is auto,
    webgpu, webgpu:NAME or numpy; `context` is in tokens, 0 for the model's own up to 4096; `kv` is
    the format of keys and values; `kv_mem` the memory for them, as in "2G".  What is not given is taken
    from the config file and the LLAMAY_* variables.  `bounds` say how much it takes on at once.

    Any number of threads may use it: their requests are batched, and none changes a bit of another's.
    """

    def __init__(
        self,
        model: str | Path = "",
        *,
        device: str | None = None,
        context: int | None = None,
        kv: str | None = None,
        kv_mem: str | None = None,
        bounds: Bounds | None = None,
    ) -> None:
        """Raises what is wrong with the model, the settings or the device."""
        self.settings = settings.load({"backend": device, "context": context, "kv": kv, "kv_mem": kv_mem})
        self.path = usual.path(str(model), self.settings)
        self._weights = ""
        self.engine = Engine(self._open, bounds or Bounds(keep_alive=None))
        try:
            self.engine.call(lambda scheduler: None)
        except BaseException:
            self.engine.close()
            raise

    def _open(self, name: str) -> Loaded:
        self._loaded = load(self.path, self.settings, shared=True)
        self.notes = (*self._loaded.notes, *self._loaded.language.notes)
        return self._loaded

    # what it is

    @property
    def name(self) -> str:
        """What the file calls its model, else the file's own name."""
        return self._loaded.name

    @property
    def device(self) -> str:
        """What computes."""
        return self._loaded.device

    @property
    def context_size(self) -> int:
        """Tokens that a prompt and its answer may have."""
        return self._loaded.context

    @property
    def tokenizer(self) -> Tokenizer:
        """Text to ids and back."""
        return self._loaded.tokenizer

    @property
    def sampling(self) -> Sampling:
        """How tokens are chosen where nothing else is asked for."""
        return self._loaded.language.sampling

    def stats(self) -> Stats:
        """What is going on."""
        return self.engine.stats()

    def describe(self) -> str:
        """One line: model, device, context."""
        return self._loaded.describe()

    # answers

    @overload
    def chat(
        self, messages: Sequence[Message], *, stream: Literal[False] = False, **options: Unpack[Options]
    ) -> Completion: ...
    @overload
    def chat(self, messages: Sequence[Message], *, stream: Literal[True], **options: Unpack[Options]) -> Stream: ...
    def chat(self, messages: Sequence[Message], *, stream: bool = False, **options: Any) -> Completion | Stream:
        """Answers a conversation through the model's chat template.

        Special tokens that a message spells stay text.  Raises TemplateError when the template refuses.
        """
        prompt = self._loaded.language.chat(messages)
        started = self.ask(tuple(prompt.tokens), options, stops=prompt.stops, notes=prompt.notes)
        return started if stream else self.finished(started, options)

    @overload
    def complete(self, text: str, *, stream: Literal[False] = False, **options: Unpack[Options]) -> Completion: ...
    @overload
    def complete(self, text: str, *, stream: Literal[True], **options: Unpack[Options]) -> Stream: ...
    def complete(self, text: str, *, stream: bool = False, **options: Any) -> Completion | Stream:
        """Goes on with a text, without a chat template; special tokens written in it are recognised."""
        started = self.ask(tuple(self._loaded.language.raw(text).tokens), options)
        return started if stream else self.finished(started, options)

    def ask(
        self,
        tokens: tuple[int, ...],
        options: dict[str, Any],
        *,
        stops: tuple[str, ...] = (),
        notes: tuple[str, ...] = (),
        context: int | None = None,
        ended: Callable[[Completion | None], None] = lambda _: None,
    ) -> Stream:
        """Asks for an answer to token ids; `options` are as in Options, `stops` those of the chat template."""
        given = asked.checked(options)
        ends = self.tokenizer.end_tokens
        request = asked.request(tokens, given, self._loaded.language.sampling, ends=ends, stops=stops, context=context)
        return Stream(self.engine.submit(request), notes, ended)

    def finished(self, stream: Stream, options: dict[str, Any]) -> Completion:
        """The completion of a stream; of `best_of` choices, the likeliest."""
        found = stream.completion
        made, given = asked.choices_of(asked.checked(options))
        if options.get("best_of") is None:
            return found
        prompt = stream.ticket.asked.tokens
        scored = [replace(choice, logprob=self.logprob(prompt, choice.tokens)) for choice in found.choices]
        scored.sort(key=lambda choice: -(choice.logprob or 0.0))
        return replace(found, choices=tuple(scored[:given] if made > given else scored))

    def embed(
        self, texts: Sequence[Text], *, dimensions: int | None = None, normalised: bool = True, truncate: bool = False
    ) -> Floats:
        """A vector [texts, width] for each text or list of token ids, of length one where `normalised`.

        `dimensions` keeps the first so many values; `truncate` cuts a text that is longer than the context.
        Raises UsageError for a model that does not embed.
        """
        encoder = Encoder(self._loaded, self.engine)
        return encoder.embed(texts, dimensions=dimensions, normalised=normalised, truncate=truncate).rows

    def rank(self, query: str, documents: Sequence[str]) -> tuple[float, ...]:
        """The probability, as the model sees it, that each document answers the query; UsageError where it ranks none."""
        return ranking.rank(Encoder(self._loaded, self.engine), query, documents).probabilities

    def logprob(self, prompt: Sequence[int], tokens: Sequence[int]) -> float:
        """The mean natural logarithm of what the model gives each of some tokens after a prompt."""
        if not tokens:
            return 0.0
        first, total = len(prompt) - 1, 0.0
        for event in self.engine.submit(Reading((*prompt, *tokens[:-1]), first)):
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, Rows):
                at = event.first - first
                rows = event.logits.astype(np.float64)
                rows -= rows.max(axis=-1, keepdims=True)
                chosen = rows[np.arange(len(rows)), tokens[at : at + len(rows)]]
                total += float((chosen - np.log(np.exp(rows).sum(axis=-1))).sum())
        return total / len(tokens)

    # contexts

    def context(
        self,
        *,
        text: str | None = None,
        tokens: Sequence[int] | None = None,
        messages: Sequence[Message] | None = None,
    ) -> Context:
        """A context that holds a text, token ids or a conversation; empty without any."""
        if sum(given is not None for given in (text, tokens, messages)) > 1:
            raise UsageError("a context is made from one of text, tokens and messages")
        if text is not None:
            tokens = self._loaded.language.raw(text).tokens
        elif messages is not None:
            tokens = self._loaded.language.chat(messages).tokens
        context = Context(self, (), Pages())
        return context.append(tokens=tokens) if tokens else context

    def restore(self, name: str, *, tokens: int | None = None, recompute: bool = False) -> Context:
        """A saved context, or its first `tokens` tokens; see Context.restore."""
        return Context(self, (), Pages()).restore(name, tokens=tokens, recompute=recompute)

    @property
    def folder(self) -> snapshots.Folder:
        """Where contexts are saved."""
        return snapshots.Folder(self.settings.contexts)

    @property
    def origin(self) -> Callable[[Scheduler], snapshots.Origin]:
        """What computes here, for saved contexts."""
        self._weights = self._weights or self._loaded.digest()
        name, weights = self.name, self._weights
        return lambda scheduler: snapshots.origin_of(scheduler.executor, scheduler.cache, name, weights)

    def close(self) -> None:
        """Ends what is under way and gives memory back.  Safe to call twice."""
        self.engine.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
