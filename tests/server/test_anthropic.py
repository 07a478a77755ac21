"""POST /v1/messages and count_tokens, on the wire."""

import json
from typing import Any

import httpx
import pytest

from llamay.errors import DeviceLost, QueueFull

HELLO = [{"role": "user", "content": "hello"}]
ASKED = {"model": "", "messages": HELLO, "max_tokens": 8, "temperature": 0}
VERSION = {"anthropic-version": "2026-10-21"}


def events(text: str) -> list[dict[str, Any]]:
    """The data of a stream; each event has the name that its data tell."""
    found = []
    for block in text.strip().split("\n\n"):
        name, data = block.split("\n")
        found.append(json.loads(data.removeprefix("data: ")))
        assert name == f"event: {found[-1]['type']}"
    return found


def text_of(found: list[dict[str, Any]]) -> str:
    return "".join(one["delta"]["text"] for one in found if one["type"] == "content_block_delta")


def ask(client: httpx.Client, **fields: Any) -> httpx.Response:
    return client.post("/v1/messages", json={**ASKED, **fields}, headers=VERSION)


def count(client: httpx.Client, **fields: Any) -> int:
    reply = client.post("/v1/messages/count_tokens?beta=true", json={"model": "", "messages": HELLO, **fields})
    assert reply.status_code == 200, reply.text
    assert list(reply.json()) == ["input_tokens"]
    return reply.json()["input_tokens"]


def test_a_whole_message(client: httpx.Client, tiny) -> None:
    reply = ask(client, model=tiny.model)
    assert reply.status_code == 200, reply.text
    found = reply.json()
    assert found["id"].startswith("msg_") and found["type"] == "message" and found["role"] == "assistant"
    assert found["model"] == tiny.model
    (block,) = found["content"]
    assert block["type"] == "text"
    assert (found["stop_reason"], found["stop_sequence"]) == ("max_tokens", None)
    usage = found["usage"]
    assert usage["output_tokens"] == 8 and usage["cache_creation_input_tokens"] == 0
    assert usage["input_tokens"] + usage["cache_read_input_tokens"] == count(client)


def test_the_order_of_a_streams_events(client: httpx.Client) -> None:
    whole = ask(client).json()
    reply = ask(client, stream=True)
    assert reply.headers["content-type"].startswith("text/event-stream")
    found = events(reply.text)
    kinds = [one["type"] for one in found]
    middle = kinds[2:-3]
    assert kinds[:2] == ["message_start", "content_block_start"] and set(middle) <= {"content_block_delta", "ping"}
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    start = found[0]["message"]
    assert start["content"] == [] and start["stop_reason"] is None and start["usage"]["output_tokens"] == 0
    assert start["usage"]["input_tokens"] + start["usage"]["cache_read_input_tokens"] == count(client)
    assert found[1]["content_block"] == {"type": "text", "text": ""} and found[1]["index"] == 0
    assert text_of(found) == whole["content"][0]["text"]
    assert found[-2]["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert found[-2]["usage"]["output_tokens"] == 8


def test_cached_tokens_are_no_input_tokens(client: httpx.Client) -> None:
    prompt = [{"role": "user", "content": "the very same long beginning of every one of these prompts, " * 3}]
    first = ask(client, messages=prompt).json()["usage"]
    second = ask(client, messages=prompt).json()["usage"]
    assert second["cache_read_input_tokens"] > first["cache_read_input_tokens"]
    total = count(client, messages=prompt)
    for usage in (first, second):
        assert usage["input_tokens"] + usage["cache_read_input_tokens"] == total


def test_a_stop_sequence_is_named(client: httpx.Client) -> None:
    whole = ask(client, max_tokens=40).json()["content"][0]["text"]
    stop = whole[10:12]
    found = ask(client, max_tokens=40, stop_sequences=["\x00never", stop]).json()
    assert (found["stop_reason"], found["stop_sequence"]) == ("stop_sequence", stop)
    assert found["content"][0]["text"] == whole[: whole.index(stop)]
    streamed = events(ask(client, max_tokens=40, stop_sequences=[stop], stream=True).text)
    assert streamed[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": stop}


def test_the_end_of_the_context_has_a_reason_of_its_own(serving) -> None:
    with serving(context=48).client() as client:
        found = ask(client, max_tokens=1000, stop_sequences=["\x00never"]).json()
        usage = found["usage"]
        if found["stop_reason"] != "end_turn":
            assert found["stop_reason"] == "model_context_window_exceeded"
        assert usage["input_tokens"] + usage["cache_read_input_tokens"] + usage["output_tokens"] <= 48


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_that_is_too_long_is_told_by_numbers(serving, stream: bool) -> None:
    with serving(context=32).client() as client:
        messages = [{"role": "user", "content": "far too many words " * 20}]
        reply = ask(client, messages=messages, stream=stream)
        assert reply.status_code == 400
        error = reply.json()["error"]
        assert error["type"] == "invalid_request_error"
        assert error["message"].startswith("prompt is too long: ") and error["message"].endswith(" > 32 maximum")


def test_system_is_text_or_blocks(client: httpx.Client) -> None:
    blocks = [{"type": "text", "text": "be", "cache_control": {"type": "ephemeral"}}, {"type": "text", "text": "kind"}]
    assert count(client, system="be\n\nkind") == count(client, system=blocks) > count(client)
    assert count(client, system=[]) == count(client, system="") == count(client)


def test_what_claude_code_says_of_itself_is_left_out(client: httpx.Client) -> None:
    """It changes with every request, and would make every prompt a new one."""
    private = {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.36; cch=abcde;"}
    rest = {"type": "text", "text": "be kind"}
    assert count(client, system=[private, rest]) == count(client, system="be kind")
    assert count(client, system=f"{private['text']}\nbe kind") == count(client, system="be kind")
    assert count(client, system=[rest, private]) > count(client, system="be kind")


def test_neighbours_of_one_role_are_one_message(client: httpx.Client) -> None:
    apart = [{"role": "user", "content": "one"}, {"role": "user", "content": [{"type": "text", "text": "two"}]}]
    assert count(client, messages=apart) == count(client, messages=[{"role": "user", "content": "one\n\ntwo"}])
    answered = [*HELLO, {"role": "system", "content": "be brief"}, {"role": "user", "content": "again"}]
    assert count(client, messages=answered) > count(client, messages=[*HELLO, {"role": "user", "content": "again"}])


def test_thinking_that_comes_back_is_never_refused(client: httpx.Client) -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": ""},
        {"type": "redacted_thinking", "data": "x"},
        {"type": "text", "text": "hi"},
    ]
    again = {"role": "user", "content": "again"}
    assert count(client, messages=[*HELLO, {"role": "assistant", "content": blocks}, again]) > 0


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": []},
        {"thinking": {"type": "disabled"}},
        {"thinking": {"type": "adaptive"}},
        {"tool_choice": {"type": "auto"}},
        {"service_tier": "auto", "metadata": {"user_id": "u"}, "betas": ["x"], "cache_control": {"type": "ephemeral"}},
        {"output_config": {"effort": "low"}},
        {"top_p": 0.9, "top_k": 5},
    ],
)
def test_what_changes_nothing_is_taken(client: httpx.Client, fields: dict[str, Any]) -> None:
    assert ask(client, **fields).status_code == 200


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"tools": [{"name": "f", "input_schema": {}}]}, "tools"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "thinking"),
        ({"output_config": {"format": {"type": "json_schema", "schema": {}}}}, "output_config.format"),
        ({"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]}, "'image'"),
        ({"messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]}, "'document'"),
        ({"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "x"}]}]}, "'tool_result'"),
        ({"messages": [{"role": "user", "content": 5}]}, "messages[0].content"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [{"role": "assistant", "content": "x"}]}, "user"),
        ({"messages": []}, "messages"),
        ({"system": [{"type": "text", "text": 5}]}, "system[0].text"),
        ({"max_tokens": "many"}, "max_tokens"),
        ({"max_tokens": -1}, "-1"),
        ({"stop_sequences": [""]}, "stop"),
        ({"temperature": -2}, "temperature"),
    ],
)
def test_what_is_not_there_is_refused_by_name(client: httpx.Client, fields: dict[str, Any], named: str) -> None:
    reply = ask(client, **fields)
    assert reply.status_code == 400, reply.text
    found = reply.json()
    assert found["type"] == "error" and found["error"]["type"] == "invalid_request_error"
    assert named in found["error"]["message"]
    assert found["request_id"] == reply.headers["request-id"] != ""


def test_models_of_anthropics_own_are_the_default_one(client: httpx.Client, tiny) -> None:
    assert ask(client, model="claude-haiku-4-5").json()["model"] == tiny.model
    reply = ask(client, model="no-such-model")
    assert reply.status_code == 404 and reply.json()["error"]["type"] == "not_found_error"


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "claude-../../x", "a/b/c/d/e", "..", "\x00"])
def test_a_name_is_never_a_path(client: httpx.Client, name: str) -> None:
    assert ask(client, model=name).status_code == (200 if name.startswith("claude-") else 404)


def test_a_full_queue_is_529(client: httpx.Client, tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **named: object) -> None:
        raise QueueFull("7 requests wait, which is all")

    monkeypatch.setattr(tiny.site.models, "ask", full)
    reply = ask(client)
    assert reply.status_code == 529 and reply.json()["error"]["type"] == "overloaded_error"
    assert reply.headers["retry-after"]


def test_a_failure_in_the_middle_is_an_error_event(client: httpx.Client, tiny, monkeypatch: pytest.MonkeyPatch) -> None:
    from llamay.server.turn import Turn

    whole = Turn.__iter__

    def failing(self: Turn) -> Any:
        for number, event in enumerate(whole(self)):
            if number == 1:
                raise DeviceLost("the device went away")
            yield event

    monkeypatch.setattr(Turn, "__iter__", failing)
    reply = ask(client, stream=True)
    found = events(reply.text)
    assert found[0]["type"] == "message_start" and found[-1]["type"] == "error"
    assert found[-1]["error"] == {"type": "api_error", "message": "the device went away"}
    assert found[-1]["request_id"] == reply.headers["request-id"]


def test_silence_is_broken_by_pings(client: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    from llamay.server import turn

    whole = turn.Turn.__iter__

    def silent(self: turn.Turn) -> Any:
        yield None
        yield from whole(self)

    monkeypatch.setattr(turn.Turn, "__iter__", silent)
    found = events(ask(client, stream=True).text)
    assert [one["type"] for one in found[:3]] == ["message_start", "content_block_start", "ping"]


def test_counting_loads_no_model(serving) -> None:
    running = serving()
    with running.client() as client:
        assert count(client) > 0
        assert running.site.models.engine.stats().models == ()


def test_a_context_is_gone_on_with(client: httpx.Client) -> None:
    first = client.post("/v1/contexts", json={"messages": HELLO})
    assert first.status_code == 201, first.text
    reply = ask(client, messages=[{"role": "user", "content": "and then?"}], llamay_context=first.json()["id"])
    assert reply.status_code == 200, reply.text
    child = reply.headers["x-llamay-context"]
    assert child.startswith("ctx_") and child != first.json()["id"]
    assert ask(client, llamay_context="ctx_nothing").status_code == 404


@pytest.mark.parametrize("method", ["GET", "HEAD"])
def test_the_root_answers(client: httpx.Client, method: str) -> None:
    reply = client.request(method, "/")
    assert reply.status_code == 200
    assert reply.text == ("" if method == "HEAD" else "Ollama is running")
