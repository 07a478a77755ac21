"""POST /api/pull, on the wire, from a hub of the test's own."""

import hashlib
import http.server
import json
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from llamay.store import Store

TINY = Path(__file__).parents[1] / "data" / "models" / "llama-gqa.f16.gguf"
COMMIT = "c" * 40
LISTING, FILE = "/api/models/them/tiny-gguf/revision/main?blobs=true", f"/them/tiny-gguf/resolve/{COMMIT}/tiny.Q4_0.gguf"
MODEL = "hf.co/them/tiny-gguf"


class Hub(http.server.ThreadingHTTPServer):
    """One repository with one file, of which the second half comes a byte at a time until `whole` is set."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.data = b"GGUF" + random.Random(1).randbytes(2_000_000)  # what is smaller shows no progress
        self.asked: list[str] = []
        self.whole = threading.Event()
        self.whole.set()
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def handle_error(self, request: object, address: object) -> None:
        """Clients that go away are the point."""

    @property
    def listing(self) -> bytes:
        file = {"sha256": hashlib.sha256(self.data).hexdigest(), "size": len(self.data)}
        siblings = [{"rfilename": "tiny.Q4_0.gguf", "size": len(self.data), "lfs": file}]
        return json.dumps({"id": "them/tiny-gguf", "sha": COMMIT, "siblings": siblings}).encode()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Hub

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        body = {LISTING: self.server.listing, FILE: self.server.data}.get(self.path)
        self.send_response(404 if body is None else 200)
        self.send_header("Content-Length", str(len(body or b"")))
        self.end_headers()
        try:
            at, sent = 0, body or b""
            while at < len(sent):
                slow = at >= len(sent) // 2 and not self.server.whole.wait(0.01)
                piece = sent[at : at + (1 if slow else 65536)]
                self.wfile.write(piece)
                at += len(piece)
        except OSError:
            self.close_connection = True


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    made = Hub()
    monkeypatch.setenv("HF_ENDPOINT", made.url)
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "models")


@pytest.fixture
def client(serving: Callable[..., Any], store: Store, hub: Hub) -> Iterator[httpx.Client]:
    with serving(None, TINY, models=store.root).client() as found:
        yield found


def pulled(client: httpx.Client, **fields: Any) -> list[dict[str, Any]]:
    reply = client.post("/api/pull", json={"model": MODEL, **fields})
    assert reply.status_code == 200, reply.text
    return [json.loads(line) for line in reply.text.splitlines()]


def test_a_pull_tells_its_progress(client: httpx.Client, hub: Hub, store: Store) -> None:
    found = pulled(client)
    assert found[0] == {"status": "pulling manifest"} and found[-1] == {"status": "success"}
    assert {"status": "verifying sha256 digest"} in found and {"status": "writing manifest"} in found
    moving = [one for one in found if "total" in one]
    assert len({one["digest"] for one in moving}) == 1 and moving[0]["status"].startswith("pulling ")
    assert all(one["total"] == len(hub.data) and 0 <= one["completed"] <= one["total"] for one in moving)
    assert [one["completed"] for one in moving] == sorted({one["completed"] for one in moving})
    (model,) = store.survey().models
    assert store.file(model).read_bytes() == hub.data
    assert str(model.name) in [one["name"] for one in client.get("/api/tags").json()["models"]]
    assert pulled(client)[-1] == {"status": "success"} and hub.asked.count(FILE) == 1


def test_a_pull_in_one_piece(client: httpx.Client, hub: Hub) -> None:
    reply = client.post("/api/pull", json={"name": MODEL, "stream": False})
    assert reply.json() == {"status": "success"}


def test_two_who_ask_for_one_model_share_a_pull(client: httpx.Client, hub: Hub, until: Callable[..., None]) -> None:
    hub.whole.clear()
    joined: list[str] = []
    answers: list[str] = []

    def ask() -> None:
        with client.stream("POST", "/api/pull", json={"model": MODEL}) as reply:
            lines = reply.iter_lines()
            joined.append(next(lines))
            answers.append(list(lines)[-1])

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: len(joined) == 4)
    hub.whole.set()
    for thread in threads:
        thread.join(60)
    assert [json.loads(one) for one in answers] == [{"status": "success"}] * 4
    assert hub.asked == [LISTING, FILE]


def test_when_everybody_leaves_the_pull_ends_and_keeps_what_it_has(
    client: httpx.Client, hub: Hub, store: Store, until: Callable[..., None]
) -> None:
    hub.whole.clear()
    with client.stream("POST", "/api/pull", json={"model": MODEL}) as reply:
        for line in reply.iter_lines():
            if json.loads(line).get("completed", 0) > 0:
                break
    until(lambda: not any(thread.name == "llamay-pull" for thread in threading.enumerate()))
    (part,) = store.partials.glob("*.part")
    assert 0 < part.stat().st_size < len(hub.data) and not store.survey().models
    hub.whole.set()
    assert pulled(client)[-1] == {"status": "success"}


def test_what_is_not_there_is_an_error(client: httpx.Client) -> None:
    found = pulled(client, model="hf.co/them/nothing")
    assert list(found[-1]) == ["error"] and "status" in found[0]
    reply = client.post("/api/pull", json={"model": "hf.co/them/nothing", "stream": False})
    assert reply.status_code >= 400 and reply.json()["error"]
    assert client.post("/api/pull", json={"model": ""}).status_code == 400


@pytest.mark.parametrize(
    "name",
    [str(TINY), "file.gguf/../x", "http://127.0.0.1:1/x.gguf", "https://example.com/x.gguf", "127.0.0.1:8080/a/b", "example.com/a/b:c"],
)
def test_strangers_name_neither_files_nor_addresses(client: httpx.Client, hub: Hub, store: Store, name: str) -> None:
    reply = client.post("/api/pull", json={"model": name, "insecure": True})
    assert reply.status_code == 400, reply.text
    assert hub.asked == [] and not store.survey().models


def test_a_file_of_that_name_changes_nothing(
    client: httpx.Client, hub: Hub, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server's own folder may hold anything: a name is a name."""
    monkeypatch.chdir(tmp_path)
    beside = tmp_path / "hf.co" / "them" / "tiny-gguf"
    beside.parent.mkdir(parents=True)
    beside.write_bytes(b"GGUF what nobody asked for")
    assert pulled(client)[-1] == {"status": "success"}
    assert store.file(store.survey().models[0]).read_bytes() == hub.data
