"""Embeddings and reranking on the wire, as each family's clients know them, with OpenAI's and Ollama's own clients."""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from llamay.server.embeddings import MOST_INPUTS

ENCODERS = Path(__file__).parents[1] / "data" / "encoders"
TEXTS = ["a sentence", "Another one!"]


@pytest.fixture(scope="module")
def mean(host: Any) -> Iterator[Any]:
    with host(model=ENCODERS / "bert-mean.f16.gguf") as found:
        yield found


@pytest.fixture(scope="module")
def judge(host: Any) -> Iterator[Any]:
    with host(model=ENCODERS / "bert-rerank.f16.gguf") as found:
        yield found


def post(running: Any, path: str, body: dict[str, Any]) -> httpx.Response:
    with running.client() as client:
        return client.post(path, json=body)


def test_openais_client(mean: Any, openai: Any) -> None:
    """It asks for base64 and decodes that; floats are the same numbers."""
    client = openai.OpenAI(base_url=f"{mean.url}/v1", api_key="none", max_retries=0)
    found = client.embeddings.create(model=mean.model, input=TEXTS)
    assert [one.index for one in found.data] == [0, 1] and found.model == mean.model
    rows = np.array([one.embedding for one in found.data])
    assert rows.shape == (2, 64) and np.linalg.norm(rows, axis=1) == pytest.approx(1)
    floats = client.embeddings.create(model=mean.model, input=TEXTS[1], encoding_format="float", dimensions=8)
    assert floats.data[0].embedding == pytest.approx(rows[1, :8] / np.linalg.norm(rows[1, :8]), abs=1e-6)
    assert found.usage.prompt_tokens == found.usage.total_tokens > floats.usage.prompt_tokens > 0


def test_openais_shape(mean: Any) -> None:
    found = post(mean, "/v1/embeddings", {"input": TEXTS, "encoding_format": "base64"}).json()
    assert found["object"] == "list" and found["data"][0]["object"] == "embedding"
    packed = np.frombuffer(base64.b64decode(found["data"][1]["embedding"]), "<f4")
    plain = post(mean, "/embeddings", {"input": TEXTS[1]}).json()["data"][0]["embedding"]
    assert np.array_equal(packed, np.array(plain, np.float32))
    ids = mean.site.models.language(mean.site.models.default).tokenizer.encode(TEXTS[1], add_special=True)
    for given in (ids, [ids]):
        assert post(mean, "/v1/embeddings", {"input": given}).json()["data"][0]["embedding"] == plain


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"input": "a", "dimensions": 65}, "1 to 64"),
        ({"input": "word " * 300}, "context 128"),
        ({"input": [[999]]}, "token id 999"),
        ({"input": ["a"] * (MOST_INPUTS + 1)}, f"1 to {MOST_INPUTS}"),
    ],
)
def test_what_cannot_be_embedded(mean: Any, body: dict[str, Any], words: str) -> None:
    reply = post(mean, "/v1/embeddings", body)
    assert reply.status_code == 400 and words in reply.json()["error"]["message"]


def test_ollamas_client(mean: Any, ollama: Any) -> None:
    client = ollama.Client(host=mean.url)
    found = client.embed(mean.model, TEXTS)
    rows = np.array(found.embeddings)
    assert rows.shape == (2, 64) and np.linalg.norm(rows, axis=1) == pytest.approx(1) and found.prompt_eval_count
    assert np.array(client.embed(mean.model, TEXTS[0], dimensions=4).embeddings).shape == (1, 4)
    assert len(client.embed(mean.model, "word " * 300).embeddings) == 1, "it is cut"
    with pytest.raises(ollama.ResponseError, match="context 128") as long:
        client.embed(mean.model, "word " * 300, truncate=False)
    assert long.value.status_code == 400
    old = np.array(client.embeddings(mean.model, TEXTS[0]).embedding)
    assert np.linalg.norm(old) > 1.5 and old / np.linalg.norm(old) == pytest.approx(rows[0], abs=1e-6)


def test_ollamas_empty_texts_and_keep_alive(mean: Any) -> None:
    assert post(mean, "/api/embed", {"model": mean.model, "input": ""}).json()["embeddings"] == []
    assert post(mean, "/api/embed", {"model": mean.model, "input": []}).json()["embeddings"] == []
    assert post(mean, "/api/embeddings", {"model": mean.model, "prompt": ""}).json() == {"embedding": []}
    found = post(mean, "/api/embed", {"input": "a", "keep_alive": 0, "options": {"num_ctx": None}}).json()
    assert found["model"] == mean.model and len(found["embeddings"]) == 1
    mean.site.models.engine.visit(lambda scheduler: None)
    assert post(mean, "/api/embed", {"model": mean.model, "input": "a", "keep_alive": "x"}).status_code == 400


def test_an_encoder_answers_no_prompt(mean: Any) -> None:
    assert post(mean, "/api/show", {"model": mean.model}).json()["capabilities"] == ["embedding"]
    reply = post(mean, "/v1/completions", {"prompt": "a", "max_tokens": 2})
    assert reply.status_code == 400 and "turns texts into vectors" in reply.json()["error"]["message"]
    body = {"query": "q", "documents": ["a"]}
    named = post(mean, "/v1/rerank", {**body, "model": mean.model})
    assert named.status_code == 501 and f"{mean.model} is no encoder" in named.json()["error"]["message"]
    unnamed = post(mean, "/v1/rerank", body)  # the one that is there was not asked for
    assert unnamed.status_code == 501 and unnamed.json()["error"]["message"].startswith("no model that ranks documents is installed")


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank", "/reranking", "/v1/reranking"])
def test_reranking(judge: Any, path: str) -> None:
    documents = ["one", {"text": "two and more"}, "three"]
    found = post(judge, path, {"query": "which", "documents": documents, "return_documents": True}).json()
    scores = [one["relevance_score"] for one in found["results"]]
    assert scores == sorted(scores, reverse=True) and all(0 < score < 1 for score in scores)
    assert sorted(one["index"] for one in found["results"]) == [0, 1, 2]
    assert all(one["document"]["text"] in ("one", "two and more", "three") for one in found["results"])
    assert found["model"] == judge.model and found["usage"]["total_tokens"] == found["meta"]["tokens"]["input_tokens"] > 0


def test_the_best_and_raw_scores(judge: Any) -> None:
    body = {"query": "which", "documents": ["one", "two", "three"]}
    whole = post(judge, "/v1/rerank", body).json()["results"]
    assert post(judge, "/v1/rerank", {**body, "top_n": 2}).json()["results"] == whole[:2] and "document" not in whole[0]
    raw = post(judge, "/v1/rerank", {**body, "raw_scores": True}).json()["results"]
    assert 1 / (1 + np.exp(-raw[0]["relevance_score"])) == pytest.approx(whole[0]["relevance_score"])
    texts = post(judge, "/rerank", {"query": "which", "texts": body["documents"], "return_text": True}).json()
    assert [(one["index"], one["score"]) for one in texts] == [(one["index"], one["relevance_score"]) for one in whole]
    assert all(one["text"] == body["documents"][one["index"]] for one in texts)
    assert post(judge, "/v1/rerank", {**body, "top_n": 0}).status_code == 400


def test_what_is_under_way_ends_with_the_server(judge: Any) -> None:
    judge.site.cut.set()
    try:
        assert post(judge, "/v1/rerank", {"query": "q", "documents": ["a"]}).status_code == 503
    finally:
        judge.site.cut.clear()


def test_a_model_that_ranks_does_not_embed(judge: Any) -> None:
    reply = post(judge, "/v1/embeddings", {"input": "a", "model": judge.model})
    assert reply.status_code == 501 and "ranks documents" in reply.json()["error"]["message"]
    reply = post(judge, "/v1/embeddings", {"input": "a"})
    assert reply.status_code == 501 and reply.json()["error"]["message"].startswith("no model that embeds is installed")
