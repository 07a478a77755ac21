"""Requests in the statistics: those that are over, and an end to those that are not."""

import threading
import time
from collections.abc import Callable
from typing import Any

import httpx

LONG = {"messages": [{"role": "user", "content": "count"}], "ignore_eos": True, "temperature": 0}


def ended(client: httpx.Client) -> list[dict[str, Any]]:
    """Those that are over; what is told may be a moment old."""
    found: list[dict[str, Any]] = client.get("/v1/stats?pages=false").json()["ended"]
    return found


def test_what_is_over_is_told_without_its_words(client: httpx.Client, until: Callable[..., None]) -> None:
    body = {"messages": [{"role": "user", "content": "walrus"}], "max_tokens": 3, "seed": 1}
    before = [one["id"] for one in ended(client)]
    usage = client.post("/v1/chat/completions", json=body).json()["usage"]
    until(lambda: ended(client)[-1]["id"] not in before)
    found = client.get("/v1/stats")
    last = found.json()["ended"][-1]
    assert (last["prompt"], last["generated"]) == (usage["prompt_tokens"], usage["completion_tokens"])
    assert last["outcome"] in ("length", "end") and last["prefill"] > 0 and last["ended"] <= time.time()
    assert "walrus" not in found.text


def test_the_api_that_a_request_came_by_is_told(client: httpx.Client, until: Callable[..., None]) -> None:
    said = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 1, "stream": False}
    text = {"prompt": "hello", "max_tokens": 1, "n_predict": 1}
    for route, body, via in (
        ("/v1/chat/completions", said, "openai"), ("/v1/messages", said, "anthropic"), ("/v1/completions", text, "openai"),
        ("/api/chat", said, "ollama"), ("/completion", text, "llama.cpp"), ("/v1/contexts", {"prompt": "hello"}, "contexts"),
    ):  # fmt: skip
        assert client.post(route, json=body).is_success, route
        until(lambda via=via: ended(client)[-1]["via"] == via)


def test_a_request_is_ended_by_its_id(serving: Any, halt: Any, until: Callable[..., None]) -> None:
    server = serving()
    models = server.site.models
    held = halt.by_step(models.engine, models.load(models.default).executor)
    answers: list[httpx.Response] = []

    def ask() -> None:
        with server.client() as client:
            answers.append(client.post("/v1/chat/completions", json=LONG))

    asking = threading.Thread(target=ask)
    asking.start()
    with server.client() as client:
        requests: list[dict[str, Any]] = []
        until(lambda: requests or requests.extend(client.get("/v1/stats?pages=false").json()["models"][0]["requests"]))
        assert client.post(f"/v1/requests/{requests[0]['id']}/cancel").json()["cancelled"] is True
        held.go_on.set()
        asking.join(60)
        assert answers and answers[0].status_code == 200
        until(lambda: [one["outcome"] for one in ended(client)] == ["cancel"])


def test_what_is_not_under_way_is_not_found(client: httpx.Client) -> None:
    for id in ("9999999", "x", "1" * 30, "-1"):
        reply = client.post(f"/v1/requests/{id}/cancel")
        assert reply.status_code == 404 and "under way" in reply.json()["error"]["message"]
