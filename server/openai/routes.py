"""The routes of OpenAI's API and of llama.cpp's, most of them with and without /v1."""

from typing import Any

from llamay.server.embeddings import Embeddings
from llamay.server.llamacpp import ApplyTemplate, Detokenize, Props, SavedSlot, Slots, Tokenize
from llamay.server.native import NativeCompletion, NativeInfill
from llamay.server.openai.chat import ChatCompletions, ChatTokens
from llamay.server.openai.completions import Completions
from llamay.server.openai.kept import Kept
from llamay.server.openai.models import Described, ListModels, OneModel
from llamay.server.openai.responses import InputItems, OneResponse, Responses, ResponseTokens
from llamay.server.rerank import Rerank
from llamay.server.site import Site

RERANK = ("/rerank", "/v1/rerank", "/v2/rerank", "/reranking", "/v1/reranking")


def routes(site: Site) -> dict[str, Any]:
    """Path -> resource."""
    kept, described = Kept(), Described()
    rerank = Rerank(site)
    both: dict[str, Any] = {
        "/chat/completions": ChatCompletions(site),
        "/chat/completions/input_tokens": ChatTokens(site),
        "/completions": Completions(site),
        "/responses": Responses(site, kept),
        "/responses/input_tokens": ResponseTokens(site, kept),
        "/responses/{id}": OneResponse(site, kept),
        "/responses/{id}/input_items": InputItems(kept),
        "/embeddings": Embeddings(site),
        "/models": ListModels(site, described),
        "/models/{id:path}": OneModel(site, described),
    }
    return {
        **{f"/v1{path}": resource for path, resource in both.items()},
        **both,
        **dict.fromkeys(RERANK, rerank),
        "/completion": NativeCompletion(site),
        "/infill": NativeInfill(site),
        "/tokenize": Tokenize(site),
        "/detokenize": Detokenize(site),
        "/apply-template": ApplyTemplate(site),
        "/props": Props(site),
        "/slots": Slots(site),
        "/slots/{id}": SavedSlot(),
    }
