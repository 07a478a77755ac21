"""/v1/models, llama.cpp's small routes, and the routes of encoders that are not there yet."""

from pathlib import Path

import httpx
import pytest

from llamay.store import Store, names
from llamay.store.pull import pull

TINY = Path(__file__).parents[1] / "data" / "models" / "llama-gqa.f16.gguf"


def test_the_list_suits_the_clients_of_openai_and_of_anthropic(client: httpx.Client, tiny) -> None:
    tiny.site.models.load(tiny.site.models.default)
    found = client.get("/v1/models").json()
    assert found["object"] == "list" and found["has_more"] is False
    (one,) = [one for one in found["data"] if one["id"] == tiny.model]
    assert found["first_id"] == found["data"][0]["id"] and found["last_id"] == found["data"][-1]["id"]
    assert (one["object"], one["type"], one["owned_by"], one["display_name"]) == ("model", "model", "llamay", tiny.model)
    assert isinstance(one["created"], int) and one["created_at"].endswith("Z")
    assert (one["loaded"], one["status"]) == (True, {"value": "loaded"})
    assert set(one["meta"]) == {"vocab_type", "n_vocab", "n_ctx_train", "n_embd", "n_params", "size", "n_ctx"}
    assert one["meta"]["n_params"] > one["meta"]["n_vocab"] * one["meta"]["n_embd"]
    assert client.get("/models").json() == found
    assert client.get(f"/v1/models/{tiny.model}").json() == one == client.get(f"/models/{tiny.model}").json()


def test_a_list_reads_no_vocabulary(serving, monkeypatch: pytest.MonkeyPatch) -> None:
    from llamay.serve.loading.language import Language

    def read(path: object) -> None:
        raise AssertionError("a vocabulary was read")

    server = serving()
    monkeypatch.setattr(Language, "read", read)
    with server.client() as client:
        (one,) = client.get("/v1/models").json()["data"]
    assert (one["loaded"], one["status"]) == (False, {"value": "unloaded"}) and one["meta"]["n_vocab"] > 0


@pytest.mark.parametrize("id", ["nothing", "hf.co/a/b:Q4_0", "../../../etc/passwd", "a/../../b"])
def test_an_unknown_model(client: httpx.Client, id: str) -> None:
    reply = client.get(f"/v1/models/{id}") if ".." not in id else client.get("/v1/models/" + id.replace("/", "%2F"))
    assert reply.status_code == 404, reply.text
    error = reply.json()["error"]
    assert error["code"] == "model_not_found" and repr(id) in error["message"]


def test_text_to_tokens_and_back(client: httpx.Client) -> None:
    text = "Grüße, 世界! 🌊"
    ids = client.post("/tokenize", json={"content": text}).json()["tokens"]
    assert client.post("/detokenize", json={"tokens": ids}).json() == {"content": text}
    pieces = client.post("/tokenize", json={"content": text, "with_pieces": True}).json()["tokens"]
    assert [one["id"] for one in pieces] == ids
    raw = b"".join(one["piece"].encode() if isinstance(one["piece"], str) else bytes(one["piece"]) for one in pieces)
    assert raw.decode().removeprefix(" ") == text  # SentencePiece puts a space before a text
    begun = client.post("/tokenize", json={"content": text, "add_special": True}).json()["tokens"]
    assert begun[-len(ids) :] == ids
    reply = client.post("/detokenize", json={"tokens": [10**6]})
    assert reply.status_code == 400 and "does not exist" in reply.json()["error"]["message"]


def test_a_template_is_applied(client: httpx.Client) -> None:
    prompt = client.post("/apply-template", json={"messages": [{"role": "user", "content": "hello"}]}).json()["prompt"]
    assert "hello" in prompt
    counted = client.post("/tokenize", json={"content": prompt, "add_special": True}).json()["tokens"]
    body = {"messages": [{"role": "user", "content": "hello"}]}
    assert client.post("/v1/chat/completions/input_tokens", json=body).json()["input_tokens"] == len(counted)


def test_props(client: httpx.Client, tiny) -> None:
    found = client.get("/props").json()
    assert found["model_alias"] == tiny.model and "/" not in found["model_path"]
    assert found["default_generation_settings"]["n_ctx"] > 0 and found["total_slots"] == tiny.site.configuration.batch
    assert found["build_info"].startswith("llamay-") and found["chat_template"]
    assert client.get("/props", params={"model": "none"}).status_code == 404


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"input": "a"}),
        ("/v1/embeddings", {"input": ["a", "b"], "encoding_format": "base64"}),
        ("/v1/embeddings", {"input": [1, 2], "dimensions": 64}),
        ("/embeddings", {"input": [[1], [2, 3]]}),
        *[
            (path, body)
            for path in ("/rerank", "/v1/rerank", "/v2/rerank", "/reranking", "/v1/reranking")
            for body in ({"query": "q", "documents": ["a", {"text": "b"}]}, {"query": "q", "texts": ["a"]})
        ],
    ],
)
def test_encoders_are_refused_by_name(client: httpx.Client, tiny, path: str, body: dict) -> None:
    """The model that answers is, where it was asked for; else it is told that none is there that does this."""
    for model, words in ((tiny.model, f"{tiny.model} "), ("", "no model that ")):
        reply = client.post(path, json={**body, "model": model})
        assert reply.status_code == 501
        assert reply.headers["x-should-retry"] == "false"
        error = reply.json()["error"]
        assert error["type"] == "not_supported_error" and error["message"].startswith(words)


@pytest.mark.parametrize(
    ("path", "body", "words"),
    [
        ("/v1/embeddings", {}, "input"),
        ("/v1/embeddings", {"input": []}, "input"),
        ("/v1/embeddings", {"input": [1, "a"]}, "input[0]"),
        ("/v1/embeddings", {"input": "a", "encoding_format": "hex"}, "encoding_format"),
        ("/v1/embeddings", {"input": "a", "dimensions": 0}, "dimensions"),
        ("/v1/rerank", {"documents": ["a"]}, "query"),
        ("/v1/rerank", {"query": "q", "documents": []}, "documents"),
        ("/v1/rerank", {"query": "q", "documents": [1]}, "documents[0]"),
    ],
)
def test_bodies_of_encoders_are_checked_first(client: httpx.Client, path: str, body: dict, words: str) -> None:
    reply = client.post(path, json=body)
    assert reply.status_code == 400 and words in reply.json()["error"]["message"]


def test_an_unknown_encoder(client: httpx.Client) -> None:
    assert client.post("/v1/embeddings", json={"input": "a", "model": "none"}).status_code == 404


def test_an_id_may_hold_slashes_and_colons(serving, tmp_path: Path) -> None:
    store = Store(tmp_path / "models")
    pull(store, str(TINY), name=names.parse("hf.co/someone/model:Q4_0"))
    asked = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
    with serving(None, "", models=store.root).client() as client:
        (id,) = [one["id"] for one in client.get("/v1/models").json()["data"]]
        assert id == "hf.co/someone/model:Q4_0"
        for spelled in (id, id.replace("/", "%2F").replace(":", "%3A")):
            found = client.get(f"/v1/models/{spelled}").json()
            assert (found["id"], found["status"]) == (id, {"value": "unloaded"})
        assert client.post("/v1/chat/completions", json={**asked, "model": id}).json()["model"] == id
        assert client.get(f"/v1/models/{id}").json()["status"] == {"value": "loaded"}
