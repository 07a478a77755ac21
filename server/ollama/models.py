"""The models of the store as Ollama's clients see them: /api/tags, /api/ps, /api/copy, /api/delete."""

import contextlib
from typing import Any, ClassVar

import falcon

from llamay.errors import NotInstalled, UsageError
from llamay.serve.models import Models
from llamay.serve.stats import ModelStats
from llamay.server import bodies, replies
from llamay.server.ollama import entries, lines, named, wire
from llamay.server.site import Site
from llamay.store import ModelName, names


class Tags:
    """GET and HEAD /api/tags: every model, newest first."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        found = [(entries.modified(one), entries.entry(one)) for one in self._site.models.all()]
        found.sort(key=lambda pair: -pair[0])
        models = [{**entry, "modified_at": lines.stamp(modified)} for modified, entry in found]
        replies.json(response, {"models": models})

    on_head = on_get


class Running:
    """GET /api/ps: the models that are loaded, and under `llamay` what computes them and for how many."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        models = self._site.models
        rows = [running(models, one) for one in models.engine.stats().models]
        replies.json(response, {"models": [row for row in rows if row is not None]})


def running(models: Models, stats: ModelStats) -> dict[str, Any] | None:
    """One loaded model; None where it was given back, or removed, this moment."""
    loaded = models.loaded(stats.name)
    if loaded is None:
        return None
    try:
        entry = entries.entry(models.served(stats.name))
    except (NotInstalled, FileNotFoundError):
        return None
    size = loaded.file.size + loaded.pools.bytes
    return {
        **entry,
        "size": size,
        "size_vram": 0 if loaded.executor.name == "numpy" else size,
        "expires_at": lines.later(stats.expires),
        "context_length": loaded.context,
        "llamay": {
            "device": loaded.device,
            "kv": loaded.settings.kv,
            "requests": len({one.id for one in stats.requests if one.state != "waiting"}),
            "waiting": stats.waiting,
            "slots": stats.slots,
            "expires_seconds": stats.expires,
        },
    }


class Copy:
    """POST /api/copy: a second name for a model."""

    takes: ClassVar = {"POST": wire.Copy}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        body = bodies.read(request, wire.Copy, self._site.configuration.body)
        models = self._site.models
        source = named.served(models, named.required(body.source, "source"))
        target = names.parse(named.required(body.destination, "destination"))
        if source.installed is None:
            raise NotInstalled(f"model '{source.name}' not found in the store: it is a file; `llamay pull FILE` installs it")
        models.store.copy(source.installed, target)
        models.engine.keep(str(target), 0.0)  # what had the name before is not what has it now


class Delete:
    """DELETE /api/delete: takes a model away, and what only it used."""

    takes: ClassVar = {"DELETE": wire.Named}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_delete(self, request: falcon.Request, response: falcon.Response) -> None:
        body = bodies.read(request, wire.Named, self._site.configuration.body)
        models = self._site.models
        name = kept_as(models, named.required(body.called))
        models.store.remove(name)
        models.engine.keep(str(name), 0.0)  # its memory goes once nobody uses it


def kept_as(models: Models, name: str) -> ModelName:
    """The name under which a model of the store is kept, its manifest readable or not; NotInstalled where there is none.

    Unlike elsewhere what a model was pulled from does not stand for it: others may have come from there.
    """
    with contextlib.suppress(UsageError):
        kept = models.store.installed_anyhow(names.parse(name))
        if kept is not None:
            return kept
    raise NotInstalled(f"model {named.quoted(name)} not found in the store; nothing was deleted")
