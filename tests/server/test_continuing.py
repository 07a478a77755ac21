"""Completions that go on from a context, in every family: the child holds the answer, the parent never changes."""

import itertools
import json
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

HEADER = "X-Llamay-Context"
MESSAGES = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "tell me of the sea"}]
MORE = [{"role": "user", "content": "and of ferries"}]
WORDS = 6


def openai(client: httpx.Client, messages: list[dict], stream: bool = False, **more: Any) -> httpx.Response:
    asked = {"messages": messages, "max_tokens": WORDS, "temperature": 0, "ignore_eos": True, "stream": stream}
    return client.post("/v1/chat/completions", json=asked, **more)


def completions(client: httpx.Client, messages: list[dict], stream: bool = False, **more: Any) -> httpx.Response:
    asked = {"prompt": messages[-1]["content"], "max_tokens": WORDS, "temperature": 0, "ignore_eos": True, "stream": stream}
    return client.post("/v1/completions", json=asked, **more)


def native(client: httpx.Client, messages: list[dict], stream: bool = False, **more: Any) -> httpx.Response:
    asked = {"prompt": messages[-1]["content"], "n_predict": WORDS, "temperature": 0, "ignore_eos": True, "stream": stream}
    return client.post("/completion", json=asked, **more)


def responses(client: httpx.Client, messages: list[dict], stream: bool = False, **more: Any) -> httpx.Response:
    asked = {"input": messages, "max_output_tokens": WORDS, "temperature": 0, "ignore_eos": True, "stream": stream}
    return client.post("/v1/responses", json=asked, **more)


def anthropic(client: httpx.Client, messages: list[dict], stream: bool = False, **more: Any) -> httpx.Response:
    asked = {"messages": messages, "max_tokens": WORDS, "temperature": 0, "stream": stream}
    return client.post("/v1/messages", json=asked, **more)


def chat(client: httpx.Client, messages: list[dict], stream: bool = False, **more: Any) -> httpx.Response:
    asked = {"messages": messages, "options": {"num_predict": WORDS, "temperature": 0}, "stream": stream}
    return client.post("/api/chat", json=asked, **more)


def generate(client: httpx.Client, messages: list[dict], stream: bool = False, **more: Any) -> httpx.Response:
    asked = {"prompt": messages[-1]["content"], "options": {"num_predict": WORDS, "temperature": 0}, "stream": stream}
    return client.post("/api/generate", json=asked, **more)


FAMILIES = [openai, completions, native, responses, anthropic, chat, generate]
Ask = Callable[..., httpx.Response]


@pytest.fixture(params=FAMILIES, ids=lambda ask: ask.__name__)
def ask(request: pytest.FixtureRequest) -> Ask:
    found: Ask = request.param
    return found


def context(client: httpx.Client, **body: Any) -> str:
    reply = client.post("/v1/contexts", json=body)
    assert reply.status_code == 201, reply.text
    return str(reply.json()["id"])


def look(client: httpx.Client, id: str) -> dict[str, Any]:
    reply = client.get(f"/v1/contexts/{id}")
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def tokens(tiny: Any, id: str) -> list[int]:
    return list(tiny.site.shelf.find(id).tokens)


def test_a_child_is_named_in_the_header_and_the_parent_stays(client: httpx.Client, tiny: Any, ask: Ask) -> None:
    parent = context(client, messages=MESSAGES)
    before, held = look(client, parent), tokens(tiny, parent)
    reply = ask(client, MORE, headers={HEADER: parent})
    assert reply.status_code == 200, reply.text
    child = reply.headers[HEADER]
    assert child != parent
    assert look(client, parent) | {"pages": 0} == before | {"pages": 0}
    assert tokens(tiny, parent) == held
    found = look(client, child)
    assert (found["parent"], found["tokens"]) == (parent, len(tokens(tiny, child)))
    assert found["fork_point"] >= len(held) - 2
    assert tokens(tiny, child)[: found["fork_point"]] == held[: found["fork_point"]]


def test_a_stream_has_the_header_too_and_the_same_child(client: httpx.Client, tiny: Any, ask: Ask) -> None:
    parent = context(client, messages=MESSAGES)
    whole = ask(client, MORE, headers={HEADER: parent}).headers[HEADER]
    streamed = ask(client, MORE, True, headers={HEADER: parent})
    assert streamed.status_code == 200
    assert streamed.headers[HEADER] != whole
    assert tokens(tiny, streamed.headers[HEADER]) == tokens(tiny, whole)


def test_the_field_of_the_body_does_the_same(client: httpx.Client, tiny: Any) -> None:
    parent = context(client, messages=MESSAGES)
    by_header = openai(client, MORE, headers={HEADER: parent})
    asked = json.loads(by_header.request.content) | {"llamay_context": parent}
    by_field = client.post("/v1/chat/completions", json=asked)
    assert tokens(tiny, by_field.headers[HEADER]) == tokens(tiny, by_header.headers[HEADER])
    both = client.post("/v1/chat/completions", json=asked, headers={HEADER: "ctx_other"})
    assert both.status_code == 400 and "one of them is enough" in both.json()["error"]["message"]


def test_turn_by_turn_nothing_is_rendered_again(client: httpx.Client, tiny: Any) -> None:
    """A chat of three turns: each child is its parent's tokens and more; only what is new is computed."""
    at = context(client, messages=MESSAGES)
    language = tiny.site.models.language(tiny.site.models.default)
    said = list(MESSAGES)
    for turn, question in enumerate(("why?", "how?", "when?")):
        held = tokens(tiny, at)
        reply = openai(client, [{"role": "user", "content": question}], headers={HEADER: at})
        found, child = reply.json(), reply.headers[HEADER]
        said += [{"role": "user", "content": question}]
        if turn:
            assert tokens(tiny, child)[: len(held)] == held
            assert found["usage"]["prompt_tokens_details"]["cached_tokens"] == len(held) - 1
        text = language.tokenizer.text(tokens(tiny, child), special=False)
        answer = found["choices"][0]["message"]["content"]
        assert text.endswith(answer)
        assert "tell me of the sea" in text and question in text
        at = child


@pytest.mark.parametrize("say", [openai, responses, chat], ids=lambda say: say.__name__)
def test_messages_that_are_held_are_as_good_as_sent(client: httpx.Client, say: Ask) -> None:
    parent = context(client, messages=MESSAGES)
    assert text_of(say(client, MORE, headers={HEADER: parent})) == text_of(say(client, [*MESSAGES, *MORE]))


def text_of(reply: httpx.Response) -> str:
    found = reply.json()
    for path in (
        ("choices", 0, "message", "content"), ("choices", 0, "text"), ("output", 0, "content", 0, "text"),
        ("content", 0, "text"), ("message", "content"), ("response",),
    ):  # fmt: skip
        at: Any = found
        try:
            for key in path:
                at = at[key]
        except (KeyError, IndexError, TypeError):
            continue
        return str(at)
    return str(found["content"])


def test_without_new_messages_the_conversation_is_answered(client: httpx.Client) -> None:
    parent = context(client, messages=MESSAGES)
    assert text_of(openai(client, [], headers={HEADER: parent})) == text_of(openai(client, MESSAGES))
    assert openai(client, []).status_code == 400


def test_a_text_goes_on_as_it_is(client: httpx.Client, tiny: Any) -> None:
    parent = context(client, prompt="the light")
    reply = completions(client, [{"role": "user", "content": "house"}], headers={HEADER: parent})
    text = tiny.site.models.language(tiny.site.models.default).tokenizer.text(tokens(tiny, reply.headers[HEADER]))
    assert text.startswith("the lighthouse")
    assert text == "the lighthouse" + text_of(reply)
    empty = client.post("/v1/completions", json={"prompt": "", "max_tokens": 3}, headers={HEADER: parent})
    assert empty.status_code == 200
    several = client.post("/v1/completions", json={"prompt": ["a", "b"]}, headers={HEADER: parent})
    assert several.status_code == 400 and "one prompt" in several.json()["error"]["message"]


def test_a_lost_context_is_404_in_the_words_of_the_family(client: httpx.Client, ask: Ask) -> None:
    reply = ask(client, MORE, headers={HEADER: "ctx_0123456789abcdef01234567"})
    assert reply.status_code == 404
    assert HEADER not in reply.headers
    found = reply.json()
    if ask in (chat, generate):
        assert "is not kept here" in found["error"]
    elif ask is anthropic:
        assert found["error"]["type"] == "not_found_error" and "is not kept here" in found["error"]["message"]
    else:
        assert found["error"]["code"] == "context_lost"


def test_several_choices_are_refused_and_leave_no_child(client: httpx.Client) -> None:
    parent = context(client, messages=MESSAGES)
    count = len(client.get("/v1/contexts").json()["data"])
    asked = {"messages": MORE, "n": 2, "max_tokens": 3}
    reply = client.post("/v1/chat/completions", json=asked, headers={HEADER: parent})
    assert reply.status_code == 400 and "n is 2; a context is continued by one choice" in reply.json()["error"]["message"]
    assert HEADER not in reply.headers
    assert len(client.get("/v1/contexts").json()["data"]) == count


def test_a_request_that_fails_leaves_no_child(client: httpx.Client) -> None:
    parent = context(client, tokens=list(range(10, 200)))
    before = client.get("/v1/contexts").json()["data"]
    long = {"prompt": list(range(10, 300)) * 10, "max_tokens": 3}
    reply = client.post("/v1/completions", json=long, headers={HEADER: parent})
    assert reply.status_code == 400 and reply.json()["error"]["code"] == "context_length_exceeded"
    assert HEADER not in reply.headers
    assert [one["id"] for one in client.get("/v1/contexts").json()["data"]] == [one["id"] for one in before]


def test_a_client_that_leaves_finds_what_was_generated(
    client: httpx.Client, tiny: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent = context(client, messages=MESSAGES)
    asked = {"messages": MORE, "max_tokens": 150, "stream": True, "temperature": 0, "ignore_eos": True}
    executor = tiny.site.models.loaded(tiny.model).executor
    collect, go_on, collected = executor.collect, threading.Event(), itertools.count()

    def held() -> Any:
        """The device answers twice, and then when it may."""
        assert next(collected) < 2 or go_on.wait(60)
        return collect()

    monkeypatch.setattr(executor, "collect", held)
    until = time.monotonic() + 60
    try:
        with client.stream("POST", "/v1/chat/completions", json=asked, headers={HEADER: parent}) as reply:
            child = tiny.site.shelf.find(reply.headers[HEADER])
            next(line for line in reply.iter_lines() if '"content":"' in line and '"content":""' not in line)
            used = openai(client, MORE, headers={HEADER: child.id})
            assert used.status_code == 409 and used.json()["error"]["code"] == "context_busy"
            prompt = len(child.tokens)
        while tiny.site.inside and time.monotonic() < until:
            time.sleep(0.01)
    finally:
        go_on.set()
    while child.busy and time.monotonic() < until:
        time.sleep(0.01)
    assert prompt < len(child.tokens) < prompt + 150
    assert client.get(f"/v1/contexts/{child.id}").json()["tokens"] == len(child.tokens)
    assert openai(client, MORE, headers={HEADER: child.id}).status_code == 200


def test_another_model_than_the_contexts_is_refused(client: httpx.Client, tiny: Any) -> None:
    parent = context(client, messages=MESSAGES)
    asked = {"messages": MORE, "max_tokens": 2, "model": tiny.model}
    assert client.post("/v1/chat/completions", json=asked, headers={HEADER: parent}).status_code == 200
    other = client.post("/v1/chat/completions", json=asked | {"model": "no-such-model"}, headers={HEADER: parent})
    assert other.status_code == 404


def test_a_response_is_a_context(client: httpx.Client, tiny: Any) -> None:
    first = responses(client, MESSAGES[1:])
    held = first.headers[HEADER]
    assert first.json()["id"].removeprefix("resp_") == held.removeprefix("ctx_")
    asked = {"input": "and of ferries", "previous_response_id": first.json()["id"], "max_output_tokens": 4, "temperature": 0}
    before = tokens(tiny, held)
    second = client.post("/v1/responses", json=asked)
    assert second.status_code == 200, second.text
    assert second.json()["usage"]["input_tokens_details"]["cached_tokens"] == len(before) - 1
    assert tokens(tiny, second.headers[HEADER])[: len(before)] == before
    assert look(client, second.headers[HEADER])["parent"] == held
    assert tokens(tiny, held) == before
    lost = client.post("/v1/responses", json=asked | {"previous_response_id": "resp_gone"})
    assert lost.status_code == 404
    assert lost.json()["error"]["code"] == "context_lost" and "previous_response_not_found" in lost.json()["error"]["message"]
    unstored = client.post("/v1/responses", json={"input": "a", "store": False, "max_output_tokens": 2})
    assert HEADER not in unstored.headers
    assert client.delete(f"/v1/responses/{first.json()['id']}").status_code == 200
    assert client.get(f"/v1/contexts/{held}").status_code == 404


def test_a_response_whose_context_went_is_gone_on_with_all_the_same(client: httpx.Client) -> None:
    first = responses(client, MESSAGES[1:])
    asked = {"input": "and of ferries", "previous_response_id": first.json()["id"], "max_output_tokens": 4, "temperature": 0}
    assert client.delete(f"/v1/contexts/{first.headers[HEADER]}").status_code == 200
    assert client.post("/v1/responses", json=asked).status_code == 200
    parent = context(client, messages=MESSAGES)
    held = responses(client, MORE, headers={HEADER: parent})
    assert client.delete(f"/v1/contexts/{held.headers[HEADER]}").status_code == 200
    lost = client.post("/v1/responses", json=asked | {"previous_response_id": held.json()["id"]})
    assert lost.status_code == 404 and lost.json()["error"]["code"] == "context_lost"


def test_ollamas_context_is_the_longest_known_prefix(client: httpx.Client) -> None:
    asked = {"prompt": "a long question about a lighthouse keeper and his dog", "stream": False,
             "options": {"num_predict": 6, "temperature": 0}}  # fmt: skip
    first = client.post("/api/generate", json=asked).json()
    again = client.post("/api/generate", json=asked | {"prompt": "why?", "context": first["context"]}).json()
    assert again["context"][: len(first["context"])] == first["context"]
    whole = (len(first["context"]) - 1) // 16 * 16
    assert again["llamay_cached_prompt_tokens"] == whole > 0


def test_a_miss_is_told_with_the_place_where_texts_part(client: httpx.Client, tiny: Any) -> None:
    story = "".join(f"and then came day {n}. " for n in range(12))
    parent = context(client, prompt=story + "the end of it was good")
    asked = {"max_tokens": 2, "temperature": 0, "messages": None}
    reply = client.post("/v1/chat/completions", json=asked | {"messages": [{"role": "user", "content": "quite other"}]})
    assert "llamay_cache_miss" not in reply.json()["usage"]
    said = [{"role": "user", "content": story}]
    kept = openai(client, [], headers={HEADER: context(client, messages=said)}).headers[HEADER]
    other = [{"role": "user", "content": story[:-8] + " quite other"}]
    usage = openai(client, other).json()["usage"]
    miss = usage["llamay_cache_miss"]
    assert set(miss) == {"context", "common", "of", "yours", "theirs"}
    assert miss["common"] * 2 >= usage["prompt_tokens"] and miss["of"] > miss["common"]
    assert "quite other" in miss["yours"] and "quite other" not in miss["theirs"]
    assert miss["context"].startswith("ctx_") and parent and kept


def test_another_question_behind_the_same_beginning_is_no_miss(client: httpx.Client) -> None:
    system = {"role": "system", "content": "".join(f"rule {n} is to be brief. " for n in range(8))}
    first = [system, {"role": "user", "content": "what is the sea"}]
    kept = openai(client, [], headers={HEADER: context(client, messages=first)})
    for question in ("name a river", [{"type": "text", "text": "name a "}, {"type": "text", "text": "lake"}]):
        other = openai(client, [system, {"role": "user", "content": question}]).json()["usage"]
        assert kept.status_code == 200 and "llamay_cache_miss" not in other
    dated = [{**system, "content": system["content"] + "it is noon"}, *first[1:]]
    assert "noon" in openai(client, dated).json()["usage"]["llamay_cache_miss"]["yours"]
