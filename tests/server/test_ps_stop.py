"""`llamay ps`, `llamay stop` and the Client they speak through, against a running server."""

import http.server
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from llamay import cli, settings
from llamay.client import Client, Event, url
from llamay.errors import NoServer, Refused, SettingsError
from llamay.server.configuration import Configuration


@pytest.fixture
def running(serving: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """A server that the commands find, which wants a key."""
    found = serving(Configuration(api_key="secret"))
    monkeypatch.setenv("LLAMAY_HOST", f"127.0.0.1:{found.port}")
    monkeypatch.setenv("LLAMAY_API_KEY", "secret")
    return found


def load(running: Any) -> None:
    running.site.models.load(running.site.models.default)


def test_ps_shows_what_is_loaded(running: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["ps"]) == 0
    (head,) = capsys.readouterr().out.splitlines()
    assert head.split() == ["NAME", "SIZE", "DEVICE", "CONTEXT", "REQUESTS", "STAYS"]
    load(running)
    assert cli.main(["ps"]) == 0
    _, row = capsys.readouterr().out.splitlines()
    assert row.startswith(f"{running.model}:latest  ")
    assert running.site.models.loaded(running.model).device in row
    assert cli.main(["ps", "-json"]) == 0
    (model,) = json.loads(capsys.readouterr().out)
    assert model["name"] == f"{running.model}:latest" and model["llamay"]["requests"] == 0


def test_stop_unloads_one_model_or_all(running: Any, until: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["stop", running.model.upper()], ["stop"], ["stop", f"{running.model}:latest"]):
        load(running)
        assert cli.main(words) == 0
        assert f"unloaded {running.model}:latest" in capsys.readouterr().err
        until(lambda: running.site.models.loaded(running.model) is None)
    assert cli.main(["stop"]) == 0
    assert "no model is loaded" in capsys.readouterr().err
    assert cli.main(["stop", "other"]) == 2
    assert "other is not loaded; loaded: nothing" in capsys.readouterr().err


def test_a_busy_model_is_told_as_such(
    running: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    busy = {"requests": 2, "waiting": 3, "device": "a device", "expires_seconds": 61}
    model = {"name": "m:latest", "size": 98_000_000, "context_length": 4096, "llamay": busy}
    other = {"name": "o:latest", "size": 5}  # of Ollama's own server
    monkeypatch.setattr(Client, "get", lambda self, path: {"models": [model, other]})
    monkeypatch.setattr(Client, "post", lambda self, path, body: None)
    assert cli.main(["ps"]) == 0
    _, first, second = capsys.readouterr().out.splitlines()
    assert first.split() == "m:latest 98.0 MB a device 4096 2 + 3 waiting 1m01s".split()
    assert second.split() == "o:latest 5 B - - - -".split()
    assert cli.main(["stop", "m"]) == 0
    assert capsys.readouterr().err == "m:latest goes once its requests are answered\n"


def test_without_a_server_both_say_how_to_start_one(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LLAMAY_HOST", "127.0.0.1:1")
    for command in ("ps", "stop"):
        assert cli.main([command]) == NoServer.exit_code == 10
        told = capsys.readouterr().err
        assert "no server answers at http://127.0.0.1:1" in told and "`llamay serve` starts one" in told


def test_a_wrong_key_is_told(running: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LLAMAY_API_KEY", "wrong")
    assert cli.main(["ps"]) == 1
    assert "LLAMAY_API_KEY" in capsys.readouterr().err


def test_a_key_is_not_shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("LLAMAY_API_KEY", "secret-words")
    for words in (["env"], ["env", "-json"]):
        assert cli.main(words) == 0
        told = capsys.readouterr().out
        assert "secret-words" not in told and "(set)" in told


def test_events_are_read_as_they_come(running: Any) -> None:
    client = Client.of(settings.load())
    body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "stream": True}
    found = list(client.events("/v1/messages", body))
    assert [one.name for one in found][:2] == ["message_start", "content_block_start"]
    assert found[-1] == Event("message_stop", {"type": "message_stop"})
    chunks = list(client.events("/v1/chat/completions", body))
    assert chunks and all(one.name == "" and one.data["object"] == "chat.completion.chunk" for one in chunks)
    with pytest.raises(Refused, match="there is no route"):
        list(client.events("/nowhere"))
    with pytest.raises(Refused, match="not found"):
        client.post("/api/show", {"model": "nothing"})


@pytest.fixture
def odd() -> Iterator[str]:
    """A server of another kind."""

    class Handler(http.server.BaseHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            self.send_response({"/gone": 404, "/moved": 302}.get(self.path, 200))
            self.end_headers()
            told = {"/deep": b"[" * 100_000, "/data": b"data: {]\n\n", "/moved": b""}
            self.wfile.write(told.get(self.path, b"<html>hello</html>"))

    made = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=made.serve_forever, args=(0.02,), daemon=True).start()
    yield f"http://127.0.0.1:{made.server_port}"
    made.shutdown()
    made.server_close()


def test_a_server_of_another_kind_is_told(odd: str) -> None:
    with pytest.raises(Refused, match="no llamay server"):
        Client(odd).get("/api/ps")
    with pytest.raises(Refused, match="404"):
        Client(odd).get("/gone")
    for ask in (Client(odd).get, lambda path: list(Client(odd).events(path))):
        with pytest.raises(Refused, match="302"):
            ask("/moved")
    with pytest.raises(Refused, match="no llamay server"):
        Client(odd).get("/deep")
    with pytest.raises(Refused, match="no llamay server"):
        list(Client(odd).events("/data"))
    with pytest.raises(Refused, match="no llamay server"):
        list(Client(odd).values("/data"))


ODD = [None, [1], {"models": 3}, {"models": [3]}, {"models": [{"name": "m"}]}, {"models": [{"name": "m", "size": 1, "llamay": 5}]}]


@pytest.mark.parametrize("answer", [*ODD, {"models": [{"name": "m", "size": 1, "llamay": {"expires_seconds": 1e999}}]}])
def test_an_answer_of_another_shape_is_told(answer: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(Client, "get", lambda self, path: answer)
    monkeypatch.setattr(Client, "post", lambda self, path, body: None)
    assert cli.main(["ps"]) == 1
    assert "answers otherwise than llamay's server" in capsys.readouterr().err
    cli.main(["stop"])
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "found"),
    [
        ("127.0.0.1:80", "http://127.0.0.1:80"),
        ("box", "http://box:11435"),
        ("[::1]:5", "http://[::1]:5"),
        ("0.0.0.0", "http://127.0.0.1:11435"),
        ("[::]:7", "http://[::1]:7"),
        ("https://box.example/llamay/", "https://box.example/llamay"),
    ],
)
def test_a_host_becomes_a_url(host: str, found: str) -> None:
    assert url(host) == found


@pytest.mark.parametrize("host", ["", "ftp://x", "a:b:c", "[::1", "x:99999"])
def test_what_is_no_host_is_refused(host: str) -> None:
    with pytest.raises(SettingsError):
        url(host)
