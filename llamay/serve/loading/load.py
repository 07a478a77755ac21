"""From a model's file to something that answers: parsed, bound, on a device, with its tokenizer."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import Self

from llamay import arch, gguf, kv, model, tok
from llamay.arch import Config
from llamay.errors import ContextTooLong, UsageError
from llamay.serve.loading import devices, quicker
from llamay.serve.loading.language import Language
from llamay.serve.loading.pools import Pools, alone, pools, single, whole
from llamay.settings import Settings
from llamay.store import fingerprint
from llamay.tensor.batch import PAGE
from llamay.tensor.cache import cache_format
from llamay.tensor.executor import Executor
from llamay.tensor.program import Program

DEFAULT_CONTEXT = 4096  # where the model takes more: pages are memory from the start
LONGEST_TEXT = 2048  # where the model reads both ways and takes more
SMALL_CONTEXT = 2048  # where they are the machine's own memory, and 4096 tokens would take more than
SMALL_CACHE = 96 << 20  # bytes
OVERHEAD = 256 << 20  # bytes that a loaded model takes besides weights and pages, at most


@dataclass(slots=True, eq=False)
class Loaded:
    """A model ready to answer.  Close it, or use it in a with statement, to give the device's memory back."""

    settings: Settings
    file: gguf.File
    config: Config
    audit: model.Audit
    finish: model.Finish
    language: Language
    executor: Executor
    cache: kv.Cache
    context: int  # tokens
    pools: Pools
    device: str  # name and kind of what computes
    seconds: float  # it took to load
    notes: tuple[str, ...] = ()  # what the person should know: a fallback, a guess, unread tensors
    _closed: bool = field(default=False, repr=False)

    @property
    def tokenizer(self) -> tok.Tokenizer:
        """Text to ids and back."""
        return self.language.tokenizer

    @property
    def name(self) -> str:
        """What the file calls its model, else the file's own name."""
        return self.language.name

    def decoder(self, prompt: Sequence[int], stops: tuple[str, ...] = ()) -> tok.Decoder:
        """The decoder of an answer to this prompt, which also finds the stop strings."""
        return self.language.decoder(prompt, stops)

    def digest(self) -> str:
        """The weights' digest, by which saved contexts know their model; a file outside the store is read for it once."""
        return fingerprint.fingerprint(self.file.paths, self.settings.models / "blobs", self.settings.cache)

    def describe(self) -> str:
        """One line: model, device, context."""
        if self.config.pooling:
            return f"{self.name} · {self.device} · texts of up to {self.context} tokens"
        room = "" if self.pools.pages * PAGE < 2 * self.context else f", {self.pools.bytes / 2**20:,.0f} MiB of pages"
        return f"{self.name} · {self.device} · context {self.context} · kv {self.settings.kv}{room}"

    @property
    def closed(self) -> bool:
        """Whether it was given back."""
        return self._closed

    def close(self) -> None:
        """Gives device memory and the file back.  Safe to call twice."""
        if not self._closed:
            self._closed = True
            self.executor.close()
            self.file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def load(
    path: Path,
    settings: Settings,
    *,
    shared: bool = False,
    embeds: bool = False,
    direct: bool = False,
    language: Language | None = None,
) -> Loaded:
    """Opens the file, binds its weights and loads them into the executor the settings choose.

    `language` is the file's own, where it has been read already.
    Its pages hold one context.  `shared` gives it more, `settings.kv_mem` or a share of what is
    free, and layers with a sliding window a pool of their own: for many requests at once.
    With `direct` all pages are of one group: for who drives the executor without a cache.
    A model that makes vectors of texts is loaded where it is `shared` or that is what it is for: `embeds`.
    Raises ModelFileError for a file that cannot be run, ContextTooLong for a context beyond the
    model's, and DeviceError for what the device cannot do.
    """
    start = time.perf_counter()
    file = gguf.open(path)
    try:
        config = arch.describe(file)
        if config.pooling:
            if not (shared or embeds):
                command = "rerank" if config.ranks else "embed"
                named = (language or Language.of(file, config)).name  # an installed model's path names its digest
                raise UsageError(f"{named} turns texts into vectors; `llamay {command}` takes it")
            settings = replace(settings, kv="f32")  # nothing is kept in pages
        language = language or Language.of(file, config)
        choice = devices.choose(settings)
        software = choice.adapter is not None and choice.adapter.software
        context = language.context = context_of(settings.context, config, SMALL_CACHE if software else None, settings.kv)
        bound = model.bind(file, config, context)
        if config.pooling:
            sizes = whole(bound.program, context)
        elif shared or settings.kv_mem:
            sizes = _pools(choice, bound.program, context, settings, file.size)
        else:
            sizes = (single if direct else alone)(bound.program, settings.kv, context)
        if config.both_ways:
            choice, executor = quicker.executor(choice, bound.program, sizes, settings, file.size)
        else:
            executor = devices.executor(choice, bound.program, sizes, settings)
    except BaseException:
        file.close()
        raise
    return Loaded(
        settings=settings,
        file=file,
        config=config,
        audit=bound.audit,
        finish=bound.finish,
        language=language,
        executor=executor,
        cache=kv.Cache.over(executor),
        context=context,
        pools=sizes,
        device=choice.name,
        seconds=time.perf_counter() - start,
        notes=(*_notes(choice, bound.audit, language.tokenizer), *getattr(executor, "notes", ())),
    )


def context_of(asked: int, config: Config, most: int | None = None, kv: str = "f32") -> int:
    """The context in tokens: the asked-for one, checked, or the model's own up to DEFAULT_CONTEXT.

    With `most` the latter is SMALL_CONTEXT where DEFAULT_CONTEXT would take more bytes than that.
    """
    if asked > config.context:
        made = config.context
        raise ContextTooLong(f"a context of {asked} tokens was asked for; this model was made for {made}: ask for {made} or less")
    if config.both_ways:  # what is computed in one step
        return asked or min(config.context, LONGEST_TEXT)
    usual = min(config.context, DEFAULT_CONTEXT)
    token = sum(config.kv_heads) * cache_format(kv).token_bytes(config.head_dim, config.value_dim)
    return asked or (usual if most is None or usual * token <= most else min(usual, SMALL_CONTEXT))


def _pools(choice: devices.Choice, program: Program, context: int, settings: Settings, weights: int) -> Pools:
    """The pools that many requests share, beside so many bytes of weights."""
    free = devices.free(choice, settings)
    return pools(
        program,
        settings.kv,
        context,
        allowed=settings.kv_bytes,
        free=None if free is None else max(0, free - weights - OVERHEAD),
        largest=devices.largest(choice),
    )


def _notes(choice: devices.Choice, audit: model.Audit, tokenizer: tok.Tokenizer) -> tuple[str, ...]:
    notes = []
    if choice.fallback:
        notes.append(f"computing with NumPy: {choice.reason}")
    if tokenizer.guessed:
        notes.append(tokenizer.guessed)
    if audit.unread:
        notes.append(str(audit))
    return tuple(notes)
