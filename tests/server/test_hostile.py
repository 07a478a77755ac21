"""Requests that nobody sends by mistake: what they ask for is refused or answered, and costs nobody else anything."""

import hashlib
import json
import logging
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest

from llamay.kv import snapshots
from llamay.server import turn
from llamay.server.openai import kept
from llamay.server.openai.kept import Kept, Stored

HELLO: dict[str, Any] = {"messages": [{"role": "user", "content": "hello"}]}
HUGE = "9" * 400


def sent(client: httpx.Client, route: str, field: str, value: str, **more: Any) -> httpx.Response:
    """Posts a body with a field whose JSON no encoder would write."""
    body = json.dumps(more)[:-1] + f", {json.dumps(field)}: {value}}}"
    return client.post(route, content=body.encode())


def final(text: str) -> dict[str, Any]:
    """The last data of a stream, or its last line."""
    lines = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith(("data: ", "{"))]
    found: dict[str, Any] = json.loads([line for line in lines if line != "[DONE]"][-1])
    return found


@pytest.mark.parametrize("route", ["/v1/chat/completions", "/v1/completions", "/completion"])
@pytest.mark.parametrize("value", [f"[[1, {HUGE}]]", f'[["a", -{HUGE}]]', f'{{"1": {HUGE}}}'])
def test_a_bias_beyond_every_float_is_refused(client: httpx.Client, route: str, value: str) -> None:
    reply = sent(client, route, "logit_bias", value, **HELLO, prompt="a", max_tokens=1)
    assert reply.status_code == 400, reply.text


@pytest.mark.parametrize("field", ["content", "summary"])
@pytest.mark.parametrize("value", [5, True, "a", {"a": 1}, [5], [{"text": 5}]])
def test_reasoning_of_any_shape_is_taken(client: httpx.Client, field: str, value: Any) -> None:
    given = [{"type": "reasoning", field: value}, {"role": "user", "content": "a"}]
    for route in ("/v1/responses", "/v1/responses/input_tokens"):
        reply = client.post(route, json={"input": given, "max_output_tokens": 1, "store": False})
        assert reply.status_code == 200, reply.text


def test_an_answer_of_no_tokens_has_its_end_in_every_family(client: httpx.Client) -> None:
    chat = client.post("/v1/chat/completions", json={**HELLO, "max_tokens": 0, "n": 2}).json()
    assert [(one["index"], one["message"]["content"], one["finish_reason"]) for one in chat["choices"]] == [
        (0, "", "length"), (1, "", "length"),
    ]  # fmt: skip
    told = client.post("/v1/chat/completions", json={**HELLO, "max_tokens": 0, "stream": True})
    assert final(told.text)["choices"][0]["finish_reason"] == "length" and told.text.endswith("data: [DONE]\n\n")
    texts = client.post("/v1/completions", json={"prompt": "a", "max_tokens": 0, "n": 2}).json()
    assert [(one["index"], one["text"], one["finish_reason"]) for one in texts["choices"]] == [(0, "", "length"), (1, "", "length")]
    response = client.post("/v1/responses", json={"input": "a", "max_output_tokens": 0}).json()
    assert response["status"] == "incomplete"
    message = client.post("/v1/messages", json={**HELLO, "max_tokens": 0})
    assert message.json()["stop_reason"] == "max_tokens", message.text
    assert final(client.post("/v1/messages", json={**HELLO, "max_tokens": 0, "stream": True}).text)["type"] == "message_stop"
    for route, body in (("/api/chat", HELLO), ("/api/generate", {"prompt": "a"})):
        for stream in (True, False):
            reply = client.post(route, json={**body, "stream": stream, "options": {"num_predict": 0}})
            assert final(reply.text)["done_reason"] == "length", reply.text


def test_methods_of_any_name_are_one_row_of_the_metrics(client: httpx.Client) -> None:
    for number in range(3):
        assert client.request(f"METHOD{number}", "/healthz").status_code == 400
    told = client.get("/metrics").text
    assert "METHOD" not in told and 'method="OTHER"' in told


def test_a_long_name_of_a_client_is_not_kept(client: httpx.Client) -> None:
    for body in ({"user": "u" * 100_000}, {"user": "u" * 100_000, "echo": True, "logprobs": 0}):
        assert client.post("/v1/completions", json={"prompt": "ab", "max_tokens": 1, **body}).status_code == 200
    assert client.post("/v1/messages", json={**HELLO, "max_tokens": 1, "metadata": {"user_id": "u" * 100_000}}).status_code == 200
    assert "u" * 300 not in client.get("/v1/stats").text


def test_unknown_options_are_one_line_of_the_log_without_what_is_no_name(client: httpx.Client, caplog: pytest.LogCaptureFixture) -> None:
    given = {"num_predict": 1, "My secret prompt": 1, **{f"unknown_{number}": 1 for number in range(1000)}}
    with caplog.at_level(logging.WARNING, "llamay.server"):
        assert client.post("/api/generate", json={"prompt": "a", "stream": False, "options": given}).status_code == 200
    assert [record.getMessage()[:56] for record in caplog.records] == ["1001 options are unknown and change nothing: unknown_0, "]
    assert len(caplog.text) < 500 and "secret" not in caplog.text


@pytest.mark.parametrize("stop", [["z" * 9000], ["z"] * 300, [f"{number:03}" * 15 for number in range(200)]])
def test_stop_strings_are_bounded(client: httpx.Client, stop: list[str]) -> None:
    """Each is looked for in every character, on the thread that all requests share."""
    asked = (
        ("/v1/chat/completions", {**HELLO, "stop": stop}),
        ("/v1/messages", {**HELLO, "stop_sequences": stop, "max_tokens": 1}),
        ("/api/generate", {"prompt": "a", "options": {"stop": stop}}),
    )
    for route, body in asked:
        reply = client.post(route, json=body)
        assert reply.status_code == 400 and "stop strings" in reply.text, reply.text


@pytest.mark.parametrize("bias", [{str(number): 1 for number in range(20_000)}, [["a" * 1000, 1]]])
def test_a_bias_is_bounded(client: httpx.Client, bias: Any) -> None:
    reply = client.post("/v1/completions", json={"prompt": "a", "logit_bias": bias})
    assert reply.status_code == 400 and "it may have" in reply.text


def test_responses_are_kept_by_all_that_they_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_BYTES", 10_000)
    found = Kept()
    for number in range(20):
        found.put(Stored({"id": str(number), "metadata": {"a": "x" * 1000}}, [{"junk": "y" * 2000}], None))
    assert found.get("19") and len(found._found) == 3
    found.remove("19")
    found.put(Stored({"id": "20"}, [], None))
    assert found._size < 10_000


def test_a_file_that_is_no_model_is_told_by_its_name(client: httpx.Client, folders: dict[str, Path]) -> None:
    """Not by where this machine keeps it."""
    sent = b"this is no model at all, though it is long enough for a header"
    digest = f"sha256:{hashlib.sha256(sent).hexdigest()}"
    assert client.post(f"/api/blobs/{digest}", content=sent).status_code == 201
    reply = client.post("/api/create", json={"model": "broken", "files": {"mine.gguf": digest}, "stream": False})
    assert reply.status_code == 400 and reply.json()["error"].startswith("mine.gguf: "), reply.text
    assert str(folders["models"]) not in reply.text


def test_a_model_that_went_bad_is_told_by_its_name(serving: Callable[..., Any], tmp_path: Path) -> None:
    path = tmp_path / "secret-place" / "bad.gguf"
    path.parent.mkdir()
    path.write_bytes(b"GGUF" + b"\xff" * 100)
    server = serving(model=path)
    with server.client() as client:
        for route, body in (("/v1/chat/completions", HELLO), ("/api/show", {"model": "bad"}), ("/tokenize", {"content": "a"})):
            reply = client.post(route, json=body)
            assert reply.status_code == 400 and "bad: " in reply.text and "secret-place" not in reply.text, reply.text


def test_a_method_that_a_route_does_not_take_is_told_with_those_it_takes(client: httpx.Client) -> None:
    reply = client.delete("/v1/stats")
    assert reply.status_code == 405 and "does not take DELETE; it takes GET" in reply.json()["error"]["message"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_step_that_lasts_beyond_the_end_of_the_server_takes_no_last_words(
    serving: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, stream: bool
) -> None:
    monkeypatch.setattr(turn, "LAST", 0.2)
    server = serving()
    engine, over = server.site.models.engine, threading.Event()
    with server.client() as client:
        assert client.post("/v1/completions", json={"prompt": "a", "max_tokens": 1}).status_code == 200  # it is loaded
        body = {"prompt": "a", "max_tokens": 200, "ignore_eos": True, "stream": stream}
        engine.post(lambda: (server.site.cut.set(), over.wait(60)))
        reply = client.post("/v1/completions", json=body)
        assert not over.is_set()
        over.set()
    assert "the server was closed" in reply.text and reply.text.endswith("data: [DONE]\n\n") == (stream and reply.status_code == 200)


def test_a_restored_context_that_finds_no_place_is_given_up(
    serving: Callable[..., Any], until: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serving()
    with server.client() as client:
        id = client.post("/v1/contexts", json={"prompt": "hello there, my friend"}).json()["id"]
        assert client.post(f"/v1/contexts/{id}/snapshot", json={"name": "crowded"}).status_code == 201
        site, find = server.site, snapshots.restore

        def later(*given: Any, **more: Any) -> Any:
            return replace(find(*given, **more), pending=(1, 2, 3))

        monkeypatch.setattr(snapshots, "restore", later)
        site._inside = site.configuration.places
        reply = client.post("/v1/contexts/restore", json={"snapshot": "crowded"})
        site._inside = 0
        assert reply.status_code == 429, reply.text
        until(lambda: len(site.shelf.all()) == 1)
        assert [one.id for one in site.shelf.all()] == [id]
