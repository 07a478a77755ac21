"""Saving a context of a Cache: its pages read from the executor, checked and written while the next are read."""

import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

from llamay.kv.cache import Cache
from llamay.kv.context import Context
from llamay.kv.snapshots.folder import Folder, Saved
from llamay.kv.snapshots.labels import check_name, check_tags
from llamay.kv.snapshots.manifest import Manifest, Origin, Run, Shape, State, checked
from llamay.kv.snapshots.writer import Writer
from llamay.kv.table import sized
from llamay.tensor.batch import PAGE
from llamay.tensor.executor import Executor
from llamay.tensor.tail import clear_tail

CHUNK = 6 << 20  # bytes read from the executor at a time, or one page: what fits caches costs a third


@dataclass(frozen=True, slots=True)
class Label:
    """What a person gives a saved context; UsageError for what is no name or tag."""

    name: str = ""  # empty: the time and a few random digits
    tags: tuple[str, ...] = ()
    parent: str = ""  # name of the saved context it was forked from
    text: str = ""  # of its tokens, for `context show` and `diff`
    state: State = field(default_factory=dict)  # of sampler and constraints

    def __post_init__(self) -> None:
        made = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}"
        object.__setattr__(self, "name", check_name(self.name or made))
        object.__setattr__(self, "tags", check_tags(self.tags))
        object.__setattr__(self, "parent", check_name(self.parent) if self.parent else "")


class Recording:
    """A context whose pages have been read and are on their way to the disk.  Close it, or use it in a with statement."""

    def __init__(self, folder: Folder, origin: Origin, context: Context, pending: Sequence[int]) -> None:
        """`pending` are tokens that follow the context's and are not in its pages."""
        self.origin = origin
        self.tokens = (*context.tokens, *pending)
        self.held = context.position
        shapes = zip(origin.groups, context.tables, strict=True)
        self.firsts = [table.first if shape.page_bytes else sized(self.held) for shape, table in shapes]
        self.writer = Writer(folder, origin.groups)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.writer.close()

    def commit(self, label: Label, *, replace: bool = True) -> Saved:
        """Makes it a saved context, in any thread: the name then means this one, or, where this raises, what it did before."""
        runs = zip(self.firsts, self.writer.digests(), strict=True)
        document = Manifest(
            name=label.name,
            tags=label.tags,
            created=time.time(),
            parent=label.parent,
            origin=self.origin,
            tokens=self.tokens,
            held=self.held,
            runs=tuple(Run(first, pages) for first, pages in runs),
            text=label.text,
            state=label.state,
        )
        return self.writer.commit(checked(document), replace=replace)


def origin_of(executor: Executor, cache: Cache, model: str, weights: str) -> Origin:
    """What computes here: `model` is for people, `weights` is `sha256:` and the digest of the model's file or files."""
    shapes = tuple(Shape(executor.page_bytes(group.number), group.span) for group in cache.groups)
    return Origin(model, weights, executor.numerics, executor.kv, executor.program.vocabulary, shapes)


def record(
    folder: Folder, context: Context, executor: Executor, origin: Origin, pending: Sequence[int] = ()
) -> Recording:
    """Reads the context's pages, in the thread that owns the executor; `Recording.commit` may run in another.

    All steps that write the context's committed tokens must have been submitted.
    """
    recording = Recording(folder, origin, context, pending)
    try:
        for group, (shape, table) in enumerate(zip(origin.groups, context.tables, strict=True)):
            if not shape.page_bytes:
                continue
            pages = table.cut(sized(context.position)).live.tolist()
            step = max(1, CHUNK // shape.page_bytes)
            for start in range(0, len(pages), step):
                data = executor.read_pages(group, pages[start : start + step])
                if start + step >= len(pages) and context.position % PAGE:
                    clear_tail(executor, group, data[-1], context.position % PAGE)
                recording.writer.add(group, data)
    except BaseException:
        recording.writer.close()
        raise
    return recording


def save(
    folder: Folder,
    context: Context,
    executor: Executor,
    origin: Origin,
    label: Label,
    *,
    pending: Sequence[int] = (),
    replace: bool = True,
) -> Saved:
    """Saves a context under the label's name.  ContextFileError where that cannot be; a context of that name stays then.

    UsageError where the name is taken and `replace` is not set.
    """
    with record(folder, context, executor, origin, pending) as recording:
        return recording.commit(label, replace=replace)
