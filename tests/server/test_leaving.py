"""Clients that go away: noticed within a step, in prefill and in decoding, streamed or not, and nothing stays behind."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from llamay.server.configuration import Configuration

LONG = {"messages": [{"role": "user", "content": "a b c " * 20}], "max_tokens": 100_000, "ignore_eos": True, "temperature": 0}
SLOW = 0.3  # seconds of a step: with those of LONG it takes a minute


def send(server: Any, body: dict[str, Any], route: str = "/v1/chat/completions") -> Any:
    sent = json.dumps(body).encode()
    connection = server.connect()
    connection.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (route.encode(), len(sent)) + sent)
    return connection


def executor_of(server: Any) -> Any:
    return server.site.models.load(server.site.models.default).executor


def slowed(server: Any) -> None:
    executor = executor_of(server)
    submit = executor.submit
    executor.submit = lambda batch, steps: (time.sleep(SLOW), submit(batch, steps))[1]


def states(server: Any) -> list[str]:
    return [one.state for model in server.site.models.engine.stats().models for one in model.requests]


def states_in_a_step(server: Any) -> list[str]:
    """While the engine's thread is in one, and is asked nothing."""
    told = [resident.stats() for resident in server.site.models.engine._residents.values()]
    return [one.state for model in told if model is not None for one in model.requests]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("state", ["decode", "prefill"])
def test_a_client_that_leaves_is_noticed_within_a_step(serving: Any, halt: Any, until: Callable[..., None], state: str, stream: bool) -> None:
    server = serving(Configuration(chunk=8 if state == "prefill" else 128))
    held = halt(executor_of(server))
    connection = send(server, {**LONG, "stream": stream, "cache_prompt": False})
    assert held.reached.wait(60)
    assert states_in_a_step(server) == [state]
    before = held.steps
    connection.close()
    until(lambda: server.site.inside == 0)  # it is noticed while the step runs
    held.go_on.set()
    until(lambda: not states(server))
    assert held.steps - before <= 1
    until(lambda: server.site.visiting == 0)
    server.site.models.engine.call(lambda scheduler: scheduler.cache.check_integrity(), server.model)
    assert server.site.models.engine.call(lambda scheduler: len(scheduler.cache.contexts), server.model) == 0


def test_a_client_that_waits_in_the_queue_may_leave_too(serving: Any, until: Callable[..., None]) -> None:
    server = serving(Configuration(batch=1, concurrency=1))
    slowed(server)
    first = send(server, LONG)
    until(lambda: "decode" in states(server))
    second = send(server, LONG)
    until(lambda: "waiting" in states(server))
    second.close()
    until(lambda: states(server) == ["decode"])
    first.close()
    until(lambda: server.site.inside == 0)


def test_whoever_finds_no_place_is_told(serving: Any, until: Callable[..., None]) -> None:
    server = serving(Configuration(batch=1, concurrency=1, queue=1))
    slowed(server)
    held = [send(server, LONG) for _ in range(2)]
    until(lambda: server.site.inside == 2)
    with server.client() as client:
        short = {**LONG, "max_tokens": 1}
        reply = client.post("/v1/chat/completions", json=short)
        assert reply.status_code == 429 and reply.headers["retry-after"] == "1"
        assert client.post("/v1/messages", json={k: v for k, v in short.items() if k != "ignore_eos"}).status_code == 529
        assert client.get("/healthz").status_code == 200
    for connection in held:
        connection.close()
    until(lambda: server.site.inside == 0)
