"""Restoring a saved context: into fresh pages where they are what this machine would compute, else from its tokens."""

from dataclasses import dataclass

from llamay.errors import ContextFileError, ContextMismatch, UsageError
from llamay.kv.cache import Cache
from llamay.kv.context import Context
from llamay.kv.snapshots import reader
from llamay.kv.snapshots.folder import Folder
from llamay.kv.snapshots.manifest import Manifest, Origin, State
from llamay.kv.table import sized
from llamay.tensor.executor import Executor


@dataclass(frozen=True, slots=True)
class Restored:
    """A context of the cache, and what is left to do: compute `pending`, which follow its tokens."""

    context: Context
    pending: tuple[int, ...]
    state: State  # as it was saved; empty for a part of the tokens, whose state nobody saved
    recomputed: bool  # no saved page was used
    note: str  # the same for a person, with the reason

    @property
    def tokens(self) -> tuple[int, ...]:
        """All that were asked for."""
        return (*self.context.tokens, *self.pending)


def obstacle(saved: Manifest, here: Origin, tokens: int) -> str:
    """Why the saved pages cannot be used here for its first tokens, in one clause; "" where they can.

    ContextMismatch for other weights or another KV format: there its tokens are of no use either, or
    the caller can choose the format.
    """
    there = saved.origin
    if there.weights != here.weights:
        raise ContextMismatch(
            f"{saved.name!a} was saved with the weights of {there.model!a} ({there.weights}); "
            f"here are those of {here.model!a} ({here.weights})"
        )
    if there.kv != here.kv:
        raise ContextMismatch(
            f"{saved.name!a} was saved with keys and values kept as {there.kv!r}; here they are {here.kv!r} "
            "(-kv with the saved format would take it)"
        )
    if there.vocabulary != here.vocabulary:
        raise ContextMismatch(f"{saved.name!a} has a vocabulary of {there.vocabulary}; here it is {here.vocabulary}")
    if there.numerics != here.numerics:
        return f"its pages were computed by {there.numerics!r}; here it is {here.numerics!r}"
    if there.groups != here.groups:
        return f"its pages are {_shapes(there)}, here they are {_shapes(here)}"
    if not saved.usable(min(tokens, saved.held)):
        return f"the window of the first {tokens} tokens had gone when it was saved"
    return ""


def restore(
    folder: Folder,
    saved: Manifest,
    cache: Cache,
    executor: Executor,
    here: Origin,
    *,
    tokens: int | None = None,
    recompute: bool = False,
) -> Restored:
    """A new context with the first `tokens` tokens (default: all) of a saved one.

    ContextMismatch for other weights or another KV format, and, unless `recompute` is set, wherever
    the pages cannot be used; ContextFileError, MalformedContext among them, for one that is damaged.
    With `recompute` the tokens are all that is needed, which `saved` had checked.  OutOfMemory without
    room.  Where it raises nothing has changed, no page is taken, and no live context was touched.
    """
    count = len(saved.tokens) if tokens is None else tokens
    if not 0 <= count <= len(saved.tokens):
        raise UsageError(f"the first {count} tokens were asked for; {saved.name!a} has {len(saved.tokens)}")
    state = saved.state if count == len(saved.tokens) else {}
    reason, instead = obstacle(saved, here, count), f"-recompute rebuilds it from its {count} tokens"
    if not reason:
        held = min(count, saved.held)
        try:
            context = _load(folder, saved, cache, executor, held)
            return Restored(context, saved.tokens[held:count], state, False, f"{held} tokens restored as pages")
        except ContextFileError as error:
            if not recompute:
                raise type(error)(f"{error}; {instead}") from error
            reason = str(error)
    elif not recompute:
        raise ContextMismatch(f"{saved.name!a}: {reason}; {instead}")
    context, known = cache.match(saved.tokens[:count])
    note = f"{count} tokens recomputed: {reason}" + (f" ({known} of them were in the prefix cache)" if known else "")
    return Restored(context, saved.tokens[known:count], state, True, note)


def _load(folder: Folder, saved: Manifest, cache: Cache, executor: Executor, held: int) -> Context:
    """A context of the first `held` tokens in fresh pages, all of them checked."""
    if any(group.pages.free < sized(held) - group.first(held) for group in cache.groups):
        reader.verify(folder, saved, held)  # before the prefix tree gives up anything for it
    context = cache.allocate(saved.tokens[:held])
    try:
        for chunk in reader.chunks(folder, saved, held):
            table = context.tables[chunk.group].array
            executor.write_pages(chunk.group, table[chunk.first : chunk.first + len(chunk.pages)].tolist(), chunk.pages)
    except BaseException:
        cache.drop(context)
        raise
    return context


def _shapes(origin: Origin) -> str:
    return " and ".join(f"{shape.page_bytes} bytes (window {shape.span})" for shape in origin.groups)
