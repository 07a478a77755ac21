"""Who may do what: every rule has a probe that it refuses, and the same probe passes once the rule is taken out."""

import contextlib
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from llamay.errors import UsageError
from llamay.serve.models import Models, Served
from llamay.server import bodies, listening
from llamay.server.configuration import Configuration
from llamay.server.guards import Guards
from llamay.tok.budget import Budget, Limits
from llamay.tok.chat import ChatTemplate
from llamay.tok.sandbox import Sandbox

EVIL = "https://evil.example"
TINY = Path(__file__).parents[1] / "data" / "models" / "llama-gqa.f16.gguf"
COUNT = "/v1/messages/count_tokens"
HELLO = {"messages": [{"role": "user", "content": "hello"}]}
LOOP = "{% for a in range(2000) %}{% for b in range(12) %}{% endfor %}{% endfor %}{{ messages[0].content }}"
PATIENCE = 60.0  # seconds that a probe waits for the end of its connection
REACH = "{{ messages.__class__.__name__ }}"

Patch = pytest.MonkeyPatch


def rebinding(server: Any) -> bool:
    with server.client() as client:
        return all(client.get(path, headers={"host": "evil.example"}).status_code == 403 for path in ("/healthz", "/no"))


def form(server: Any) -> bool:
    """What `<form enctype=text/plain>` of another site sends."""
    with server.client() as client:
        sent = b'{"messages":[{"role":"user","content":"hello"}]}'
        return client.post(COUNT, content=sent, headers={"origin": EVIL, "content-type": "text/plain"}).status_code == 403


def no_origin(server: Any) -> bool:
    with server.client() as client:
        return client.post(COUNT, json=HELLO, headers={"sec-fetch-site": "cross-site"}).status_code == 403


def wrong_key(server: Any) -> bool:
    with server.client() as client:
        return client.get("/v1/stats", headers={"authorization": "Bearer secreT"}).status_code == 401


def large(server: Any) -> bool:
    with server.client() as client:
        return client.post(COUNT, json={**HELLO, "metadata": {"x": "y" * 3000}}).status_code == 413


def many_parts(server: Any) -> bool:
    with server.client() as client:
        return client.post(COUNT, json={**HELLO, "extra": [[]] * 2000}).status_code == 413


def deep(server: Any) -> bool:
    value: list[Any] = []
    for _ in range(200):
        value = [value]
    with server.client() as client:
        return client.post(COUNT, json={**HELLO, "extra": value}).status_code == 400


def drip(server: Any) -> bool:
    """A byte of a header now and then; refused: the connection is ended."""
    with server.connect() as connection, contextlib.suppress(OSError):
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        connection.settimeout(0.1)
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            connection.sendall(b"X: y\r\n")
            with contextlib.suppress(TimeoutError):
                return connection.recv(1) == b""
        connection.sendall(b"\r\n")
        connection.settimeout(60)
        return not connection.recv(100).startswith(b"HTTP/1.1 200")
    return True


def flood(server: Any) -> bool:
    with server.connect() as connection, contextlib.suppress(OSError):
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n")
        for number in range(2000):
            connection.sendall(b"X-%d: %s\r\n" % (number, b"y" * 40))
        connection.sendall(b"\r\n")
        return not connection.recv(100).startswith(b"HTTP/1.1 200")
    return True


def stall(server: Any) -> bool:
    """Asks for more than is ever read; refused: the connection is ended before all of it was written."""
    with socket.socket() as connection, contextlib.suppress(ConnectionError):
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16384)
        connection.connect(("127.0.0.1", server.port))
        for _ in range(200):
            connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            connection.sendall(b"\r\n")  # not read while a reply waits; fails once the connection is ended
            time.sleep(0.05)
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        found = b"".join(iter(lambda: connection.recv(1 << 20), b""))
        return found.count(b"HTTP/1.1 200") < 201
    return True


def path(server: Any) -> bool:
    with server.client() as client:
        return client.post(COUNT, json={**HELLO, "model": str(TINY)}).status_code in (400, 404)


def templated(source: str) -> Callable[[Any], bool]:
    def probe(server: Any) -> bool:
        models = server.site.models
        models.language(models.default).template = ChatTemplate(source, limits=Limits(steps=5000))
        with server.client() as client:
            return client.post(COUNT, json=HELLO).status_code == 400

    return probe


def patient(patch: Patch) -> None:
    """Nobody is ended for being slow, and who tries it gives up soon."""
    patch.setattr(listening.Channel, "overdue", lambda channel, patience: False)
    patch.setattr(sys.modules[__name__], "PATIENCE", 1.2)


def crowd(server: Any) -> bool:
    with server.client() as client, client.stream("GET", "/v1/stats?stream=true"):
        return client.get("/v1/stats").status_code == 429


@dataclass(frozen=True)
class Rule:
    """A probe that must be refused, and how the rule is taken out."""

    probe: Callable[[Any], bool]
    out: Callable[[Patch], None]
    made: Configuration = field(default_factory=Configuration)


def nothing(*args: Any) -> None:
    pass


read = bodies.document
RULES = {
    "host": Rule(rebinding, lambda patch: patch.setattr(Guards, "host", nothing)),
    "form": Rule(form, lambda patch: patch.setattr(Guards, "_change", nothing)),
    "fetch": Rule(no_origin, lambda patch: patch.setattr(Guards, "_change", nothing)),
    "key": Rule(wrong_key, lambda patch: patch.setattr(Guards, "key", nothing), Configuration(api_key="secret")),
    "size": Rule(large, lambda patch: patch.setattr(bodies, "document", lambda request, most: read(request, 1 << 30)), Configuration(body=1000)),
    "parts": Rule(many_parts, lambda patch: patch.setattr(bodies, "MOST_PARTS", 1 << 30)),
    "depth": Rule(deep, lambda patch: patch.setattr(bodies, "_depth", lambda raw: 0)),
    "loris": Rule(drip, patient, Configuration(patience=0.2)),
    "stall": Rule(stall, patient),
    "flood": Rule(flood, lambda patch: patch.setattr(listening, "MOST_HEADER", 1 << 30)),
    "path": Rule(path, lambda patch: patch.setattr(Models, "served", lambda models, name="": Served("x", Path(name)))),
    "loop": Rule(templated(LOOP), lambda patch: patch.setattr(Budget, "step", nothing)),
    "reach": Rule(templated(REACH), lambda patch: patch.setattr(Sandbox, "is_safe_attribute", lambda *args: True)),
    "crowd": Rule(crowd, lambda patch: patch.setattr(Guards, "crowd", nothing), Configuration(per_client=1)),
}  # fmt: skip


@pytest.fixture
def tight(monkeypatch: Patch) -> Iterator[None]:
    """Bounds that a quick test can reach."""
    monkeypatch.setattr(bodies, "MOST_PARTS", 1000)
    monkeypatch.setattr(listening, "STALL", 0.5)
    monkeypatch.setattr(listening, "LOOK", 0.1)
    yield


@pytest.mark.parametrize("name", RULES)
@pytest.mark.usefixtures("tight")
def test_a_rule_refuses_its_probe(name: str, serving) -> None:
    rule = RULES[name]
    assert rule.probe(serving(rule.made))


@pytest.mark.parametrize("name", RULES)
@pytest.mark.usefixtures("tight")
def test_without_the_rule_the_probe_passes(name: str, serving, monkeypatch: Patch) -> None:
    rule = RULES[name]
    rule.out(monkeypatch)
    assert not rule.probe(serving(rule.made))


# what the rules leave alone


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:80", "[::1]:11435", "LOCALHOST.", "app.localhost", "127.9.9.9"])
def test_a_host_of_this_machine_is_answered(client: httpx.Client, host: str) -> None:
    assert client.get("/healthz", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "localhost.evil.example", "localhost@evil.example", "127.0.0.1.evil.example", "192.168.0.9",
             "localhost, evil.example", "[::2]", "", "localhost:80:80", "0.0.0.0", "a b"],
)  # fmt: skip
def test_a_host_of_others_is_refused_on_every_route(client: httpx.Client, host: str) -> None:
    for method, route in (("GET", "/healthz"), ("GET", "/"), ("POST", "/v1/chat/completions"), ("GET", "/%2e%2e/no")):
        reply = client.request(method, route, headers={"host": host})
        assert reply.status_code == 403 and "error" in reply.json()


def test_hosts_may_be_named_and_the_address_itself_is_known(serving) -> None:
    server = serving(Configuration(host="0.0.0.0", hosts=("models.lan",)))
    with server.client() as client:
        for host, status in (("models.lan:1", 200), (socket.gethostname(), 200), ("127.0.0.1", 200), ("other.lan", 403), ("10.9.8.7", 403)):
            assert client.get("/healthz", headers={"host": host}).status_code == status, host


def test_a_client_without_origin_and_type_is_served(client: httpx.Client) -> None:
    reply = client.post(COUNT, content=b'{"messages":[{"role":"user","content":"hello"}]}')
    assert reply.status_code == 200, reply.text


def test_nobody_is_told_that_pages_may_read(client: httpx.Client) -> None:
    for route in ("/healthz", "/v1/stats", "/nowhere"):
        reply = client.get(route, headers={"origin": EVIL})
        assert not [name for name in reply.headers if name.startswith("access-control")]
    asked = {"origin": EVIL, "access-control-request-method": "POST"}
    assert client.options("/v1/chat/completions", headers=asked).status_code == 403


def test_a_page_without_an_address_is_told_to_have_one(client: httpx.Client) -> None:
    """Never to allow `null`: a sandboxed frame of any site sends that."""
    asked = {"origin": "null", "access-control-request-method": "POST"}
    for reply in (client.options(COUNT, headers=asked), client.post(COUNT, json=HELLO, headers={"origin": "null"})):
        message = reply.json()["error"]["message"]
        assert reply.status_code == 403 and "-origins http://" in message and "-origins null" not in message


@pytest.mark.parametrize("origin", ["null", "https://chat.example/", "chat.example", "https://a b"])
def test_an_origin_that_cannot_be_meant_is_refused(origin: str) -> None:
    with pytest.raises(UsageError, match="origins holds"):
        Configuration(origins=("https://chat.example", origin))


def test_pages_that_are_named_may_call(serving) -> None:
    page = "https://chat.example"
    server = serving(Configuration(origins=(page,), api_key="secret"))
    asked = {
        "origin": page, "access-control-request-method": "POST",
        "access-control-request-headers": "authorization, content-type, x-stainless-os, anthropic-version, x-llamay-context, cookie",
    }  # fmt: skip
    with server.client() as client:
        allowed = client.options("/v1/chat/completions", headers=asked)
        assert allowed.status_code == 204 and allowed.headers["access-control-allow-origin"] == page
        names = allowed.headers["access-control-allow-headers"]
        assert names == "authorization, content-type, x-stainless-os, anthropic-version, x-llamay-context"
        key = {"authorization": "Bearer secret", "origin": page}
        reply = client.post(COUNT, json=HELLO, headers=key)
        assert reply.status_code == 200 and reply.headers["access-control-allow-origin"] == page
        assert "Origin" in reply.headers["vary"] and "access-control-allow-credentials" not in reply.headers
        assert client.post(COUNT, content=b"{}", headers=key).status_code == 403, "a page has to name its type"
        assert client.post(COUNT, json=HELLO, headers={**key, "origin": "https://other.example"}).status_code == 403


def test_all_pages_may_call_where_the_owner_says_so(serving) -> None:
    with serving(Configuration(origins=("*",))).client() as client:
        reply = client.post(COUNT, json=HELLO, headers={"origin": EVIL})
        assert reply.status_code == 200 and reply.headers["access-control-allow-origin"] == "*"
        assert "access-control-allow-credentials" not in reply.headers


def test_a_key_opens_by_either_header_and_health_needs_none(serving) -> None:
    with serving(Configuration(api_key="sécret")).client() as client:
        key = "sécret".encode()
        for headers in ({"authorization": b"Bearer " + key}, {"x-api-key": key}):
            assert client.get("/v1/stats", headers=headers).status_code == 200
        for route in ("/v1/stats", "/metrics", "/openapi.json", "/nowhere"):
            assert client.get(route).status_code == 401
        assert [client.get(route).status_code for route in ("/healthz", "/readyz", "/health", "/v1/health")] == [200] * 4
        assert client.get("/v1/stats").json()["error"]["code"] == "invalid_api_key"


def test_a_body_of_ten_thousand_levels_is_refused(client: httpx.Client) -> None:
    for route in ("/v1/chat/completions", COUNT):
        for sent in (b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}", b'{"a":' * 10_000 + b"1" + b"}" * 10_000):
            reply = client.post(route, content=sent)
            assert reply.status_code == 400 and "nested too deeply" in reply.text


def test_what_waitress_refuses_is_told_in_the_words_of_the_family(serving) -> None:
    server = serving(Configuration(body=1000))
    shapes = {"/v1/chat/completions": "code", "/v1/messages": "type", "/api/chat": None}
    with server.client() as client:
        for route, key in shapes.items():
            reply = client.post(route, content=b"x" * 9000)
            assert reply.status_code == 413, reply.text
            told = reply.json()["error"]
            assert isinstance(told, str) if key is None else key in told
    for sent, status in ((b"NONSENSE\r\n\r\n", b"400"), (b"GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: br\r\n\r\n", b"501")):
        with server.connect() as connection:
            connection.sendall(sent)
            reply_bytes = b"".join(iter(lambda: connection.recv(4096), b""))
            assert reply_bytes.split(b" ")[1] == status and b'"error"' in reply_bytes
            assert (b"x-should-retry: false" in reply_bytes.lower()) == (status == b"501")


def test_drips_do_not_keep_others_out(serving) -> None:
    """More unfinished requests than there are connections: those that waited longest give way."""
    server = serving(Configuration(concurrency=1, queue=1, patience=3600.0))
    with contextlib.ExitStack() as stack:
        for _ in range(server.site.configuration.threads + listening.SPARE + 10):
            connection = stack.enter_context(server.connect())
            connection.sendall(b"GET / HTTP/1.1\r\n")
        with server.client() as client:
            assert client.get("/healthz").status_code == 200


def test_pictures_are_not_fetched(client: httpx.Client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.settimeout(0.3)
        url = f"http://127.0.0.1:{trap.getsockname()[1]}/a.png"
        parts = [{"type": "image_url", "image_url": {"url": url}}]
        for route, message in (
            ("/v1/chat/completions", {"role": "user", "content": parts}),
            ("/v1/messages", {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": url}}]}),
        ):
            reply = client.post(route, json={"messages": [message], "max_tokens": 1})
            assert reply.status_code == 400, reply.text
        with pytest.raises(TimeoutError):
            trap.accept()


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "a/../../b", "..", "sha256:../../x", "a\0b", "%2e%2e%2f", "C:\\x"])
def test_a_name_is_never_a_path(client: httpx.Client, name: str) -> None:
    named = {**HELLO, "model": name, "max_tokens": 1, "prompt": "a", "input": "a"}
    posts: list[tuple[str, dict[str, Any]]] = [
        *((route, named) for route in ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", COUNT)),
        *((f"/api/{route}", {**named, "stream": False}) for route in ("chat", "generate", "show", "pull")),
        ("/api/copy", {"source": name, "destination": "a"}),
        ("/api/copy", {"source": "default", "destination": name}),
        ("/api/create", {"model": name, "from": "default", "stream": False}),
        ("/api/create", {"model": "made", "from": name, "stream": False}),
        ("/api/create", {"model": "made", "files": {name: name}, "stream": False}),
        ("/v1/contexts", {"model": name, "prompt": "a"}),
        ("/v1/contexts/restore", {"snapshot": name}),
        ("/v1/chat/completions", {**HELLO, "llamay_context": name}),
        ("/v1/responses", {"input": "a", "previous_response_id": name}),
    ]  # fmt: skip
    for route, body in posts:
        reply = client.post(route, json=body)
        assert reply.status_code in (400, 404), (route, reply.status_code, reply.text)
        assert "root:" not in reply.text
    quoted = quote(name, safe="")
    for method, route in (
        ("GET", "/v1/models/"), ("GET", "/v1/contexts/"), ("DELETE", "/v1/contexts/"), ("GET", "/v1/responses/"), ("HEAD", "/api/blobs/"),
        ("POST", "/api/blobs/"),
    ):  # fmt: skip
        assert client.request(method, route + quoted).status_code in (400, 404, 405), route
    assert client.request("DELETE", "/api/delete", json={"model": name}).status_code in (400, 404)


@pytest.mark.parametrize("key", ["messages", "%now", "now", "tools", "add_generation_prompt", "self", "a b"])
def test_template_variables_do_not_replace_what_the_server_gives(client: httpx.Client, key: str) -> None:
    reply = client.post("/v1/chat/completions", json={**HELLO, "max_tokens": 1, "chat_template_kwargs": {key: "x"}})
    assert reply.status_code == 400, reply.text
