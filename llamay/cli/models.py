"""The models a person may name, for commands and for completion."""

from pathlib import Path
from typing import TYPE_CHECKING

from llamay.settings import Settings

if TYPE_CHECKING:
    from llamay.serve.loading.usual import Does


def path(name: str, settings: Settings, does: "Does" = "answers") -> Path:
    """The file of `name`, or of the usual model for what is asked; see `llamay.serve.loading.usual`."""
    from llamay.serve.loading import usual

    return usual.path(name, settings, does)


def names(settings: Settings) -> list[str]:
    """The installed models' names as a person types them, newest first."""
    from llamay.store import Store

    return [model.name.typed() for model in Store(settings.models).survey().models]
