"""/openapi.json: it has every route, and whatever it allows, or does not, is answered without a fault.

`LLAMAY_SOAK` scales the soak tier (1 is 100 cases an operation).
"""

import json
import os
from collections import Counter
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from llamay.server import app
from llamay.server.configuration import Configuration

FEW = 2
MANY = max(FEW, round(100 * float(os.environ.get("LLAMAY_SOAK", "1"))))
AWAY = ("/api/pull",)  # would ask other machines
WAIT = 60.0  # seconds for a reply
SOUND: dict[str, Any] = {  # so that more than names and messages is looked at
    "model": "", "messages": [{"role": "user", "content": "hello"}], "llamay_context": None, "previous_response_id": None,
    "tools": None, "functions": None, "response_format": None, "conversation": None, "background": None, "text": None,
    "modalities": None, "tool_choice": None, "thinking": None, "output_config": None, "output_format": None, "format": None,
}  # fmt: skip


def fuzz(server: Any, mode: str, count: int) -> Counter[int]:
    """Sends so many cases to each operation; returns how many replies had which status."""
    import schemathesis  # takes seconds: only who runs this waits for it

    wrong = mode == "negative"
    with server.client() as client:
        schema = schemathesis.openapi.from_dict(client.get("/openapi.json").json())
    seen = Counter[int]()
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path in AWAY or f"/v1{operation.path}" in server.paths:
            continue
        if wrong and not (operation.body or operation.query):
            continue  # there is nothing to be wrong

        @settings(max_examples=count, deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck), phases=[Phase.generate])
        @given(operation.as_strategy(generation_mode=schemathesis.GenerationMode(mode)))
        def run(case: Any) -> None:
            if case.path == "/v1/stats":
                case.query = {**(case.query or {}), "stream": "false"}  # which would not end
            if not wrong and isinstance(case.body, dict):
                case.body = {**case.body, **{name: value for name, value in SOUND.items() if name in case.body}}
            reply = case.call(base_url=server.url, timeout=WAIT)
            seen[reply.status_code] += 1
            told = f"{case.as_curl_command()}\n{reply.status_code} {reply.text[:2000]}"
            assert reply.status_code not in (500, 503), told
            assert reply.status_code != 501 or reply.headers.get("x-should-retry") == ["false"], told
            if reply.status_code >= 400 and reply.text:
                assert "error" in reply.json(), told

        run()
    return seen


@pytest.fixture
def short(serving: Any) -> Any:
    """A server whose answers are short."""
    found = serving(Configuration(), context=64)
    return SimpleNamespace(url=found.url, client=found.client, site=found.site, paths=set(app.routes(found.site)))


@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_whatever_is_sent_is_answered(short: Any, mode: str) -> None:
    seen = fuzz(short, mode, FEW)
    assert seen.total() > 40 and seen[400] and (mode == "negative" or seen[200] > 20), seen


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", ["positive", "negative"])
def test_whatever_is_sent_is_answered_for_long(short: Any, mode: str) -> None:
    fuzz(short, mode, MANY)
    engine = short.site.models.engine
    assert not any(model.requests for model in engine.stats().models)


def test_every_route_is_described(client: httpx.Client, tiny: Any) -> None:
    found = client.get("/openapi.json").json()
    assert found["openapi"] == "3.1.0"
    for path, resource in app.routes(tiny.site).items():
        described = found["paths"][path.replace(":path}", "}")]
        methods = {name.removeprefix("on_") for name in dir(resource) if name.startswith("on_")}
        assert methods == set(described) - {"parameters"}, path
        for method, type in getattr(resource, "takes", {}).items():
            schema = described[method.lower()]["requestBody"]["content"]["application/json"]["schema"]
            assert schema["$ref"].startswith("#/components/schemas/"), type
    ids = [one["operationId"] for path in found["paths"].values() for name, one in path.items() if name != "parameters"]
    assert len(ids) == len(set(ids))


def test_a_method_is_described_in_its_own_words(client: httpx.Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert paths["/v1/contexts"]["get"]["description"] == "All of them, the oldest first."
    assert paths["/v1/contexts"]["post"]["description"] == "Makes one, and computes it."
    assert "description" not in paths["/v1/completions"]["post"]


def test_every_reference_leads_somewhere(client: httpx.Client) -> None:
    found = client.get("/openapi.json").json()
    references = [part.split('"')[0] for part in json.dumps(found).split('"#/components/schemas/')[1:]]
    assert references and set(references) <= set(found["components"]["schemas"])
