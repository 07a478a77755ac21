"""Ollama's generate, chat and probes, on the wire."""

import json
import re
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

STAMP = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z")
GREEDY = {"temperature": 0, "num_predict": 8}
DURATIONS = ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration")


def lines(reply: httpx.Response) -> list[dict[str, Any]]:
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in reply.text.splitlines()]


def generate(client: httpx.Client, **fields: Any) -> httpx.Response:
    return client.post("/api/generate", json={"model": "", "prompt": "hello", "options": GREEDY, **fields})


def chat(client: httpx.Client, **fields: Any) -> httpx.Response:
    messages = [{"role": "user", "content": "hello"}]
    return client.post("/api/chat", json={"model": "", "messages": messages, "options": GREEDY, **fields})


def until(true: Callable[[], bool]) -> None:
    """Statistics may be a moment old."""
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end
        time.sleep(0.02)


def check_figures(final: dict[str, Any]) -> None:
    assert final["done"] is True and final["done_reason"] == "length"
    assert final["eval_count"] == 8 and final["prompt_eval_count"] > 0
    assert all(isinstance(final[name], int) and final[name] >= 0 for name in DURATIONS)
    assert final["total_duration"] > 100_000, "nanoseconds"
    assert final["total_duration"] > final["eval_duration"] > 0, "clients divide by it"
    assert STAMP.fullmatch(final["created_at"])


def test_generate_streams_by_default(client: httpx.Client, tiny) -> None:
    whole = generate(client, stream=False)
    assert whole.headers["content-type"] == "application/json; charset=utf-8"
    check_figures(whole.json())
    found = lines(generate(client, model=tiny.model))
    check_figures(found[-1])
    assert all(one["model"] == tiny.model and STAMP.fullmatch(one["created_at"]) for one in found)
    assert [one["done"] for one in found] == [False] * (len(found) - 1) + [True]
    assert "".join(one["response"] for one in found) == whole.json()["response"]
    assert found[-1]["context"] == whole.json()["context"]


def test_chat_streams_by_default(client: httpx.Client) -> None:
    whole = chat(client, stream=False).json()
    check_figures(whole)
    assert whole["message"]["role"] == "assistant" and "context" not in whole
    found = lines(chat(client, tools=[]))
    check_figures(found[-1])
    assert found[-1]["message"] == {"role": "assistant", "content": ""}
    assert "".join(one["message"]["content"] for one in found) == whole["message"]["content"]


def test_raw_uses_no_template(client: httpx.Client, tiny) -> None:
    raw = generate(client, raw=True, stream=False).json()
    language = tiny.site.models.language(tiny.site.models.default)
    assert raw["prompt_eval_count"] == len(language.raw("hello").tokens)
    assert "context" not in raw
    assert generate(client, stream=False).json()["prompt_eval_count"] > raw["prompt_eval_count"]


def test_system_counts(client: httpx.Client) -> None:
    plain = generate(client, stream=False).json()["prompt_eval_count"]
    assert generate(client, stream=False, system="be kind").json()["prompt_eval_count"] > plain


def test_a_context_comes_back_before_the_next_prompt(client: httpx.Client, tiny) -> None:
    first = generate(client, stream=False, prompt="tell me something long enough to be found again").json()
    second = generate(client, stream=False, prompt="more", context=first["context"]).json()
    assert second["context"][: len(first["context"])] == first["context"]
    new = second["prompt_eval_count"] - len(first["context"])
    assert new < generate(client, stream=False, prompt="more").json()["prompt_eval_count"] + 8
    assert second["llamay_cached_prompt_tokens"] >= (len(first["context"]) - 1) // 16 * 16 > 0


@pytest.mark.parametrize("token", [-1, 10**9])
def test_a_context_of_no_tokens_is_refused(client: httpx.Client, token: int) -> None:
    reply = generate(client, context=[token])
    assert reply.status_code == 400 and str(token) in reply.json()["error"]


def test_a_context_of_llamays_is_gone_on_with(client: httpx.Client) -> None:
    made = client.post("/v1/contexts", json={"messages": [{"role": "user", "content": "hello"}]}).json()
    for reply in (generate(client, llamay_context=made["id"], stream=False), chat(client, llamay_context=made["id"])):
        assert reply.status_code == 200, reply.text
        assert reply.headers["x-llamay-context"].startswith("ctx_")


def test_name_is_taken_for_model(client: httpx.Client, tiny) -> None:
    for reply in (
        client.post("/api/generate", json={"name": tiny.model, "prompt": "hello", "options": GREEDY, "stream": False}),
        client.post("/api/show", json={"name": tiny.model}),
    ):
        assert reply.status_code == 200, reply.text


def test_a_body_is_json_whatever_it_says(client: httpx.Client) -> None:
    body = json.dumps({"model": "", "prompt": "hello", "options": GREEDY, "stream": False})
    for kind in (None, "text/plain", "application/x-www-form-urlencoded"):
        headers = {} if kind is None else {"content-type": kind}
        assert client.post("/api/generate", content=body, headers=headers).status_code == 200
    reply = client.post("/api/generate", content=b"")
    assert reply.status_code == 400 and "missing request body" in reply.json()["error"]


# options


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"top_k": "many"}, 'option "top_k" must be of type integer'),
        ({"top_k": 1.5}, 'option "top_k" must be of type integer'),
        ({"num_ctx": True}, 'option "num_ctx" must be of type integer'),
        ({"temperature": "hot"}, 'option "temperature" must be of type float32'),
        ({"use_mmap": 1}, 'option "use_mmap" must be of type boolean'),
        ({"stop": "x"}, 'option "stop" must be of type array of strings'),
        ({"stop": [1]}, 'option "stop" must be of type array of strings'),
    ],
)
def test_an_option_of_the_wrong_type_is_refused(client: httpx.Client, options: dict[str, Any], wrong: str) -> None:
    reply = generate(client, options=options)
    assert reply.status_code == 400 and reply.json()["error"] == wrong


def test_an_option_may_be_null_a_float_or_unknown(client: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    options = {**GREEDY, "num_predict": 8.0, "seed": None, "stop": None, "mirostat": 1, "secret": "words"}
    found = generate(client, stream=False, options=options).json()
    assert found["eval_count"] == 8
    assert "mirostat" in caplog.text and "words" not in caplog.text


def test_every_option_is_taken(client: httpx.Client) -> None:
    options = {
        "num_ctx": 200, "num_keep": 4, "seed": 7, "num_predict": 4, "top_k": 20, "top_p": 0.9, "min_p": 0.0,
        "typical_p": 0.7, "repeat_last_n": 33, "temperature": 0.8, "repeat_penalty": 1.2, "presence_penalty": 1.5,
        "frequency_penalty": 1.0, "stop": ["\n", "user:"], "num_batch": 2, "num_gpu": 1, "main_gpu": 0,
        "use_mmap": True, "num_thread": 8, "draft_num_predict": 4,
    }  # fmt: skip
    first = generate(client, stream=False, options=options).json()
    assert first["response"] == generate(client, stream=False, options=options).json()["response"]


def test_a_seed_is_heard(client: httpx.Client) -> None:
    def answer(seed: int) -> str:
        options = {"seed": seed, "temperature": 1.5, "num_predict": 12, "top_k": 0, "top_p": 1.0}
        return generate(client, stream=False, options=options).json()["response"]

    assert answer(1) == answer(1) != answer(2)
    assert answer(-1) != answer(-1)


def test_a_stop_string_ends_it(client: httpx.Client) -> None:
    whole = generate(client, stream=False, options={**GREEDY, "num_predict": 40}).json()["response"]
    stop = whole[10:12]
    found = generate(client, stream=False, options={**GREEDY, "num_predict": 40, "stop": ["", stop]}).json()
    assert found["response"] == whole[: whole.index(stop)] and found["done_reason"] == "stop"


def test_num_ctx_bounds_prompt_and_answer(client: httpx.Client) -> None:
    prompt = generate(client, stream=False).json()["prompt_eval_count"]
    for stream in (True, False):
        reply = generate(client, stream=stream, options={"num_ctx": prompt - 1}, truncate=True)
        assert reply.status_code == 400, "nothing is cut silently"
        assert f"{prompt} tokens" in reply.json()["error"] and f"num_ctx is {prompt - 1}" in reply.json()["error"]
    found = generate(client, stream=False, options={"num_ctx": prompt + 3, "temperature": 0}).json()
    assert found["eval_count"] <= 3


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_beyond_the_context_is_refused_by_numbers(serving, stream: bool) -> None:
    with serving(context=32).client() as client:
        reply = generate(client, prompt="far too many words " * 20, stream=stream)
        assert reply.status_code == 400
        assert re.search(r"\d+ tokens.* 32", reply.json()["error"])


def test_logprobs_are_told_whole_and_in_lines(client: httpx.Client) -> None:
    asked = {"logprobs": True, "top_logprobs": 2, "options": {"temperature": 0, "num_predict": 6}}
    whole = chat(client, stream=False, **asked).json()
    assert len(whole["logprobs"]) == whole["eval_count"]
    assert all(len(one["top_logprobs"]) == 2 and one["logprob"] <= 0 for one in whole["logprobs"])
    assert bytes(byte for one in whole["logprobs"] for byte in one["bytes"]).decode("utf-8", "replace") == whole["message"]["content"]
    told = [json.loads(line) for line in chat(client, stream=True, **asked).text.splitlines()]
    assert [one for line in told for one in line.get("logprobs", ())] == whole["logprobs"]
    assert "logprobs" not in generate(client, stream=False).json()


# what is not there


@pytest.mark.parametrize(
    ("path", "fields", "named"),
    [
        ("generate", {"format": "json"}, "format"),
        ("chat", {"format": {"type": "object"}}, "format"),
        ("generate", {"think": True}, "think"),
        ("chat", {"think": "high"}, "think"),
        ("generate", {"suffix": "x"}, "insert"),
        ("generate", {"images": ["aGk="]}, "images"),
        ("generate", {"template": "{{ .Prompt }}"}, "template"),
        ("generate", {"raw": True, "system": "x"}, "raw"),
        ("generate", {"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ("chat", {"think": "loudly"}, "think"),
        ("chat", {"tools": [{"type": "function"}]}, "tools"),
        ("chat", {"messages": [{"role": "tool", "content": "x"}]}, "tools"),
        ("chat", {"messages": [{"role": "user", "content": "x", "images": ["aGk="]}]}, "images"),
        ("chat", {"messages": [{"role": "robot", "content": "x"}]}, "role"),
        ("chat", {"messages": [{"role": "user", "content": 5}]}, "content"),
        ("chat", {"messages": [{"content": "x"}]}, "role"),
        ("generate", {"keep_alive": "soon"}, "keep_alive"),
    ],
)
def test_what_is_not_there_is_refused_by_name(client: httpx.Client, path: str, fields: dict[str, Any], named: str) -> None:
    reply = (generate if path == "generate" else chat)(client, **fields)
    assert reply.status_code == 400, reply.text
    assert list(reply.json()) == ["error"] and named in reply.json()["error"]


def test_what_asks_for_nothing_is_taken(client: httpx.Client) -> None:
    fields = {"think": False, "format": "", "images": [], "suffix": "", "truncate": False, "shift": True, "unknown": 1}
    assert generate(client, stream=False, **fields).status_code == 200


@pytest.mark.parametrize("path", ["generate", "chat", "show", "embed"])
@pytest.mark.parametrize("name", ["nothing", "../../etc/passwd", "/etc/passwd", "..", "a/b/c/d", "x:../y", "~"])
def test_an_unknown_name_is_404(client: httpx.Client, path: str, name: str) -> None:
    reply = client.post(f"/api/{path}", json={"model": name, "prompt": "x", "input": "x"})
    assert reply.status_code == 404
    assert reply.json()["error"].startswith(f"model '{name}' not found")


def test_embeddings_are_refused_by_name(client: httpx.Client) -> None:
    for path, field in (("embed", "input"), ("embeddings", "prompt")):
        reply = client.post(f"/api/{path}", json={"model": "", field: "hello", "options": {"num_ctx": None}})
        assert reply.status_code == 501 and reply.headers["x-should-retry"] == "false"
        assert "encoder" in reply.json()["error"]
    assert client.post("/api/embed", json={"model": ""}).status_code == 400


def test_push_is_refused_by_name(client: httpx.Client) -> None:
    for method in ("POST", "DELETE"):
        reply = client.request(method, "/api/push", json={"model": "x"})
        assert reply.status_code == 501 and reply.headers["x-should-retry"] == "false"
        assert reply.json()["error"].startswith("push is not supported")


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_version_is_one_that_clients_take(client: httpx.Client, method: str) -> None:
    reply = client.request(method, "/api/version")
    assert reply.status_code == 200
    if method == "GET":
        version = reply.json()["version"]
        assert version == "0.32.0" and tuple(map(int, version.split("."))) >= (0, 12, 6)


# loading and unloading


def test_an_empty_prompt_loads_and_unloads(serving) -> None:
    running = serving()
    with running.client() as client:

        def loaded() -> list[dict[str, Any]]:
            return client.get("/api/ps").json()["models"]

        assert loaded() == []
        found = client.post("/api/generate", json={"model": running.model, "keep_alive": "1h30m"}).json()
        assert (found["response"], found["done"], found["done_reason"]) == ("", True, "load")
        until(lambda: len(loaded()) == 1)
        (model,) = loaded()
        assert 5300 < model["llamay"]["expires_seconds"] <= 5400
        found = client.post("/api/chat", json={"model": running.model, "messages": [], "keep_alive": 0}).json()
        assert found["message"] == {"role": "assistant", "content": ""} and found["done_reason"] == "unload"
        until(lambda: loaded() == [])
        found = generate(client, keep_alive=-1, stream=False).json()
        assert found["load_duration"] > 0
        until(lambda: [one["llamay"]["expires_seconds"] for one in loaded()] == [None])
        assert loaded()[0]["expires_at"].startswith("2318")
        assert generate(client, stream=False).json()["load_duration"] == 0
        assert lines(generate(client, keep_alive="0s"))[-1]["done"]
        until(lambda: loaded() == [])


def test_ps_tells_what_computes(client: httpx.Client, tiny) -> None:
    generate(client, stream=False)
    until(lambda: len(client.get("/api/ps").json()["models"]) == 1)
    (model,) = client.get("/api/ps").json()["models"]
    assert model["name"] == model["model"] == f"{tiny.model}:latest"
    assert re.fullmatch(r"[0-9a-f]{64}", model["digest"]) and model["size"] > 0
    assert STAMP.fullmatch(model["expires_at"]) and model["context_length"] > 0
    assert set(model["llamay"]) >= {"device", "kv", "requests", "waiting"}
