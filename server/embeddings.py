"""Embeddings: OpenAI's route, and the place where every family gets its encoder."""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import falcon
import msgspec

from llamay.errors import Closed, UsageError
from llamay.serve import ranking
from llamay.serve.encoding import Encoder, Text, Vectors
from llamay.server import bodies, replies
from llamay.server.refusals import Unoffered
from llamay.server.site import Site
from llamay.server.turn import Gone

MOST_INPUTS = 2048  # of one request


class Embed(msgspec.Struct):
    """POST /v1/embeddings."""

    input: str | list[Any] | None = None
    model: str = ""
    encoding_format: str | None = None
    dimensions: int | None = None
    user: str | None = None


class Embeddings:
    """POST /v1/embeddings."""

    takes: ClassVar = {"POST": Embed}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        body = bodies.read(request, Embed, self._site.configuration.body)
        texts = inputs(body.input, "input")
        if body.encoding_format not in (None, "float", "base64"):
            raise UsageError(f"encoding_format is {body.encoding_format!r:.60}; expected float or base64")
        if body.dimensions is not None and body.dimensions < 1:
            raise UsageError(f"dimensions is {body.dimensions}; it may be 1 or more")
        with embedder(self._site, request, body.model) as encoder:
            found = encoder.embed(texts, dimensions=body.dimensions)
        rows = based(found) if body.encoding_format == "base64" else found.rows.tolist()
        data = [{"object": "embedding", "index": at, "embedding": row} for at, row in enumerate(rows)]
        usage = {"prompt_tokens": found.tokens, "total_tokens": found.tokens}
        replies.json(response, {"object": "list", "data": data, "model": encoder.model, "usage": usage})


def based(found: Vectors) -> list[str]:
    """Each vector as base64 of its float32s, the least significant byte first."""
    return [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in found.rows]


def inputs(given: str | list[Any] | None, where: str) -> list[Text]:
    """What is to be embedded: a text, token ids, or several of either; UsageError names what is none."""
    if isinstance(given, list) and given and all(_is_id(one) for one in given):
        return [given]
    found = [given] if isinstance(given, str) else given
    if not found or len(found) > MOST_INPUTS:
        raise UsageError(f"{where} has {len(found or ())} elements; 1 to {MOST_INPUTS} can be embedded")
    for index, one in enumerate(found):
        if not isinstance(one, str) and not (isinstance(one, list) and one and all(_is_id(id) for id in one)):
            raise UsageError(f"{where}[{index}] is {bodies.kind(one)}; a text or an array of token ids was expected")
    return found


@contextmanager
def embedder(site: Site, request: falcon.Request, name: str) -> Iterator[Encoder]:
    """The encoder of a model that embeds, the usual one where none is named, with a place of the site's while it works.

    Raises NotInstalled, and Unoffered for a model that does not embed.
    """
    named = name or site.configuration.embed
    served = site.models.served(named) if named else site.models.usual("embeds")
    config = site.models.language(served).config
    if not config.pooling or config.ranks:
        if not named:
            raise _none("embeds", "embed")
        does = "ranks documents" if config.ranks else "generates text"
        raise Unoffered(f"{served.name} {does} and is no encoder that embeds; name a model that is")
    with _working(site, request, served.name) as encoder:
        yield encoder


@contextmanager
def ranker(site: Site, request: falcon.Request, name: str) -> Iterator[Encoder]:
    """As `embedder`, for a model that ranks."""
    named = name or site.configuration.rerank
    served = site.models.served(named) if named else site.models.usual("ranks")
    if not ranking.judges(site.models.language(served)):
        if not named:
            raise _none("ranks documents", "rerank")
        raise Unoffered(f"{served.name} is no encoder or decoder that was made to rank; name a model that was")
    with _working(site, request, served.name) as encoder:
        yield encoder


def _none(does: str, flag: str) -> Unoffered:
    """What who names no model is told where none does it: nobody asked the model that answers."""
    return Unoffered(
        f"no model that {does} is installed, and the request names none; `llamay pull MODEL` gets one "
        f"(docs/encoders.md names some), and serving with -{flag} MODEL makes it the usual one"
    )


@contextmanager
def _working(site: Site, request: falcon.Request, name: str) -> Iterator[Encoder]:
    gone = replies.gone(request)

    def check() -> None:
        if gone():
            raise Gone("the client went away")
        if site.cut.is_set():
            raise Closed("the server was closed before all texts were computed; try again later")

    site.enter()
    try:
        yield Encoder(site.models.load(site.models.served(name)), site.models.engine, name, check=check)
    finally:
        site.leave()


def _is_id(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
