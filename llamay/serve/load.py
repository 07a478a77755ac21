"""From a model's file to something that answers: parsed, bound, on a device, with its tokenizer."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

from llamay import arch, gguf, kv, model, tok
from llamay.arch import Config
from llamay.errors import UsageError
from llamay.serve import devices
from llamay.serve.pools import Pools, pools, single
from llamay.settings import Settings
from llamay.store import fingerprint
from llamay.tensor.batch import PAGE
from llamay.tensor.cache import cache_format
from llamay.tensor.executor import Executor
from llamay.tensor.program import Program
from llamay.tok.fallback import chat_template

DEFAULT_CONTEXT = 4096  # where the model takes more: pages are memory from the start
SMALL_CONTEXT = 2048  # where they are the machine's own memory, and 4096 tokens would take more than
SMALL_CACHE = 96 << 20  # bytes
OVERHEAD = 256 << 20  # bytes that a loaded model takes besides weights and pages, at most

Message = dict[str, str]  # role and content


@dataclass(frozen=True, slots=True)
class Prompt:
    """What is to be continued."""

    tokens: list[int]
    stops: tuple[str, ...] = ()  # strings that end the answer
    notes: tuple[str, ...] = ()  # what was changed of the messages so that the template takes them


@dataclass(slots=True, eq=False)
class Loaded:
    """A model ready to answer.  Close it, or use it in a with statement, to give the device's memory back."""

    settings: Settings
    file: gguf.File
    config: Config
    audit: model.Audit
    tokenizer: tok.Tokenizer
    template: tok.ChatTemplate
    executor: Executor
    cache: kv.Cache
    context: int  # tokens
    pools: Pools
    device: str  # name and kind of what computes
    seconds: float  # it took to load
    notes: tuple[str, ...] = ()  # what the person should know: a fallback, a guess, unread tensors
    _closed: bool = field(default=False, repr=False)
    _told: set[str] = field(default_factory=set, repr=False)

    def raw(self, text: str) -> Prompt:
        """A text to complete; special tokens written in it are recognised, as the person typed them."""
        return Prompt(self._begun(self.tokenizer.encode(text, parse_special=True)))

    def chat(self, messages: Sequence[Message]) -> Prompt:
        """A conversation through the file's chat template, or the one that goes with its vocabulary.

        Special tokens that a message spells stay text.  Raises TemplateError when the template refuses.
        """
        rendered = self.template.render(messages)
        ids = self.tokenizer.encode(rendered.text, parse_special=True, plain=rendered.spans)
        return Prompt(self._begun(ids), self.template.stops, rendered.notes)

    def news(self, prompt: Prompt) -> list[str]:
        """The prompt's notes that no earlier prompt had: a conversation is told a thing once."""
        fresh = [note for note in prompt.notes if note not in self._told]
        self._told.update(fresh)
        return fresh

    def decoder(self, prompt: Sequence[int], stops: tuple[str, ...] = ()) -> tok.Decoder:
        """The decoder of an answer to this prompt, which also finds the stop strings."""
        return tok.Decoder(self.tokenizer, stops, continues=self.tokenizer.continues(prompt))

    def _begun(self, ids: list[int]) -> list[int]:
        """With the token that begins every text of this model, once."""
        bos = self.tokenizer.bos
        if bos is None or not self.tokenizer.add_bos or ids[:1] == [bos]:
            return ids
        return [bos, *ids]

    @property
    def name(self) -> str:
        """What the file calls its model, else the file's own name."""
        name = self.file.metadata.get("general.name")
        return name if isinstance(name, str) and name else Path(self.file.path).name

    def digest(self) -> str:
        """The weights' digest, by which saved contexts know their model; a file outside the store is read for it once."""
        return fingerprint.fingerprint(self.file.paths, self.settings.models / "blobs", self.settings.cache)

    def describe(self) -> str:
        """One line: model, device, context."""
        room = "" if self.pools.pages * PAGE < 2 * self.context else f", {self.pools.bytes / 2**20:,.0f} MiB of pages"
        return f"{self.name} · {self.device} · context {self.context} · kv {self.settings.kv}{room}"

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


def load(path: Path, settings: Settings, *, shared: bool = False) -> Loaded:
    """Opens the file, binds its weights and loads them into the executor the settings choose.

    Its pages hold one context.  `shared` gives it more, `settings.kv_mem` or a share of what is
    free, and layers with a sliding window a pool of their own: for many requests at once.
    Raises ModelFileError for a file that cannot be run, UsageError for a context beyond the
    model's, and DeviceError for what the device cannot do.
    """
    start = time.perf_counter()
    file = gguf.open(path)
    try:
        config = arch.describe(file)
        bound = model.bind(file, config)
        tokenizer = tok.load(file.metadata)
        choice = devices.choose(settings)
        software = choice.adapter is not None and choice.adapter.software
        context = context_of(settings.context, config, SMALL_CACHE if software else None, settings.kv)
        sizes = _pools(choice, bound.program, context, settings, file.size) if shared else single(bound.program, settings.kv, context)
        executor = devices.executor(choice, bound.program, sizes, settings)
    except BaseException:
        file.close()
        raise
    return Loaded(
        settings=settings,
        file=file,
        config=config,
        audit=bound.audit,
        tokenizer=tokenizer,
        template=chat_template(tokenizer),
        executor=executor,
        cache=kv.Cache(sizes.pages, sizes.window_pages, sizes.span, executor.copy_pages),
        context=context,
        pools=sizes,
        device=choice.name,
        seconds=time.perf_counter() - start,
        notes=(*_notes(choice, bound.audit, tokenizer), *getattr(executor, "notes", ())),
    )


def context_of(asked: int, config: Config, most: int | None = None, kv: str = "f32") -> int:
    """The context in tokens: the asked-for one, checked, or the model's own up to DEFAULT_CONTEXT.

    With `most` the latter is SMALL_CONTEXT where DEFAULT_CONTEXT would take more bytes than that.
    """
    if asked > config.context:
        raise UsageError(f"a context of {asked} tokens was asked for; this model was made for {config.context}")
    usual = min(config.context, DEFAULT_CONTEXT)
    token = sum(config.kv_heads) * cache_format(kv).token_bytes(config.head_dim)
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
