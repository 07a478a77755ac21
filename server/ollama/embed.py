"""POST /api/embed and /api/embeddings."""

import time
from typing import Any, ClassVar

import falcon

from llamay.errors import UsageError
from llamay.server import bodies, embeddings, replies
from llamay.server.embeddings import MOST_INPUTS
from llamay.server.ollama import named, wire
from llamay.server.site import Site


class Embed:
    """Vectors of one text or several, each of length one."""

    takes: ClassVar = {"POST": wire.Embed}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        start = time.perf_counter()
        body = bodies.read(request, wire.Embed, self._site.configuration.body)
        if body.dimensions is not None and body.dimensions < 1:
            raise UsageError(f"dimensions is {body.dimensions}; it may be 1 or more")
        texts = _texts(body)
        name = _named(self._site, body)
        with embeddings.embedder(self._site, request, name) as encoder:
            loaded = time.perf_counter()
            found = encoder.embed(texts, dimensions=body.dimensions, truncate=body.truncate is not False)
        _keep(self._site, encoder.model, body)
        replies.json(
            response,
            {
                "model": body.called or encoder.model,
                "embeddings": found.rows.tolist(),
                "total_duration": int((time.perf_counter() - start) * 1e9),
                "load_duration": int((loaded - start) * 1e9),
                "prompt_eval_count": found.tokens,
            },
        )


class OldEmbed:
    """The vector of one text, as the model gives it."""

    takes: ClassVar = {"POST": wire.Embed}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        body = bodies.read(request, wire.Embed, self._site.configuration.body)
        text = body.prompt if body.prompt is not None else body.input
        if not isinstance(text, str):
            raise UsageError("prompt is missing; a text was expected")
        with embeddings.embedder(self._site, request, _named(self._site, body)) as encoder:
            rows = encoder.embed([text] if text else [], normalised=False, truncate=True).rows
        _keep(self._site, encoder.model, body)
        replies.json(response, {"embedding": rows[0].tolist() if len(rows) else []})


def _texts(body: wire.Embed) -> list[Any]:
    given = body.prompt if body.input is None else body.input
    if given is None:
        raise UsageError("input is missing; a text or an array of texts was expected")
    texts = given if isinstance(given, list) else [given] if given else []
    if len(texts) > MOST_INPUTS:
        raise UsageError(f"input has {len(texts)} elements; up to {MOST_INPUTS} can be embedded")
    return texts


def _named(site: Site, body: wire.Embed) -> str:
    """The name of an installed model, empty where none is named; raises Ollama's 404."""
    if body.keep_alive is not None:
        wire.kept(body.keep_alive)
    asked = body.called or site.configuration.embed
    return named.served(site.models, asked).name if asked else ""


def _keep(site: Site, model: str, body: wire.Embed) -> None:
    if body.keep_alive is not None:
        site.models.engine.keep(model, wire.kept(body.keep_alive))
