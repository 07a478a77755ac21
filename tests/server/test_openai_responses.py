"""/v1/responses: whole and as events, what is kept of it, and what the next one goes on from."""

import json
from typing import Any

import httpx
import pytest

GREEDY = {"input": "hello", "max_output_tokens": 6, "temperature": 0, "ignore_eos": True}

ORDER = [
    "response.created", "response.in_progress", "response.output_item.added", "response.content_part.added",
    "response.output_text.delta", "response.output_text.done", "response.content_part.done", "response.output_item.done",
]  # fmt: skip


def ask(client: httpx.Client, **body: Any) -> dict[str, Any]:
    reply = client.post("/v1/responses", json={**GREEDY, **body})
    assert reply.status_code == 200, reply.text
    return reply.json()


def streamed(client: httpx.Client, **body: Any) -> list[dict[str, Any]]:
    reply = client.post("/v1/responses", json={**GREEDY, **body, "stream": True})
    assert reply.status_code == 200, reply.text
    found = []
    for block in reply.text.split("\n\n"):
        if block and not block.startswith(":"):
            name, data = block.split("\n")
            found.append(json.loads(data.removeprefix("data: ")))
            assert name == f"event: {found[-1]['type']}"
    return found


def text(response: dict[str, Any]) -> str:
    (item,) = response["output"]
    (part,) = item["content"]
    assert (item["type"], item["role"], part["type"], part["annotations"]) == ("message", "assistant", "output_text", [])
    return part["text"]


def test_a_whole_response(client: httpx.Client, tiny) -> None:
    found = ask(client, instructions="Be brief.", metadata={"a": "b"})
    assert (found["object"], found["model"], found["id"][:5]) == ("response", tiny.model, "resp_")
    assert (found["status"], found["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert (found["instructions"], found["metadata"], found["store"], found["error"]) == ("Be brief.", {"a": "b"}, True, None)
    usage = found["usage"]
    assert usage["output_tokens"] == 6 and usage["total_tokens"] == usage["input_tokens"] + 6
    assert {"llamay_prefill_ms", "llamay_decode_ms", "llamay_cached_prompt_tokens"} <= set(usage)
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
    asked = {"messages": messages, "max_tokens": 6, "temperature": 0, "ignore_eos": True}
    chat = client.post("/v1/chat/completions", json=asked).json()
    assert text(found) == chat["choices"][0]["message"]["content"]


def test_one_that_stops_is_completed(client: httpx.Client) -> None:
    whole = text(ask(client))
    found = ask(client, stop=[whole[4:6]])
    assert found["status"] == "completed" and found["incomplete_details"] is None and found["completed_at"]
    assert text(found) == whole[: whole.index(whole[4:6])]


def test_the_order_of_events(client: httpx.Client) -> None:
    whole = ask(client)
    found = streamed(client)
    kinds = [event["type"] for event in found]
    assert list(dict.fromkeys(kinds)) == [*ORDER, "response.incomplete"]
    assert all(kinds.count(kind) == 1 for kind in kinds if not kind.endswith("delta"))
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    began = found[0]["response"]
    assert (began["status"], began["output"]) == ("in_progress", []) and set(began) == set(whole)
    item = found[2]["item"]["id"]
    for event in found[3:-2]:
        assert (event["output_index"], event["content_index"], event["item_id"]) == (0, 0, item)
    deltas = "".join(event["delta"] for event in found if event["type"] == ORDER[4])
    assert deltas == text(whole) == text(found[-1]["response"]) == found[-4]["text"]
    assert found[-1]["response"]["id"] == began["id"]
    assert found[-2]["item"] == found[-1]["response"]["output"][0]


def test_logprobs(client: httpx.Client) -> None:
    wanted = {"include": ["message.output_text.logprobs"], "top_logprobs": 2, "temperature": 1.4, "seed": 2}
    told = ask(client, **wanted)["output"][0]["content"][0]["logprobs"]
    assert len(told) == 6 and all(len(one["top_logprobs"]) == 2 for one in told)
    found = streamed(client, **wanted)
    assert [one for event in found if event["type"] == ORDER[4] for one in event["logprobs"]] == told
    assert found[-1]["response"]["output"][0]["content"][0]["logprobs"] == told
    assert ask(client)["output"][0]["content"][0]["logprobs"] == []


def test_inputs_of_every_form(client: httpx.Client) -> None:
    plain = text(ask(client))
    for given in (
        [{"role": "user", "content": "hello"}],
        [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello"}]}],
        [{"type": "reasoning", "summary": []}, {"role": "user", "content": "hello"}],
    ):
        assert text(ask(client, input=given)) == plain


def test_a_probe_without_input(client: httpx.Client) -> None:
    for given in ("", [], None):
        assert ask(client, input=given, max_output_tokens=1)["usage"]["output_tokens"] == 1


def test_what_changes_nothing_is_taken(client: httpx.Client) -> None:
    tools = [{"type": "web_search"}, {"type": "custom", "name": "x"}, {"type": "namespace"}]
    found = ask(
        client, tools=tools, tool_choice="auto", parallel_tool_calls=True, include=[], prompt_cache_key="k",
        truncation="auto", text={"format": {"type": "text"}}, client_metadata={"a": 1}, reasoning={"effort": "none"},
    )  # fmt: skip
    assert text(found) == text(ask(client))


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"tools": [{"type": "function", "name": "f", "parameters": {}}]}, "function tools"),
        ({"text": {"format": {"type": "json_object"}}}, "text.format"),
        ({"background": True}, "background"),
        ({"conversation": "conv_1"}, "conversation"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": "1"}]}, "input[0]"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "item_reference"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://x/y"}]}]}, "input_image"),
        ({"input": [{"content": "x"}]}, "role"),
        ({"input": [1]}, "input[0]"),
        ({"top_logprobs": 21}, "0 to 20"),
    ],
)
def test_what_cannot_be_is_refused_by_name(client: httpx.Client, more: dict[str, Any], words: str) -> None:
    for stream in (False, True):
        reply = client.post("/v1/responses", json={**GREEDY, **more, "stream": stream})
        assert reply.status_code == 400, reply.text
        assert words in reply.json()["error"]["message"]


def test_a_response_is_kept_until_it_is_deleted(client: httpx.Client) -> None:
    for found in (ask(client), streamed(client)[-1]["response"]):
        assert client.get(f"/v1/responses/{found['id']}").json() == found
        items = client.get(f"/v1/responses/{found['id']}/input_items").json()["data"]
        assert [item["content"] for item in items] == [[{"type": "input_text", "text": "hello"}]]
        gone = client.delete(f"/v1/responses/{found['id']}").json()
        assert gone == {"id": found["id"], "object": "response", "deleted": True}
        for reply in (client.get(f"/v1/responses/{found['id']}"), client.delete(f"/v1/responses/{found['id']}")):
            assert reply.status_code == 404 and reply.json()["error"]["code"] == "context_lost"
    assert client.get(f"/v1/responses/{ask(client, store=False)['id']}").status_code == 404


def test_the_next_response_goes_on_from_one(client: httpx.Client) -> None:
    first = ask(client)
    second = ask(client, input="and then?", previous_response_id=first["id"])
    assert second["previous_response_id"] == first["id"]
    assert second["usage"]["input_tokens"] > first["usage"]["total_tokens"]
    assert second["usage"]["input_tokens_details"]["cached_tokens"] > 0


def test_going_on_from_nothing(client: httpx.Client) -> None:
    reply = client.post("/v1/responses", json={**GREEDY, "previous_response_id": "resp_none"})
    assert reply.status_code == 404
    assert reply.json()["error"]["code"] == "context_lost"
    assert "previous_response_not_found" in reply.json()["error"]["message"]


def test_tokens_are_counted_without_an_answer(client: httpx.Client) -> None:
    counted = client.post("/v1/responses/input_tokens", json={"input": "hello", "instructions": "Be brief."}).json()
    expected = ask(client, instructions="Be brief.")["usage"]["input_tokens"]
    assert counted == {"object": "response.input_tokens", "input_tokens": expected}


def test_a_prompt_that_is_too_long_is_refused_with_the_counts(client: httpx.Client, tiny) -> None:
    size = tiny.site.models.load(tiny.site.models.default).context
    for stream in (False, True):
        reply = client.post("/v1/responses", json={**GREEDY, "input": "sea " * size, "stream": stream, "truncation": "auto"})
        assert (reply.status_code, reply.json()["error"]["code"]) == (400, "context_length_exceeded")
