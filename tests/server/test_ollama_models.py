"""Ollama's tags, show, copy, delete, create and blobs, on the wire, over a store of the test's own."""

import hashlib
import json
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from llamay.quant import LAYOUTS
from llamay.serve import details
from llamay.store import Store
from llamay.store.pull import pull

TINY = Path(__file__).parents[1] / "data" / "models" / "llama-gqa.f16.gguf"
GREEDY = {"temperature": 0, "num_predict": 4}
PATHS = ["../../etc/passwd", "/etc/passwd", "a/../../b", "..", "a/b/c/d", "x:../y", "\x00", "a" * 5000]


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A store with one model, `one`."""
    from llamay.store import names

    found = Store(tmp_path / "models")
    pull(found, str(TINY), name=names.parse("one"))
    return found


@pytest.fixture
def client(serving, store: Store) -> Iterator[httpx.Client]:
    with serving(None, "", models=store.root).client() as found:
        yield found


def tags(client: httpx.Client) -> list[dict[str, Any]]:
    return client.get("/api/tags").json()["models"]


def names_of(client: httpx.Client) -> list[str]:
    return sorted(one["name"] for one in tags(client))


def post(client: httpx.Client, path: str, **body: Any) -> httpx.Response:
    return client.post(f"/api/{path}", json=body)


def delete(client: httpx.Client, name: str) -> httpx.Response:
    return client.request("DELETE", "/api/delete", json={"model": name})


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def test_tags(client: httpx.Client, store: Store) -> None:
    (found,) = tags(client)
    assert found["name"] == found["model"] == "one:latest"
    assert found["digest"] == store.survey().models[0].id and re.fullmatch(r"[0-9a-f]{64}", found["digest"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z", found["modified_at"])
    details = found["details"]
    assert (details["format"], details["family"], details["families"]) == ("gguf", "llama", ["llama"])
    assert re.fullmatch(r"[\d.]+[KMB]?", details["parameter_size"]) and details["quantization_level"] == "F16"
    assert client.head("/api/tags").status_code == 200


def test_file_types_have_the_names_of_tensor_types() -> None:
    """Or those of llama.cpp's mixes: Q3_K_M is mostly Q3_K.  Q8_1 and Q8_K are no types of files."""
    names = set(details.TYPES.values())
    assert len(names) == len(details.TYPES)
    mixes = {name.removesuffix(end) for name in names for end in ("", "_S", "_M", "_L")}
    assert {type.name for type in LAYOUTS} - mixes == {"Q8_1", "Q8_K"}


def test_one_damaged_model_does_not_hide_the_others(client: httpx.Client, store: Store) -> None:
    other = post(client, "copy", source="one", destination="two")
    assert other.status_code == 200
    path = store.manifests / "registry.ollama.ai" / "library" / "two" / "latest"
    path.write_bytes(path.read_bytes().replace(b"sha256:", b"sha256:0", 1))
    assert names_of(client) == ["one:latest"]
    assert delete(client, "two").status_code == 200, "a broken manifest can be removed"


def test_show(client: httpx.Client) -> None:
    found = post(client, "show", model="one").json()
    info = found["model_info"]
    assert info["general.architecture"] == "llama" and info["general.parameter_count"] > 0
    assert "num_ctx" in found["parameters"] and found["capabilities"] == ["completion"]
    assert re.search(rf"num_ctx +{info['llama.context_length']}\b", found["parameters"])
    assert info["tokenizer.ggml.tokens"] is None and "tensors" not in found
    assert {"license", "modelfile", "template", "details", "modified_at"} - set(found) <= {"license"}
    assert found["modelfile"].startswith("FROM one:latest\n")
    more = post(client, "show", model="one", verbose=True).json()
    assert len(more["model_info"]["tokenizer.ggml.tokens"]) > 10 and more["tensors"][0]["shape"]


def test_show_tells_the_context_that_is_served(serving, store: Store) -> None:
    with serving(None, "", models=store.root, context=48).client() as client:
        for _ in range(2):
            found = post(client, "show", model="one").json()
            assert found["model_info"]["llama.context_length"] == 48
            assert re.search(r"num_ctx +48\b", found["parameters"])
            post(client, "generate", model="one")


def test_copy_and_delete(client: httpx.Client) -> None:
    reply = post(client, "copy", source="one", destination="two:small")
    assert reply.status_code == 200 and reply.content == b""
    assert names_of(client) == ["one:latest", "two:small"]
    assert post(client, "generate", model="two:small", prompt="x", options=GREEDY, stream=False).status_code == 200
    reply = delete(client, "one")
    assert reply.status_code == 200 and reply.content == b""
    assert names_of(client) == ["two:small"]
    assert post(client, "generate", model="two:small", prompt="x", options=GREEDY, stream=False).status_code == 200
    for reply in (delete(client, "one"), post(client, "copy", source="one", destination="three")):
        assert reply.status_code == 404 and reply.json()["error"].startswith("model 'one' not found")
    for reply in (delete(client, ""), post(client, "copy", source="two:small", destination="")):
        assert reply.status_code == 400


def test_deleting_takes_no_other_model_of_the_same_origin(client: httpx.Client) -> None:
    post(client, "create", model="mine", stream=False, **{"from": "one"})
    post(client, "copy", source="mine", destination="two")
    delete(client, "mine")
    for name in ("mine", str(TINY)):
        assert delete(client, name).status_code == 404
    assert names_of(client) == ["one:latest", "two:latest"]
    assert post(client, "show", model="mine").status_code == 404


def test_a_deleted_model_leaves_the_device(client: httpx.Client) -> None:
    def loaded(count: int) -> None:
        end = time.monotonic() + 60
        while len(client.get("/api/ps").json()["models"]) != count:
            assert time.monotonic() < end
            time.sleep(0.02)

    post(client, "generate", model="one")
    loaded(1)
    delete(client, "one")
    loaded(0)


@pytest.mark.parametrize("name", PATHS)
def test_no_name_ever_becomes_a_path(client: httpx.Client, tmp_path: Path, name: str) -> None:
    before = sorted(tmp_path.rglob("*"))
    for reply in (
        post(client, "show", model=name),
        delete(client, name),
        post(client, "copy", source=name, destination="x"),
        post(client, "copy", source="one", destination=name),
        post(client, "create", model=name, **{"from": "one"}),
        post(client, "create", model="x", **{"from": name}),
        post(client, "pull", model=name),
    ):
        assert reply.status_code in (400, 404), reply.text
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("text", ["sha256:../../x", "sha256-..", "x", "sha256:" + "g" * 64, "sha256:" + "A" * 64, "%2e%2e%2fx"])
def test_no_digest_ever_becomes_a_path(client: httpx.Client, tmp_path: Path, text: str) -> None:
    before = sorted(tmp_path.rglob("*"))
    assert client.head(f"/api/blobs/{text}").status_code in (400, 404)
    assert client.post(f"/api/blobs/{text}", content=b"x").status_code in (400, 404)
    assert post(client, "create", model="x", files={"a.gguf": text}).status_code == 400
    assert sorted(tmp_path.rglob("*")) == before


# create


def test_create_from_a_model(client: httpx.Client, store: Store) -> None:
    body = {
        "model": "mine", "from": "one", "system": "be kind", "parameters": {"temperature": 0.0, "stop": ["zz"], "num_ctx": 64},
        "template": "{{ .Prompt }}", "license": ["first", "second"],
        "messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
    }  # fmt: skip
    reply = post(client, "create", **body)
    assert reply.headers["content-type"] == "application/x-ndjson"
    statuses = [json.loads(line)["status"] for line in reply.text.splitlines()]
    assert statuses[0].startswith("using existing layer sha256:") and statuses[-2:] == ["writing manifest", "success"]
    found = post(client, "show", model="mine").json()
    assert found["system"] == "be kind" and found["license"] == "first\n\nsecond"
    assert found["messages"] == body["messages"]
    assert re.search(r'stop +"zz"', found["parameters"]) and re.search(r"temperature +0", found["parameters"])
    model = next(one for one in store.survey().models if one.name.name == "mine")
    assert store.text(model, "template") == "{{ .Prompt }}"
    assert json.loads(store.text(model, "params") or "")["stop"] == ["zz"]


def test_what_a_model_brings_is_used(client: httpx.Client) -> None:
    plain = post(client, "generate", model="one", prompt="x", options=GREEDY, stream=False).json()
    parameters = {"temperature": 0, "num_predict": 3}
    assert post(client, "create", model="mine", system="be kind", parameters=parameters, stream=False, **{"from": "one"}).json() == {"status": "success"}
    mine = post(client, "generate", model="mine", prompt="x", stream=False).json()
    assert mine["eval_count"] <= 3 and mine["prompt_eval_count"] > plain["prompt_eval_count"]
    other = post(client, "generate", model="mine", prompt="x", system="no", options={"num_predict": 2}, stream=False).json()
    assert other["eval_count"] <= 2 and other["prompt_eval_count"] < mine["prompt_eval_count"]
    said = [{"role": "user", "content": "x"}]
    chats = [post(client, "chat", model=name, messages=said, options=GREEDY, stream=False).json() for name in ("one", "mine")]
    assert chats[0]["prompt_eval_count"] < chats[1]["prompt_eval_count"]
    post(client, "create", model="more", parameters={"seed": 5}, stream=False, **{"from": "mine"})
    assert {"temperature", "num_predict", "seed"} <= set(post(client, "show", model="more").json()["parameters"].split())


def test_create_from_a_file(client: httpx.Client, store: Store) -> None:
    data = TINY.with_name("qwen3.f16.gguf").read_bytes()
    assert client.head(f"/api/blobs/{digest(data)}").status_code == 404
    assert post(client, "create", model="two", files={"q.gguf": digest(data)}).status_code == 400
    assert client.post(f"/api/blobs/{digest(data)}", content=data).status_code == 201
    assert client.head(f"/api/blobs/{digest(data)}").status_code == 200
    assert client.post(f"/api/blobs/{digest(data)}", content=data).status_code == 201
    reply = post(client, "create", model="two", files={"../../q.gguf": digest(data)}, stream=False)
    assert reply.json() == {"status": "success"}
    assert names_of(client) == ["one:latest", "two:latest"]
    assert post(client, "generate", model="two", prompt="x", options=GREEDY, stream=False).status_code == 200
    assert not list(store.partials.glob("*"))


def test_a_blob_must_be_what_it_says(client: httpx.Client, store: Store) -> None:
    reply = client.post(f"/api/blobs/{digest(b'this')}", content=b"that")
    assert reply.status_code == 400 and digest(b"that") in reply.json()["error"]
    assert not list(store.partials.glob("*")) and client.head(f"/api/blobs/{digest(b'that')}").status_code == 404
    assert client.post(f"/api/blobs/{digest(b'no model')}", content=b"no model").status_code == 201
    reply = post(client, "create", model="bad", files={"x.gguf": digest(b"no model")})
    assert reply.status_code == 400 and names_of(client) == ["one:latest"]


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"from": "one", "quantize": "q4_K_M"}, "quantize"),
        ({"from": "one", "adapters": {"a": "sha256:" + "0" * 64}}, "adapters"),
        ({}, "from"),
        ({"from": "one", "files": {"a": "sha256:" + "0" * 64}}, "one of the two"),
        ({"from": "one", "parameters": {"top_k": "many"}}, "top_k"),
        ({"from": "one", "messages": [{"role": "robot", "content": "x"}]}, "role"),
    ],
)
def test_what_cannot_be_created_is_refused_by_name(client: httpx.Client, fields: dict[str, Any], named: str) -> None:
    reply = post(client, "create", model="mine", **fields)
    assert reply.status_code == 400 and named in reply.json()["error"]
    assert names_of(client) == ["one:latest"]


def test_a_model_that_is_made_anew_is_loaded_anew(client: httpx.Client) -> None:
    before = post(client, "generate", model="one", prompt="x", options=GREEDY, stream=False).json()["response"]
    data = TINY.with_name("qwen3.f16.gguf").read_bytes()
    client.post(f"/api/blobs/{digest(data)}", content=data)
    post(client, "create", model="one", files={"q.gguf": digest(data)}, stream=False)
    after = post(client, "generate", model="one", prompt="x", options=GREEDY, stream=False).json()
    assert after["load_duration"] > 0 and after["response"] != before


def test_a_file_outside_the_store_is_served_and_stays(serving, store: Store) -> None:
    other = TINY.with_name("qwen2.f16.gguf")
    with serving(None, other, models=store.root).client() as client:
        name = "qwen2.f16:latest"
        assert names_of(client) == ["one:latest", name]
        assert post(client, "show", model=name.upper()).status_code == 200
        assert delete(client, name).status_code == 404 and other.exists()
        assert post(client, "copy", source=name, destination="x").status_code == 404
