"""The models a person may name, for commands and for completion."""

from pathlib import Path

from llamay.settings import Settings


def path(name: str, settings: Settings) -> Path:
    """The file of `name`, or of the default model; see `llamay.store.named`."""
    from llamay.store import named

    return named.path(name, settings)


def names(settings: Settings) -> list[str]:
    """The installed models' names as a person types them, newest first."""
    from llamay.store import Store

    return [model.name.typed() for model in Store(settings.models).survey().models]
