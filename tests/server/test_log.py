"""The journal: a line a request, in two forms, and never a word of what was said."""

import json
import logging
from collections.abc import Callable
from typing import Any

import pytest

from llamay.server.log import Bare, Journal
from llamay.server.visits import Visit

SECRET = "xyzzy-plugh"


def lines_of(server: Any, form: str = "json") -> list[str]:
    found: list[str] = []
    server.site.journal = Journal(found.append, form)
    return found


def test_a_line_has_what_the_request_came_to(serving: Any, until: Callable[..., None]) -> None:
    server = serving()
    found = lines_of(server)
    asked = {"messages": [{"role": "user", "content": SECRET}], "max_tokens": 3, "temperature": 0}
    with server.client() as client:
        whole = client.post("/v1/chat/completions", json=asked, headers={"x-request-id": "first"})
        assert client.post("/v1/chat/completions", json={**asked, "stream": True}).status_code == 200
        assert client.get(f"/{SECRET}?q={SECRET}").status_code == 404
    until(lambda: len(found) == 3)
    first, second, third = [json.loads(line) for line in found]
    assert first["event"] == "request" and first["id"] == "first" and first["model"] == server.model
    assert (first["method"], first["route"], first["status"]) == ("POST", "/v1/chat/completions", 200)
    assert first["generated_tokens"] == whole.json()["usage"]["completion_tokens"] > 0 and first["ms"] > 0
    assert second["prompt_tokens"] == first["prompt_tokens"] and second["outcome"] == first["outcome"]
    assert third["status"] == 404 and third["route"] == "-"
    assert SECRET not in "".join(found) and whole.json()["choices"][0]["message"]["content"] not in "".join(found)


def test_a_fault_is_told_without_its_message(serving: Any, until: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    server = serving()
    found = lines_of(server, "text")

    def broken(*args: Any, **more: Any) -> None:
        raise KeyError(f"{SECRET} from the prompt")

    monkeypatch.setattr(server.site.models, "language", broken)
    with server.client() as client:
        reply = client.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": SECRET}]})
    assert reply.status_code == 500 and SECRET not in reply.text and reply.headers["x-should-retry"] == "false"
    until(lambda: len(found) == 2)
    fault, request = found
    assert " fault " in fault and "kind=KeyError" in fault and "test_log.py" in fault
    assert " request " in request and "status=500" in request
    assert SECRET not in fault + request


def test_a_stream_that_breaks_off_has_last_words(serving: Any, until: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    server = serving()
    found = lines_of(server)

    def broken(*args: Any, **more: Any) -> Any:
        raise RuntimeError(SECRET)

    from llamay.server import stats

    monkeypatch.setattr(stats, "value", broken)
    with server.client() as client:
        reply = client.get("/v1/stats?stream=true")
    assert reply.status_code == 200 and reply.text.endswith("data: [DONE]\n\n")
    assert json.loads(reply.text.split("\n\n")[0].removeprefix("data: "))["error"]["message"].startswith("internal error")
    until(lambda: len(found) == 2)
    fault, request = [json.loads(line) for line in found]
    assert fault["kind"] == "RuntimeError" and request["outcome"] == "fault" and SECRET not in "".join(found)
    until(lambda: server.site._watching == 0)


def test_text_is_logfmt() -> None:
    found: list[str] = []
    Journal(found.append, "text").visit(Visit("a", "127.0.0.1", "GET", "/v1/x y", 200))
    assert 'method=GET route="/v1/x y" status=200 ms=0.0 id=a from=127.0.0.1' in found[0]
    Journal(found.append, "none").visit(Visit("b"))
    assert len(found) == 1


def test_tracebacks_of_waitress_are_taken_off() -> None:
    try:
        raise ValueError(SECRET)
    except ValueError as error:
        record = logging.LogRecord("waitress", 40, "", 0, "Exception while serving %s", ("/v1",), (ValueError, error, error.__traceback__))
    assert Bare().filter(record)
    assert logging.Formatter().format(record) == "Exception while serving /v1: ValueError"
