"""A machine of a tiny model with a cache and pages full of noise, and folders of saved contexts."""

from collections.abc import Callable
from functools import cache as remembered
from pathlib import Path

import numpy as np
import pytest

from llamay import gguf
from llamay.arch import describe
from llamay.kv import Cache, Context
from llamay.kv.snapshots import Folder, Label, Origin, Saved, origin_of, save
from llamay.model import bind
from llamay.tensor.batch import PAGE, Batch
from llamay.tensor.numpy import NumpyExecutor

MODELS = Path(__file__).parents[2] / "data" / "models"
FULL, WINDOWED = "llama-gqa.f16", "gemma3.f16"
WEIGHTS = "sha256:" + "5" * 64


@remembered
def program_of(name: str):
    file = gguf.open(MODELS / f"{name}.gguf")
    return bind(file, describe(file)).program


class Machine:
    """An executor with its cache; `fill` makes contexts whose pages hold noise, `run` computes real ones."""

    def __init__(self, name: str = FULL, pages: int = 64, kv: str = "f32", executor=None) -> None:
        program = program_of(name)
        self.span = program.span
        windows = pages if self.span else 0
        self.executor = executor or NumpyExecutor(program, pages, window_pages=windows, kv=kv)
        self.cache = Cache(pages, windows, self.span, self.executor.copy_pages)
        self.name = name
        self._noise = np.random.default_rng(7)
        for group in self.cache.groups:  # what earlier owners left
            self._scribble(group.number, list(range(pages)))

    @property
    def origin(self) -> Origin:
        return origin_of(self.executor, self.cache, self.name, WEIGHTS)

    def fill(self, tokens: list[int], on: Context | None = None) -> Context:
        """A context of these tokens, or a fork of `on` with them added; new pages hold fresh noise."""
        if on is None:
            context = self.cache.allocate(tokens)
        else:
            (context,) = self.cache.fork(on)
            self.cache.extend(context, len(tokens))
        start = 0 if on is None else on.position
        for group, table in enumerate(context.tables):
            self._scribble(group, table.array[max(table.first, start // PAGE) :].tolist())
        if on is not None:
            self.cache.commit(context, tokens)
        return context

    def run(self, context: Context, tokens: list[int]) -> np.ndarray:
        """Computes the tokens after the context's; logits of each."""
        first = context.position
        self.cache.extend(context, len(tokens))
        rows = len(tokens)
        batch = Batch(
            tokens=np.array(tokens, np.int32),
            positions=np.arange(first, first + rows, dtype=np.int32),
            sequences=np.zeros(rows, np.int32),
            tables=(context.tables[0].array,),
            outputs=np.arange(rows, dtype=np.int32),
            windows=tuple(table.array for table in context.tables[1:]),
        )
        logits = self.executor.forward(batch)
        self.cache.commit(context, tokens)
        return logits

    def pages(self, context: Context) -> list[np.ndarray]:
        """The bytes of the context's pages, by group, as far as its tokens reach."""
        found = []
        for group, table in enumerate(context.tables):
            data = self.executor.read_pages(group, table.cut(-(-context.position // PAGE)).live.tolist())
            found.append(data)
        return found

    def everything(self) -> list[bytes]:
        """Every byte of every page of every context, to see that none changed."""
        return [data.tobytes() for context in self.cache.contexts.values() for data in self.pages(context)]

    def save(self, folder: Folder, context: Context, name: str = "a", **options) -> Saved:
        label = {key: options.pop(key) for key in ("tags", "text", "state", "parent") if key in options}
        return save(folder, context, self.executor, self.origin, Label(name, **label), **options)

    def _scribble(self, group: int, pages: list[int]) -> None:
        size = self.executor.page_bytes(group)
        if size % 4 == 0 and self.executor.kv == "f32":
            noise = self._noise.standard_normal((len(pages), size // 4), np.float32).view(np.uint8)
        else:
            noise = self._noise.integers(0, 256, (len(pages), size), np.uint8)
        self.executor.write_pages(group, pages, noise)


def tokens_of(count: int, seed: int = 0) -> list[int]:
    return np.random.default_rng(seed).integers(0, 300, count).tolist()


@pytest.fixture
def machine() -> Callable[..., Machine]:
    """Makes machines; whatever a test did, their counts add up."""
    made: list[Machine] = []

    def make(*args, **options) -> Machine:
        made.append(Machine(*args, **options))
        return made[-1]

    yield make
    for one in made:
        one.cache.check_integrity()


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path / "contexts")


@pytest.fixture
def tokens() -> Callable[..., list[int]]:
    return tokens_of
