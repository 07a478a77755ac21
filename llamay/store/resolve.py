"""Resolving: what a person calls a model becomes the path of its GGUF file."""

import difflib
import os
import shlex
from pathlib import Path

from llamay.errors import LlamayError, NotInstalled, UsageError
from llamay.store import names, sources
from llamay.store.library import Installed, Store
from llamay.store.names import ModelName


def resolve(store: Store, text: str) -> Path:
    """The GGUF file called `text`: a file that exists always wins, then an installed model.

    A model answers to its name, case apart, and to the source it was pulled from.  Raises
    NotInstalled with the `llamay pull` line that would get it; UsageError when nothing could.
    """
    path = os.path.expanduser(text)
    if text and os.path.isfile(path):  # false, too, for what no system takes as a path
        return Path(path)
    return store.file(find(store, text))


def find(store: Store, text: str) -> Installed:
    """The installed model called `text`; raises as `resolve` does."""
    name_error: UsageError | None = None
    try:
        model = store.installed(names.parse(text))
        if model is not None:
            return model
    except UsageError as error:
        name_error = error
    models = store.survey().models
    for model in models:
        if text in (model.source, _unversioned(model.source)):
            return model
    if os.path.isdir(os.path.expanduser(text)):
        raise NotInstalled(f"{text} is a folder and no installed model; name a .gguf file in it")
    if sources.looks_like_path(text):
        there = os.path.exists(os.path.expanduser(text))
        raise NotInstalled(f"{text} is not a regular file; name a .gguf file" if there else f"there is no file {text}")
    try:
        sources.parse(text)
    except LlamayError as error:
        raise NotInstalled(str(name_error or error)) from None
    raise NotInstalled(_advice(text, models))


def kept_as(store: Store, text: str) -> ModelName:
    """The name under which the model called `text` is kept, its manifest readable or not.

    Raises NotInstalled naming what there is.
    """
    try:
        name = store.installed_anyhow(names.parse(text))
    except UsageError:
        name = None
    if name is not None:
        return name
    try:
        return find(store, text).name
    except NotInstalled:
        there = ", ".join(model.name.typed() for model in store.survey().models)
        raise NotInstalled(f"{text} is not installed; installed: {there or 'nothing'}") from None


def _unversioned(source: str) -> str:
    return source.partition("==")[0] if source.startswith("pypi:") else source


def _advice(text: str, models: list[Installed]) -> str:
    line = f"{text} is not installed; where there is such a model, this gets it:\n  llamay pull {shlex.quote(text)}"
    typed = [model.name.typed() for model in models]
    near = difflib.get_close_matches(text, typed, n=3, cutoff=0.5)
    near += [name for name in typed if name not in near and name.partition(":")[0] == text.partition(":")[0]]
    if near:
        return f"{line}\ninstalled and near: {', '.join(near[:5])}"
    return f"{line}\ninstalled: {', '.join(typed[:5])}" if typed else line
