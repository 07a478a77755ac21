"""POST /v1/chat/completions: what it takes, what it refuses, and its logprobs."""

import json
import math
from typing import Any

import httpx
import pytest

from llamay.server.openai import wire

HELLO = [{"role": "user", "content": "hello"}]
GREEDY = {"messages": HELLO, "max_tokens": 6, "temperature": 0}


def ask(client: httpx.Client, **body: Any) -> dict[str, Any]:
    reply = client.post("/v1/chat/completions", json={**GREEDY, **body})
    assert reply.status_code == 200, reply.text
    return reply.json()


def refused(client: httpx.Client, path: str = "/v1/chat/completions", **body: Any) -> dict[str, Any]:
    reply = client.post(path, json={**GREEDY, **body})
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert error["type"] == "invalid_request_error" and set(error) >= {"message", "type", "param", "code"}
    return error


def events(reply: httpx.Response) -> list[dict[str, Any]]:
    """The data of a stream, which must end with [DONE]."""
    lines = [line.removeprefix("data: ") for line in reply.text.split("\n\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_every_object_says_what_computed_it(client: httpx.Client, tiny) -> None:
    found = ask(client)
    assert found["system_fingerprint"] == tiny.site.models.loaded(tiny.model).executor.numerics
    assert found["id"].startswith("chatcmpl-")
    chunks = events(client.post("/v1/chat/completions", json={**GREEDY, "stream": True}))
    assert {one["system_fingerprint"] for one in chunks} == {found["system_fingerprint"]}
    assert len({one["id"] for one in chunks}) == 1 and {one["object"] for one in chunks} == {"chat.completion.chunk"}


def test_logprobs_line_up_with_the_text(client: httpx.Client) -> None:
    found = ask(client, logprobs=True, top_logprobs=3, temperature=1.5, seed=4, max_tokens=12)["choices"][0]
    content = found["logprobs"]["content"]
    assert found["logprobs"]["refusal"] is None
    assert bytes([byte for one in content for byte in one["bytes"]]).decode("utf-8", "replace") == found["message"]["content"]
    for one in content:
        assert set(one) == {"token", "bytes", "logprob", "top_logprobs"}
        best = [other["logprob"] for other in one["top_logprobs"]]
        assert len(best) == 3 and best == sorted(best, reverse=True) and one["logprob"] <= best[0] < 0
        assert math.isfinite(one["logprob"])
    assert all(one["top_logprobs"] == [] for one in ask(client, logprobs=True)["choices"][0]["logprobs"]["content"])
    assert ask(client)["choices"][0]["logprobs"] is None


def test_logprobs_in_a_stream_are_the_same(client: httpx.Client) -> None:
    asked = {"logprobs": True, "top_logprobs": 2, "n": 3, "temperature": 1.5, "seed": 9, "max_tokens": 12, "stop": ["e"]}
    whole = ask(client, **asked)
    chunks = events(client.post("/v1/chat/completions", json={**GREEDY, **asked, "stream": True}))
    for choice in whole["choices"]:
        ours = [one["choices"][0] for one in chunks if one["choices"][0]["index"] == choice["index"]]
        assert "".join(one["delta"].get("content", "") for one in ours) == choice["message"]["content"]
        content = [entry for one in ours for entry in (one["logprobs"] or {"content": []})["content"]]
        assert content == choice["logprobs"]["content"]
        assert ours[-1]["finish_reason"] == choice["finish_reason"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"top_logprobs": 2}, "needs logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "0 to 20"),
        ({"messages": []}, "messages is empty"),
        ({"messages": [{"content": "x"}]}, "role"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "http://x/y"}}]}]}, "image_url"),
        ({"messages": [*HELLO, {"role": "assistant", "content": "a"}, {"role": "assistant", "content": "b"}]}, "last two"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools"),
        ({"functions": [{"name": "f"}]}, "tools"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"n": 0}, "n is 0; it may be 1 or more"),
        ({"n": 129}, "choices"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"max_tokens": -2}, "-2"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": [[1]]}, "logit_bias"),
        ({"logit_bias": [[1, True]]}, "logit_bias"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"%now": 1}}, "chat_template_kwargs"),
    ],
)
def test_what_cannot_be_is_refused_by_name(client: httpx.Client, more: dict[str, Any], words: str) -> None:
    assert words in refused(client, **more)["message"]
    assert words in refused(client, **more, stream=True)["message"]


def test_what_changes_nothing_is_taken(client: httpx.Client) -> None:
    plain = ask(client)["choices"]
    harmless = {
        "tools": [], "tool_choice": "auto", "response_format": {"type": "text"}, "modalities": ["text"], "store": True,
        "metadata": {"a": "b"}, "service_tier": "auto", "verbosity": "low", "options": {"num_ctx": 9}, "parallel_tool_calls": True,
        "prompt_cache_key": "k", "reasoning_effort": None, "stop": None, "n": None, "frequency_penalty": None,
        "reasoning": {"effort": "none"}, "chat_template_kwargs": {"enable_thinking": False},
    }  # fmt: skip
    assert ask(client, **harmless)["choices"] == plain


def test_max_completion_tokens_goes_first(client: httpx.Client) -> None:
    found = ask(client, max_tokens=9, max_completion_tokens=3, ignore_eos=True)
    assert found["usage"]["completion_tokens"] == 3 and found["choices"][0]["finish_reason"] == "length"


def test_a_developer_is_a_system(client: httpx.Client) -> None:
    texts = [
        client.post("/apply-template", json={"messages": [{"role": role, "content": "Be brief."}, *HELLO]}).json()["prompt"]
        for role in ("system", "developer")
    ]
    assert texts[0] == texts[1] and "Be brief." in texts[0]


def test_a_last_message_of_the_assistant_is_gone_on_with(client: httpx.Client) -> None:
    begun = [*HELLO, {"role": "assistant", "content": "Once upon"}]
    text = client.post("/apply-template", json={"messages": begun}).json()["prompt"]
    assert text.endswith("Once upon")
    found = ask(client, messages=begun)
    raw = client.post("/v1/completions", json={"prompt": text, "max_tokens": 6, "temperature": 0}).json()
    assert found["choices"][0]["message"]["content"] == raw["choices"][0]["text"]
    assert found["usage"]["prompt_tokens"] == raw["usage"]["prompt_tokens"]


def test_a_bias_in_either_form(client: httpx.Client, tiny) -> None:
    text = client.post("/apply-template", json={"messages": HELLO}).json()["prompt"]

    def first(**more: Any) -> int:
        asked = {"prompt": text, "n_predict": 1, "temperature": 0, "ignore_eos": True}
        return client.post("/completion", json={**asked, **more}).json()["tokens"][0]

    id = first()
    for given in ({str(id): -100}, {str(id): False}, [[id, -100]], [[id, False]]):
        assert first(logit_bias=given) != id
    tokenizer = tiny.site.models.language(tiny.site.models.default).tokenizer
    assert wire.bias([["seven", 2.5], [1, 1], [1, 0.5]], tokenizer) == {
        **dict.fromkeys(tokenizer.encode("seven"), 2.5), 1: 1.5
    }  # fmt: skip
    assert first(logit_bias=[[5, 1000.0]]) == 5


def test_a_prompt_that_is_too_long_is_refused_with_the_counts(client: httpx.Client, tiny) -> None:
    size = tiny.site.models.load(tiny.site.models.default).context
    long = [{"role": "user", "content": "sea " * size}]
    for stream in (False, True):
        error = refused(client, messages=long, stream=stream)
        assert error["code"] == "context_length_exceeded"
        assert error["n_ctx"] == size < error["n_prompt_tokens"]
        assert str(error["n_prompt_tokens"]) in error["message"] and str(size) in error["message"]


def test_an_unknown_model(client: httpx.Client) -> None:
    reply = client.post("/v1/chat/completions", json={**GREEDY, "model": "../../etc/passwd"})
    assert reply.status_code == 404 and reply.json()["error"]["code"] == "model_not_found"


def test_tokens_are_counted_without_an_answer(client: httpx.Client) -> None:
    counted = client.post("/v1/chat/completions/input_tokens", json={"messages": HELLO}).json()
    assert counted == {"object": "response.input_tokens", "input_tokens": ask(client)["usage"]["prompt_tokens"]}


def test_the_route_has_a_name_without_v1(client: httpx.Client) -> None:
    assert client.post("/chat/completions", json=GREEDY).json()["choices"] == ask(client)["choices"]
