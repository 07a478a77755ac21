"""POST /v1/chat/completions, on the wire."""

import json

import httpx

HELLO = [{"role": "user", "content": "hello"}]


def events(text: str) -> list[dict]:
    """The data of a stream, which must end with [DONE]."""
    lines = [line.removeprefix("data: ") for line in text.split("\n\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def test_a_whole_answer(client: httpx.Client, tiny) -> None:
    reply = client.post("/v1/chat/completions", json={"messages": HELLO, "max_tokens": 8, "temperature": 0})
    assert reply.status_code == 200, reply.text
    found = reply.json()
    assert found["object"] == "chat.completion" and found["model"] == tiny.model
    assert found["choices"][0]["message"]["role"] == "assistant"
    usage = found["usage"]
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert {"llamay_prefill_ms", "llamay_decode_ms", "llamay_cached_prompt_tokens"} <= set(usage)


def test_a_stream_gives_the_same_text(client: httpx.Client) -> None:
    asked = {"messages": HELLO, "max_tokens": 12, "temperature": 0}
    whole = client.post("/v1/chat/completions", json=asked).json()["choices"][0]
    found = events(client.post("/v1/chat/completions", json={**asked, "stream": True}).text)
    assert found[0]["choices"][0]["delta"]["role"] == "assistant"
    assert "".join(one["choices"][0]["delta"].get("content", "") for one in found) == whole["message"]["content"]
    assert found[-1]["choices"][0]["finish_reason"] == whole["finish_reason"]
    assert all(one["choices"] for one in found), "usage comes only to those who ask"


def test_usage_comes_last_to_those_who_ask(client: httpx.Client) -> None:
    asked = {"messages": HELLO, "max_tokens": 3, "stream": True, "stream_options": {"include_usage": True}}
    found = events(client.post("/v1/chat/completions", json=asked).text)
    assert found[-1]["choices"] == [] and found[-1]["usage"]["completion_tokens"] <= 3
