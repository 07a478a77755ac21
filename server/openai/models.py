"""GET /v1/models: what can be asked for, in one shape for the clients of OpenAI and of Anthropic."""

import datetime
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import falcon

from llamay import arch, gguf
from llamay.errors import LlamayError
from llamay.serve.models import Served
from llamay.server import replies
from llamay.server.site import Site

OWNER = "llamay"
DESCRIBED = 256  # files whose metadata are remembered
KINDS = {"llama": 1, "gpt2": 2}  # tokenizer.ggml.model -> llama.cpp's number for the kind of vocabulary


class Described:
    """The headers of model files, read once for each state of a file.  Any thread may use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: OrderedDict[tuple[Path, int, int], dict[str, Any] | None] = OrderedDict()

    def meta(self, path: Path) -> dict[str, Any] | None:
        """What llama.cpp tells of a model; None for a file that cannot be run.  No tokenizer is parsed for it."""
        try:
            state = path.stat()
        except OSError:
            return None
        key = (path, state.st_size, state.st_mtime_ns)
        with self._lock:
            if key in self._found:
                return self._found[key]
        try:
            made: dict[str, Any] | None = described(path)
        except LlamayError:  # it is listed all the same; who asks for an answer is told what is wrong
            made = None
        with self._lock:
            self._found[key] = made
            while len(self._found) > DESCRIBED:
                self._found.popitem(last=False)
        return made


def described(path: Path) -> dict[str, Any]:
    """What llama.cpp tells of a model file."""
    with gguf.open(path) as file:
        config = arch.describe(file)
        model = file.metadata.get("tokenizer.ggml.model")
        sizes = [tensor.shape for tensor in file.tensors.values()]
        return {
            "vocab_type": KINDS.get(model, 0) if isinstance(model, str) else 0,
            "n_vocab": config.vocabulary,
            "n_ctx_train": config.context,
            "n_embd": config.hidden,
            "n_params": sum(_product(shape) for shape in sizes),
            "size": file.size,
        }


class ListModels:
    """GET /v1/models."""

    def __init__(self, site: Site, described: Described) -> None:
        self._site, self._described = site, described

    def on_get(self, request: falcon.Request, response: falcon.Response) -> None:
        found = [told(self._site, self._described, one) for one in self._site.models.all()]
        ends = {"first_id": found[0]["id"], "last_id": found[-1]["id"]} if found else {"first_id": None, "last_id": None}
        replies.json(response, {"object": "list", "data": found, "has_more": False, **ends})


class OneModel:
    """GET /v1/models/{id}, whose id may hold slashes and colons."""

    def __init__(self, site: Site, described: Described) -> None:
        self._site, self._described = site, described

    def on_get(self, request: falcon.Request, response: falcon.Response, id: str) -> None:
        replies.json(response, told(self._site, self._described, self._site.models.served(id)))


def told(site: Site, described: Described, served: Served) -> dict[str, Any]:
    """One model."""
    created = site.started if served.installed is None else served.installed.modified
    when = datetime.datetime.fromtimestamp(created, datetime.UTC).isoformat(timespec="seconds")
    loaded = site.models.loaded(served.name)
    status = {"value": _state(site, served.name)}
    meta = described.meta(served.path)
    if meta is not None and loaded is not None:
        meta = {**meta, "n_ctx": loaded.context}
    return {
        "id": served.name,
        "object": "model",
        "type": "model",
        "created": int(created),
        "created_at": when.replace("+00:00", "Z"),
        "owned_by": OWNER,
        "display_name": served.name,
        "loaded": loaded is not None,
        "status": status,
        "meta": meta,
    }


def _state(site: Site, name: str) -> str:
    if site.models.loaded(name) is not None:
        return "loaded"
    return "loading" if name in site.models.engine.stats().loading else "unloaded"


def _product(shape: tuple[int, ...]) -> int:
    found = 1
    for length in shape:
        found *= length
    return found
