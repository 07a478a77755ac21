"""Reranking, in the words of Jina, Cohere and TEI."""

from typing import Any, ClassVar

import falcon
import msgspec

from llamay.errors import UsageError
from llamay.serve import ranking
from llamay.server import bodies, replies
from llamay.server.embeddings import MOST_INPUTS, ranker
from llamay.server.site import Site


class Rank(msgspec.Struct):
    """POST /rerank.  `texts` are how TEI calls the documents, and how it is told from the others."""

    query: str | None = None
    documents: list[Any] | None = None
    texts: list[str] | None = None
    model: str = ""
    top_n: int | None = None
    return_documents: bool | None = None
    return_text: bool | None = None
    raw_scores: bool | None = None


class Rerank:
    """POST /rerank and its other names."""

    takes: ClassVar = {"POST": Rank}

    def __init__(self, site: Site) -> None:
        self._site = site

    def on_post(self, request: falcon.Request, response: falcon.Response) -> None:
        body = bodies.read(request, Rank, self._site.configuration.body)
        if not body.query:
            raise UsageError("query is missing or empty; a text was expected")
        if body.top_n is not None and body.top_n < 1:
            raise UsageError(f"top_n is {body.top_n}; it may be 1 or more")
        texts = documents(body)
        with ranker(self._site, request, body.model) as encoder:
            found = ranking.rank(encoder, body.query, texts)
        scores = found.logits if body.raw_scores else found.probabilities
        best = sorted(enumerate(scores), key=lambda one: (-one[1], one[0]))[: body.top_n]
        if body.texts is not None:
            replies.json(response, [_of_tei(at, score, texts, shown=bool(body.return_text)) for at, score in best])
            return
        results = [_of_jina(at, score, texts, shown=bool(body.return_documents)) for at, score in best]
        replies.json(response, _reply(encoder.model, results, found.tokens))


def documents(body: Rank) -> list[str]:
    """The texts that are to be ranked; UsageError names what is none."""
    given: list[Any] | None = body.texts if body.texts is not None else body.documents
    if not given or len(given) > MOST_INPUTS:
        raise UsageError(f"documents has {len(given or ())} elements; 1 to {MOST_INPUTS} can be ranked")
    texts: list[str] = []
    for index, one in enumerate(given):
        text = one.get("text") if isinstance(one, dict) else one
        if not isinstance(text, str):
            raise UsageError(f"documents[{index}] is {bodies.kind(one)}; a text, or an object with one, was expected")
        texts.append(text)
    return texts


def _reply(model: str, results: list[dict[str, Any]], tokens: int) -> dict[str, Any]:
    """What clients of Jina and those of Cohere look for, side by side."""
    return {
        "id": replies.made("rerank-"),
        "object": "list",
        "model": model,
        "results": results,
        "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
        "meta": {
            "api_version": {"version": "2"},
            "billed_units": {"search_units": 1},
            "tokens": {"input_tokens": tokens},
        },
    }


def _of_jina(at: int, score: float, texts: list[str], *, shown: bool) -> dict[str, Any]:
    document = {"document": {"text": texts[at]}} if shown else {}
    return {"index": at, "relevance_score": score, **document}


def _of_tei(at: int, score: float, texts: list[str], *, shown: bool) -> dict[str, Any]:
    return {"index": at, "score": score, **({"text": texts[at]} if shown else {})}
