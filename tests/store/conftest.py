"""A local server that speaks registry, hub, index and plain files, and misbehaves on demand; a store to pull into."""

import base64
import hashlib
import http.server
import io
import json
import os
import random
import struct
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

from llamay.store import Store
from llamay.store.network import Network, Patience
from llamay.store.pull import Pulled, pull
from llamay.store.sources import Hosts

MODEL = "application/vnd.ollama.image.model"


def gguf(size: int = 50_000, seed: int = 1) -> bytes:
    """Bytes that begin like a GGUF file; no two seeds give the same."""
    return b"GGUF" + struct.pack("<I", 3) + random.Random(seed).randbytes(size - 8)


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@dataclass
class Resource:
    """What one path answers.  Queues are used up one request at a time; an empty queue means good behaviour."""

    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    etag: str = ""
    statuses: list[tuple[int, dict[str, str]]] = field(default_factory=list)  # answered instead, in order
    cuts: list[int] = field(default_factory=list)  # body bytes after which the connection is dropped, in order
    redirect: str = ""
    ranges: bool = True  # whether Range is understood
    announce: int | None = None  # a Content-Length that is not the truth
    endless: bytes = b""  # sent again and again, chunked
    lengthless: bool = False  # neither length nor chunks: the end of the connection ends the body
    piece: int = 1 << 16  # bytes sent at a time
    pause: float = 0.0  # seconds between pieces
    held: int = 0  # where it is not 0: body bytes after which an answer waits for `go_on`
    go_on: threading.Event = field(default_factory=threading.Event)
    login: str = ""  # the Authorization header it takes
    challenge: str = ""  # WWW-Authenticate of its 401
    partial_shift: int = 0  # a 206 that begins elsewhere than asked


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: "Server"

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        path = self.path
        self.server.log.append((path, {key.lower(): value for key, value in self.headers.items()}))
        resource = self.server.resources.get(path)
        if resource is None:
            self.answer(404, {}, b"nothing here")
        elif resource.statuses:
            status, headers = resource.statuses.pop(0)
            self.answer(status, headers, b"not now")
        elif resource.login and self.headers.get("Authorization") != resource.login:
            self.answer(401, {"WWW-Authenticate": resource.challenge} if resource.challenge else {}, b"who are you")
        elif resource.redirect:
            self.answer(302, {"Location": resource.redirect}, b"")
        elif resource.etag and self.headers.get("If-None-Match") == resource.etag:
            self.answer(304, {"ETag": resource.etag}, b"")
        else:
            self.serve(resource)

    def serve(self, resource: Resource) -> None:
        headers = dict(resource.headers)
        if resource.etag:
            headers["ETag"] = resource.etag
        if resource.endless:
            self.start(200, {**headers, "Transfer-Encoding": "chunked"})
            self.forever(resource.endless)
            return
        status, body = 200, resource.body
        start = self.range_of(resource)
        if start is not None and start >= len(body):
            self.answer(416, {"Content-Range": f"bytes */{len(body)}"}, b"")
            return
        if start is not None:
            first = start + resource.partial_shift
            headers["Content-Range"] = f"bytes {first}-{len(body) - 1}/{len(body)}"
            status, body = 206, body[first:]
        if resource.lengthless:
            headers["Connection"] = "close"
        else:
            headers["Content-Length"] = str(len(body) if resource.announce is None else resource.announce)
        self.start(status, headers)
        self.send_body(resource, body)

    def range_of(self, resource: Resource) -> int | None:
        wanted = self.headers.get("Range", "")
        if not resource.ranges or not wanted.startswith("bytes="):
            return None
        condition = self.headers.get("If-Range")
        if condition is not None and condition != resource.etag:
            return None
        return int(wanted.removeprefix("bytes=").rstrip("-"))

    def send_body(self, resource: Resource, body: bytes) -> None:
        cut = resource.cuts.pop(0) if resource.cuts else None
        end = len(body) if cut is None else min(cut, len(body))
        try:
            for at in range(0, end, resource.piece):
                if resource.held and at >= resource.held:
                    resource.go_on.wait(60)
                self.wfile.write(body[at : min(at + resource.piece, end)])
                if resource.pause:
                    time.sleep(resource.pause)
        except OSError:
            self.close_connection = True
            return
        self.server.served += end
        if cut is not None or resource.lengthless or resource.announce is not None:
            self.close_connection = True

    def forever(self, piece: bytes) -> None:
        try:
            while True:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.server.served += len(piece)
        except OSError:
            self.close_connection = True

    def start(self, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()

    def answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        length = {} if status == 304 else {"Content-Length": str(len(body))}
        self.start(status, {**headers, **length})
        self.wfile.write(body)


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.resources: dict[str, Resource] = {}
        self.log: list[tuple[str, dict[str, str]]] = []
        self.served = 0
        self.url = f"http://127.0.0.1:{self.server_port}"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def handle_error(self, request: object, address: object) -> None:
        pass  # clients that go away are the point of these tests

    def put(self, path: str, body: bytes = b"", **behaviour: object) -> Resource:
        self.resources[path] = Resource(body=body, **behaviour)
        return self.resources[path]

    def asked(self, path: str) -> list[dict[str, str]]:
        """The headers of every request for a path, in order."""
        return [headers for seen, headers in self.log if seen == path]

    def registry(self, name: str, tag: str, layers: list[tuple[str, bytes]]) -> dict[str, Resource]:
        """A model of an Ollama-style registry; returns the blob of each media type."""
        config = b'{"model_format":"gguf","model_family":"llama"}'
        described = [
            {"mediaType": media_type, "digest": f"sha256:{sha256(data)}", "size": len(data)}
            for media_type, data in [("application/vnd.docker.container.image.v1+json", config), *layers]
        ]
        document = {"schemaVersion": 2, "config": described[0], "layers": described[1:]}
        self.put(f"/v2/library/{name}/manifests/{tag}", json.dumps(document).encode())
        blobs = {"config": self.put(f"/v2/library/{name}/blobs/sha256:{sha256(config)}", config)}
        for media_type, data in layers:
            blobs[media_type] = self.put(f"/v2/library/{name}/blobs/sha256:{sha256(data)}", data)
        return blobs

    def hub(self, repository: str, files: dict[str, bytes], revision: str = "main") -> dict[str, Resource]:
        """A repository of the hub: its listing, and each file at the listing's commit."""
        commit = sha256(repository.encode())[:40]
        siblings = [
            {"rfilename": name, "size": len(data), "lfs": {"sha256": sha256(data), "size": len(data)}}
            for name, data in files.items()
        ]
        listing = {"id": repository, "sha": commit, "siblings": [*siblings, {"rfilename": "README.md", "size": 3}]}
        self.put(f"/api/models/{repository}/revision/{revision}?blobs=true", json.dumps(listing).encode())
        return {name: self.put(f"/{repository}/resolve/{commit}/{name}", data) for name, data in files.items()}

    def index(self, distribution: str, wheels: dict[str, bytes], as_json: bool = True, under: str = "/simple") -> None:
        """A project page of a Python index, and its wheels."""
        for filename, data in wheels.items():
            self.put(f"/files/{filename}", data)
        if as_json:
            files = [
                {"filename": name, "url": f"../../files/{name}", "hashes": {"sha256": sha256(data)}, "size": len(data)}
                for name, data in wheels.items()
            ]
            body = json.dumps({"meta": {"api-version": "1.1"}, "name": distribution, "files": files}).encode()
            kind = "application/vnd.pypi.simple.v1+json"
        else:
            anchors = (
                f'<a href="../../files/{name}#sha256={sha256(data)}" data-requires-python="&gt;=3.9">{name}</a><br/>'
                for name, data in wheels.items()
            )
            body = f"<!DOCTYPE html><html><body>{''.join(anchors)}</body></html>".encode()
            kind = "text/html; charset=utf-8"
        self.put(f"{under}/{distribution}/", body, headers={"Content-Type": kind})


def wheel(
    distribution: str, version: str, files: dict[str, bytes], record: bool = True, level: int = 1
) -> tuple[str, bytes]:
    """A wheel's file name and bytes."""
    base = distribution.replace("-", "_")
    rows = []
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=level) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
            hashed = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            rows.append(f"{name},sha256={hashed},{len(data)}")
        if record:
            archive.writestr(f"{base}-{version}.dist-info/RECORD", "\n".join(rows))
    return f"{base}-{version}-py3-none-any.whl", buffer.getvalue()


@dataclass
class Kit:
    """What a test works with."""

    server: Server
    store: Store
    waits: list[float] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    gguf: ClassVar = staticmethod(gguf)
    wheel: ClassVar = staticmethod(wheel)
    sha256: ClassVar = staticmethod(sha256)

    def network(self, **options: object) -> Network:
        """A way out whose waits are noted instead of waited."""
        return Network(patience=lambda: Patience(sleep=self.waits.append), **options)

    def pull(self, text: str, **options: object) -> Pulled:
        options.setdefault("network", self.network())
        hosts = Hosts(registry=self.server.url, hub=self.server.url, index=f"{self.server.url}/simple")
        return pull(self.store, text, hosts=hosts, reporter=Ear(self.said), **options)

    def read(self, pulled: Pulled) -> bytes:
        return self.store.file(pulled.model).read_bytes()

    def blobs(self) -> set[str]:
        """The digests of what lies in the blobs folder."""
        return {path.name.removeprefix("sha256-") for path in self.store.blobs.glob("[!.]*")}

    def parts(self) -> list[Path]:
        return sorted(self.store.partials.glob("*.part"))

    def check_blobs(self) -> None:
        """Every blob is what its name says."""
        for digest in self.blobs():
            assert sha256((self.store.blobs / f"sha256-{digest}").read_bytes()) == digest

    def check(self) -> None:
        """Whatever happened: blobs are what their names say, manifests are whole, no claim of this process is left."""
        self.check_blobs()
        survey = self.store.survey()
        assert not survey.broken
        for model in survey.models:
            for layer in model.manifest.blobs():
                assert self.store.has(layer)
        assert not list(self.store.claims.glob(f"{os.getpid()}-*"))


class Ear:
    """A reporter that keeps what was said and checks that transfers begin and end in turn."""

    def __init__(self, said: list[str]) -> None:
        self.lines = said
        self.done = 0
        self.total: int | None = None

    def say(self, text: str) -> None:
        self.lines.append(text)

    def begin(self, label: str, total: int | None, done: int) -> None:
        self.done, self.total = done, total

    def advance(self, count: int) -> None:
        self.done += count
        assert self.done >= 0 and (self.total is None or self.done <= self.total)

    def end(self) -> None:
        self.total = None


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def other_server() -> Iterator[Server]:
    """A second server on this machine, which nobody may be sent to."""
    made = Server()
    yield made
    made.shutdown()
    made.server_close()


@pytest.fixture
def kit(server: Server, tmp_path: Path) -> Iterator[Kit]:
    made = Kit(server, Store(tmp_path / "models"))
    yield made
    made.check()


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No test sees this machine's pip, hub or proxy configuration."""
    for name in list(os.environ):
        if name.startswith(("PIP_", "HF_", "LLAMAY_")) or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()


@pytest.fixture(autouse=True)
def unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests do not wait for the disk; what the order of syncs must be has a test of its own."""
    monkeypatch.setattr(os, "fsync", lambda handle: None)
