"""The model of who names none: the newest installed that does what is asked."""

import functools
from pathlib import Path
from typing import Literal

from llamay import arch, gguf
from llamay.errors import LlamayError, StoreError
from llamay.settings import Settings
from llamay.store import Installed, Store, named

Does = Literal["answers", "embeds", "ranks"]


def path(name: str, settings: Settings, does: Does = "answers") -> Path:
    """The file of `name`, or of the usual model where it is empty; raises NotInstalled where there is none."""
    if name or settings.model:
        return named.path(name, settings)
    store = Store(settings.models)
    found = newest(store, does)
    return named.path(name, settings) if found is None else store.file(found)


def newest(store: Store, does: Does) -> Installed | None:
    """The newest installed model that does it, as its header tells; None where none does."""
    for model in store.survey().models:
        try:
            if does_of(store.file(model)) == does:
                return model
        except (StoreError, OSError):
            continue  # a blob is missing: it cannot be asked for
    return None


def does_of(path: Path) -> Does:
    """What a file is for; read once while it does not change.  OSError where it is not there."""
    found = path.stat()
    return _does(path, found.st_size, found.st_mtime_ns)


@functools.lru_cache(maxsize=256)
def _does(path: Path, size: int, modified: int) -> Does:
    """What a file does; one that cannot be run counts with those that answer, and says why when it is loaded."""
    try:
        with gguf.open(path) as file:
            config = arch.describe(file)
    except LlamayError:
        return "answers"
    return "ranks" if config.pooling and config.ranks else "embeds" if config.pooling else "answers"
