"""What the server tells about itself: health, readiness, statistics, metrics, ids of requests."""

import json
import re
import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import pytest

from llamay.errors import DeviceLost
from llamay.server import site as sites
from llamay.server.configuration import Configuration

HELLO = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "temperature": 0}


def answered(client: httpx.Client) -> None:
    assert client.post("/v1/chat/completions", json=HELLO).status_code == 200


def test_health_names_device_and_kv_format(client: httpx.Client, tiny: Any) -> None:
    answered(client)
    found = client.get("/healthz").json()
    assert found["status"] == "ok" and found["kv"] == "f32" and found["device"]
    assert found["models"] == [{"model": tiny.model, "device": found["device"]}]
    assert client.head("/healthz").status_code == 200
    assert client.get("/health").json() == client.get("/v1/health").json() == {"status": "ok"}


def test_ready_says_no_while_a_model_is_loaded(serving: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    server = serving()
    held, models = threading.Event(), server.site.models
    opened = models.engine._open
    monkeypatch.setattr(models.engine, "_open", lambda name: held.wait(60) and opened(name))
    with server.client() as client:
        assert client.get("/readyz").json() == {"status": "ready"}
        asking = threading.Thread(target=answered, args=(client,))
        asking.start()
        while not (reply := client.get("/readyz")).is_error:
            time.sleep(0.02)
        assert reply.status_code == 503 and reply.headers["x-should-retry"] == "true"
        assert client.get("/health").json()["error"]["message"].startswith("Loading model")
        assert client.get("/healthz").status_code == 200, "it lives"
        held.set()
        asking.join(60)
        assert client.get("/readyz").status_code == 200


def test_a_lost_device_is_remembered_until_the_model_is_loaded_again(serving: Any) -> None:
    server = serving()
    with server.client() as client:
        answered(client)
        loaded = server.site.models.loaded(server.model)

        def lost(*args: Any) -> None:
            raise DeviceLost("the device was lost: a test took it")

        loaded.executor.submit = loaded.executor.forward = lost
        reply = client.post("/v1/chat/completions", json=HELLO)
        assert reply.status_code == 503 and reply.headers["x-should-retry"] == "true"
        ready = client.get("/readyz")
        assert ready.status_code == 503 and "a test took it" in ready.text
        until = time.monotonic() + 60
        while client.get("/readyz").status_code != 200:  # it asked for the model to be loaded again
            assert time.monotonic() < until
            time.sleep(0.05)
        assert client.get("/healthz").json()["lost"] == {}
        answered(client)


def test_statistics_have_a_map_of_the_pages(client: httpx.Client, tiny: Any) -> None:
    answered(client)
    found = client.get("/v1/stats").json()
    (model,) = found["models"]
    assert model["name"] == tiny.model and model["requests"] == [] and model["times"]["steps"] > 0
    (group,) = model["pages"]
    assert sum(run[0] for run in group["map"]) == group["pages"]
    assert sum(run[0] for run in group["map"] if run[2] == 0) == group["free"]
    assert sum(run[0] for run in group["map"] if run[3]) == group["both"] + group["tree"]
    assert "map" not in client.get("/v1/stats?pages=false").json()["models"][0]["pages"][0]
    assert "hello" not in json.dumps(found)


def test_statistics_stream(serving: Any, until: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sites, "WATCHERS", 1)
    server = serving()
    with server.client() as client:
        began = time.monotonic()
        with client.stream("GET", "/v1/stats?stream=true&interval=0.1") as reply:
            assert reply.headers["content-type"].startswith("text/event-stream")
            lines = [line for line, _ in zip(filter(None, reply.iter_lines()), range(5), strict=False)]
            assert client.get("/v1/stats?stream=true").status_code == 429, "there is place for one"
            assert client.get("/v1/stats").status_code == 200
        assert time.monotonic() - began > 0.3
        assert all(json.loads(line.removeprefix("data: "))["object"] == "stats" for line in lines)
        until(lambda: server.site._watching == 0)
        server.site.closing.set()  # so that a stream ends
        assert client.get("/v1/stats?stream=true&interval=9").status_code == 200, "there is place again"


@pytest.mark.parametrize("query", ["interval=0", "interval=nan", "interval=x", "stream=maybe", "pages=2", "interval=1e9"])
def test_wrong_queries_are_refused(client: httpx.Client, query: str) -> None:
    assert client.get(f"/v1/stats?{query}").status_code == 400


def test_metrics_are_prometheus_text_under_all_three_names(serving: Any, until: Callable[..., None]) -> None:
    with serving().client() as client:
        for _ in range(2):
            answered(client)
        assert client.get("/nowhere").status_code == 404
        until(lambda: 'status="404"} 1' in client.get("/metrics").text)
        reply = client.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain; version=0.0.4")
    values: dict[str, float] = {}
    typed: set[str] = set()
    for line in reply.text.splitlines():
        if line.startswith("# TYPE"):
            name = line.split()[2]
            assert name not in typed, f"{name} is told twice"
            typed.add(name)
        elif not line.startswith("#"):
            found = re.fullmatch(r"([a-z_:0-9]+)(\{(?:[a-z_]+=\"[^\"]*\",?)+\})? (\S+)", line)
            assert found, line
            assert re.sub(r"_(bucket|sum|count)$", "", found[1]) in typed or found[1] in typed
            values[found[1] + (found[2] or "")] = float(found[3])
    assert values['llamay_requests_total{outcome="length"}'] + values.get('llamay_requests_total{outcome="end"}', 0) == 2
    assert values["llamay_time_to_first_token_seconds_count"] == values["vllm:time_to_first_token_seconds_count"] == 2
    for name in ("inter_token", "queue", "prefill", "decode", "request"):
        assert f"llamay_{name}_seconds_count" in values
    assert values['llamay_queue_seconds_bucket{le="+Inf"}'] == 2
    assert values["llamay_prompt_tokens_total"] == values["vllm:prompt_tokens_total"] > 0
    assert values["llamay_generated_tokens_total"] == values["llamacpp:tokens_predicted_total"] > 0
    assert values['llamay_prefix_tokens_total{result="hit"}'] == values["vllm:prefix_cache_hits_total"]
    assert {"llamacpp:prompt_seconds_total", "llamacpp:requests_processing", "vllm:num_requests_waiting"} <= set(values)
    assert any(name.startswith("llamay_kv_pages{") for name in values)
    assert values['llamay_http_replies_total{method="POST",route="/v1/chat/completions",status="200"}'] == 2
    assert values['llamay_http_replies_total{method="GET",route="-",status="404"}'] == 1


def test_every_reply_has_an_id_that_a_client_may_choose(client: httpx.Client) -> None:
    for route in ("/healthz", "/nowhere", "/v1/messages", "/api/nowhere"):
        reply = client.get(route)
        assert re.fullmatch(r"req_[0-9a-f]{24}", reply.headers["request-id"])
        assert reply.headers["request-id"] == reply.headers["x-request-id"]
        assert client.get(route, headers={"x-request-id": "mine-1.2:3"}).headers["request-id"] == "mine-1.2:3"
        assert client.get(route, headers={"x-request-id": "a b"}).headers["request-id"].startswith("req_")
    wrong = client.post("/v1/messages", json={}, headers={"request-id": "mine"})
    assert wrong.json()["request_id"] == wrong.headers["request-id"] == "mine"


@pytest.mark.parametrize(("route", "key"), [("/v1/nowhere", "code"), ("/v1/messages/nowhere", "type"), ("/api/nowhere", None), ("/", None)])
def test_what_is_no_route_is_told_in_the_words_of_the_family(client: httpx.Client, route: str, key: str | None) -> None:
    reply = client.patch(route)
    assert reply.status_code in (404, 405)
    told = reply.json()["error"]
    assert isinstance(told, str) if key is None else key in told


def test_a_wrong_method_says_which_are_right(client: httpx.Client) -> None:
    reply = client.delete("/v1/chat/completions")
    assert reply.status_code == 405 and "POST" in reply.headers["allow"]
    assert reply.json()["error"]["type"] == "invalid_request_error"


def test_places_by_address() -> None:
    made = Configuration(concurrency=4, queue=8)
    assert made.places_of("127.0.0.1") is made.places_of("::1") is made.places_of("::ffff:127.0.0.1") is None
    assert made.places_of("192.168.0.4") == 6
    assert Configuration(per_client=3).places_of("127.0.0.1") == 3
