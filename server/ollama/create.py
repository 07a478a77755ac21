"""POST /api/create: a model of the store from another, or from files that were brought, with a recipe of its own."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import falcon

from llamay import gguf
from llamay.errors import LlamayError, NotInstalled, UsageError
from llamay.serve.models import Models, Served, told_as
from llamay.server import bodies, failures, replies
from llamay.server.ollama import lines, named, wire
from llamay.server.ollama.blobs import checked as digest_of
from llamay.server.ollama.chat import message_of
from llamay.server.ollama.options import checked
from llamay.server.ollama.recipe import Recipe
from llamay.server.refusals import Unbuilt
from llamay.server.site import Site
from llamay.store import ModelName, Store, digests, manifest, names
from llamay.store.claims import Claim
from llamay.store.manifest import CONFIG_TYPE, LAYER_PREFIX, MODEL_TYPE, SOURCE, TITLE, Layer, Manifest
from llamay.store.pull import CONFIG

MOST_FILES = 64


class Create:
    """Makes a model; what is wrong with the request is found before anything is written."""

    takes: ClassVar = {"POST": wire.Create}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        body = bodies.read(request, wire.Create, self._site.configuration.body)
        _check(body)
        target = names.parse(named.required(body.called))
        models = self._site.models
        base = named.served(models, body.from_) if body.from_ else None
        files = _files(models.store, body.files or {})
        before = Recipe.of(models.store, None if base is None else base.installed)
        steps = made(models, target, base, files, _recipe(body, before))
        if body.streamed:
            replies.stream(response, told(steps), lines.TYPE)
        else:
            for _ in steps:
                pass
            replies.json(response, {"status": "success"})


def told(steps: Iterator[dict[str, Any]]) -> Iterator[bytes]:
    """The steps in lines; a failure is a line, and the end."""
    try:
        for step in steps:
            yield lines.line(step)
    except LlamayError as error:
        yield lines.line(failures.of(error, "ollama").body)


def made(
    models: Models, target: ModelName, base: Served | None, files: list[Layer], recipe: dict[str, bytes]
) -> Iterator[dict[str, Any]]:
    """Makes the model step by step; the manifest is written last."""
    store = models.store
    with store.claim() as claim:
        layers = files if base is None else _base(base)
        source = next((layer.digest for layer in layers if layer.kind == "model"), "")  # no `pull` brings it again
        for layer in layers:
            store.protect(claim, layer.digest)
            store.blob(layer)  # it may have gone before it was claimed
            if layer.kind == "model":
                yield {"status": f"using existing layer {layer.digest}"}
        layers = [layer for layer in layers if layer.kind not in recipe]
        for kind, data in recipe.items():
            if data:
                layers.append(_put(store, claim, data, f"{LAYER_PREFIX}{kind}"))
                yield {"status": f"creating new layer {layers[-1].digest}"}
        if recipe.get("template"):
            yield {"status": "the template is kept and shown; answers go through the chat template in the model's file"}
        yield {"status": "writing manifest"}
        config = _put(store, claim, CONFIG, CONFIG_TYPE)
        store.put_manifest(target, manifest.encode(Manifest(config, tuple(layers), {SOURCE: source})), claim)
        models.engine.keep(str(target), 0.0)  # what had the name before is not what has it now
    yield {"status": "success"}


def _base(base: Served) -> list[Layer]:
    """The layers of the model that it is made from."""
    if base.installed is None:
        raise NotInstalled(f"model '{base.name}' not found in the store: it is a file; `llamay pull FILE` installs it")
    return list(base.installed.manifest.layers)


def _put(store: Store, claim: Claim, data: bytes, media_type: str) -> Layer:
    store.protect(claim, digests.of_bytes(data))
    return replace(store.put_bytes(data), media_type=media_type)


def _check(body: wire.Create) -> None:
    if body.quantize:
        raise Unbuilt("quantize is not supported: create the model from a file that is quantised already")
    if body.adapters:
        raise Unbuilt("adapters are not supported yet")
    if bool(body.from_) == bool(body.files):
        raise UsageError("a model is created either from another (`from`) or from `files`: give one of the two")


def _files(store: Store, files: dict[str, str]) -> list[Layer]:
    """The layers of files that were brought, in the order of their names; each is read as far as its tensors' table."""
    if len(files) > MOST_FILES:
        raise UsageError(f"files has {len(files)} entries; at most {MOST_FILES} make a model")
    found = []
    for title, digest in sorted(files.items()):
        path = digests.blob_path(store.blobs, digest_of(digest))
        if not path.is_file():
            raise UsageError(f"the blob {digest} is not here; POST /api/blobs/{digest} brings it")
        if len(files) == 1:
            with told_as(path, title[:200]):
                gguf.open(path).close()  # raises what is wrong with it
        found.append(Layer(MODEL_TYPE, digest_of(digest), path.stat().st_size, {TITLE: title[:200]}))
    return found


def _recipe(body: wire.Create, before: Recipe) -> dict[str, bytes]:
    """Small layers by their kind; an empty one takes that of the base away."""
    found: dict[str, bytes] = {}
    for kind, text in (("template", body.template), ("system", body.system)):
        if text is not None:
            found[kind] = text.encode()
    if body.license is not None:
        found["license"] = (body.license if isinstance(body.license, str) else "\n\n".join(body.license)).encode()
    if body.parameters is not None:
        parameters = before.parameters | checked(body.parameters)
        found["params"] = json.dumps(parameters).encode() if parameters else b""
    if body.messages is not None:
        messages = [message_of(index, message) for index, message in enumerate(body.messages)]
        found["messages"] = json.dumps(messages).encode() if messages else b""
    return found
