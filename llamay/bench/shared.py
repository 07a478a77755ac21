"""A model whose pages are for many contexts at once, in page groups as an engine has them."""

import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from llamay import arch, gguf, model
from llamay.arch import Config
from llamay.bench.target import Target
from llamay.serve.loading import devices, load
from llamay.serve.loading.pools import Pools, pools
from llamay.settings import Settings
from llamay.tensor.program import Program

ENTRIES = 64  # sequences whose page tables a step has room for


@dataclass(frozen=True, slots=True)
class Room:
    """How much is to be in pages at once: whole contexts, and pages more than those."""

    context: int  # tokens of each
    contexts: int
    pages: int


def open_shared(named: Path | str, settings: Settings, room: Room) -> Target:
    """The model of a file, or of a specification of a synthetic one, with pages for all of `room`.

    Raises what opening and loading a model raise; OutOfMemory by numbers where the device has too little.
    """
    start = time.perf_counter()
    owned = ExitStack()
    try:
        name, program, config, size, notes = _synthetic(named) if isinstance(named, str) else _file(named, owned)
        context = load.context_of(room.context, config)
        choice = devices.choose(settings)
        sizes = sizes_of(program, settings.kv, replace(room, context=context))
        executor = devices.executor(choice, program, sizes, settings)
        owned.callback(executor.close)
    except BaseException:
        owned.close()
        raise
    if choice.fallback:
        notes = (f"computing with NumPy: {choice.reason}", *notes)
    return Target(
        name=name,
        executor=executor,
        device=choice.name,
        context=context,
        kv=settings.kv,
        file_bytes=size,
        load_seconds=time.perf_counter() - start,
        notes=notes,
        synthetic=isinstance(named, str),
        _owned=owned,
    )


def sizes_of(program: Program, kv: str, room: Room) -> Pools:
    """The pools for all of `room`; the window group, where there is one, by the same count of contexts."""
    one = pools(program, kv, room.context)
    return replace(
        one,
        pages=one.pages * room.contexts + room.pages,
        window_pages=one.window_pages * room.contexts + room.pages if one.window_pages else 0,
        entries=ENTRIES * one.pages * (2 if one.window_pages else 1),
    )


def longest(named: Path | str) -> int:
    """The longest context of a model, from its file or specification."""
    if isinstance(named, str):
        from llamay.bench import shapes

        return shapes.named(named)[0].config().context
    with gguf.open(named) as file:
        return arch.describe(file).context


def _file(path: Path, owned: ExitStack) -> tuple[str, Program, Config, int, tuple[str, ...]]:
    file = gguf.open(path)
    owned.callback(file.close)
    config = arch.describe(file)
    bound = model.bind(file, config)
    told = file.metadata.get("general.name")
    name = told if isinstance(told, str) and told else path.name
    return name, bound.program, config, sum(tensor.nbytes for tensor in file.tensors.values()), ()


def _synthetic(spec: str) -> tuple[str, Program, Config, int, tuple[str, ...]]:
    from llamay.bench import synthetic

    made = synthetic.make(spec)
    note = f"random weights of a real shape, for speed only: {made.types}"
    return f"synthetic {spec}", made.program, made.config, made.bytes, (note,)
