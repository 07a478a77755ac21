"""A request that fails after its stream has begun: the client is told, and the stream has its end."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

from llamay.errors import DeviceLost
from llamay.serve.events import Event, Text
from llamay.server.turn import Turn

ASKED = {"max_tokens": 20, "n_predict": 20, "max_output_tokens": 20, "temperature": 0, "ignore_eos": True, "stream": True}
BODIES: dict[str, Any] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hello"}]},
    "/v1/completions": {"prompt": ["hello", "and"]},
    "/v1/responses": {"input": "hello"},
    "/completion": {"prompt": "hello"},
}


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every turn loses its device after its first text."""
    whole = Turn.__iter__

    def events(turn: Turn) -> Iterator[Event | None]:
        for event in whole(turn):
            yield event
            if isinstance(event, Text):
                raise DeviceLost("the cable was pulled")

    monkeypatch.setattr(Turn, "__iter__", events)


@pytest.mark.parametrize("path", BODIES)
def test_a_stream_that_fails_has_its_end(client: httpx.Client, tiny, failing: None, until: Callable[..., None], path: str) -> None:
    reply = client.post(path, json={**ASKED, **BODIES[path]})
    assert reply.status_code == 200
    found = [line.removeprefix("data: ") for line in reply.text.split("\n") if line.startswith("data: ")]
    if path.startswith("/v1/") and path != "/v1/responses":
        assert found.pop() == "[DONE]"
    last = json.loads(found[-1])
    error = last["response"]["error"] if path == "/v1/responses" else last["error"]
    assert error["message"] == "the cable was pulled"
    if path == "/v1/responses":
        assert last["type"] == "response.failed" and last["response"]["status"] == "failed"
        assert [json.loads(line)["sequence_number"] for line in found] == list(range(len(found)))
        assert client.get(f"/v1/responses/{last['response']['id']}").status_code == 404
    until(lambda: tiny.site.inside == 0)


@pytest.mark.parametrize("path", BODIES)
def test_whole_it_has_a_status(client: httpx.Client, tiny, failing: None, until: Callable[..., None], path: str) -> None:
    reply = client.post(path, json={**ASKED, **BODIES[path], "stream": False})
    assert reply.status_code == 503 and reply.json()["error"]["message"] == "the cable was pulled"
    until(lambda: tiny.site.inside == 0)
