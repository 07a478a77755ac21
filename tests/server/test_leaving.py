"""Clients that go away: noticed within a step, in prefill and in decoding, streamed or not, and nothing stays behind."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from llamay.server.configuration import Configuration

MOST = 6  # submissions of 0.1 s: one under way, one queued behind it, and time for threads to be woken where others compute
LONG = {"messages": [{"role": "user", "content": "a b c " * 20}], "max_tokens": 100_000, "ignore_eos": True, "temperature": 0}


def send(server: Any, body: dict[str, Any], route: str = "/v1/chat/completions") -> Any:
    sent = json.dumps(body).encode()
    connection = server.connect()
    connection.sendall(b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % (route.encode(), len(sent)) + sent)
    return connection


def slowed(server: Any, seconds: float) -> list[str]:
    """Makes each step take so long; the list grows by what is submitted."""
    steps: list[str] = []
    executor = server.site.models.load(server.site.models.default).executor
    submit, forward = executor.submit, executor.forward

    def after(do: Any) -> Any:
        def run(*args: Any) -> Any:
            steps.append(do.__name__)
            time.sleep(seconds)
            return do(*args)

        return run

    executor.submit, executor.forward = after(submit), after(forward)
    return steps


def states(server: Any) -> list[str]:
    return [one.state for model in server.site.models.engine.stats().models for one in model.requests]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("state", ["decode", "prefill"])
def test_a_client_that_leaves_is_noticed_within_a_step(serving: Any, until: Callable[..., None], state: str, stream: bool) -> None:
    server = serving(Configuration(chunk=8 if state == "prefill" else 128))
    steps = slowed(server, 0.1)
    connection = send(server, {**LONG, "stream": stream, "cache_prompt": False})
    until(lambda: state in states(server))
    before = len(steps)
    connection.close()
    until(lambda: server.site.inside == 0)
    until(lambda: not states(server))
    assert len(steps) - before <= MOST
    until(lambda: server.site.visiting == 0)
    server.site.models.engine.call(lambda scheduler: scheduler.cache.check_integrity(), server.model)
    assert server.site.models.engine.call(lambda scheduler: len(scheduler.cache.contexts), server.model) == 0


def test_a_client_that_waits_in_the_queue_may_leave_too(serving: Any, until: Callable[..., None]) -> None:
    server = serving(Configuration(batch=1, concurrency=1))
    slowed(server, 0.2)
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
    slowed(server, 0.2)
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
