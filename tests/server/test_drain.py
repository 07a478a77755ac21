"""SIGTERM: what is under way finishes, or is cut at the deadline or by a second signal, and always has its end."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx
import pytest

from llamay import cli
from llamay.server import listening, main

TINY = Path(__file__).parents[1] / "data" / "models" / "llama-gqa.f16.gguf"
CHILD = """
import sys, threading
from llamay import settings
from llamay.server import main, turn
from llamay.server.configuration import Configuration
def ready(site, port):
    executor = site.models.load(site.models.default).executor
    submit = executor.submit
    waits = iter([None] * 3)
    def held(batch, steps):
        if next(waits, waits) is waits:
            print("it lasts", flush=True)
            getattr(site, until, threading.Event()).wait(3600)
        return submit(batch, steps)
    executor.submit = held
    print(port, flush=True)
drain, until = float(sys.argv[2]), sys.argv[3]
main.CUT = 60  # where others compute, last words take long too
if until != "for ever":
    turn.LAST = 60
sys.exit(main.serve(settings.load({"backend": "numpy"}), Configuration(port=0, drain=drain, log="none"), sys.argv[1], note=main.to_stderr, ready=ready))
"""
ASKED = {"messages": [{"role": "user", "content": "hello"}], "ignore_eos": True, "temperature": 0, "stream": True}


@contextmanager
def child(*words: str) -> Iterator[subprocess.Popen[str]]:
    """A server in a process of its own, which computes with NumPy: it is ready at once, and its steps do not last where others compute."""
    environment = {**os.environ, "LLAMAY_BACKEND": "numpy"}
    made = subprocess.Popen([sys.executable, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)
    try:
        yield made
    finally:
        made.kill()
        made.communicate()


def told(server: "subprocess.Popen[str]") -> str:
    """Where CHILD listens, once its model is loaded."""
    assert server.stdout is not None
    line = server.stdout.readline()
    assert line.strip().isdecimal(), f"{line!r}: {server.communicate()[1]}"
    return f"http://127.0.0.1:{int(line)}"


def refused(url: str) -> None:
    """Waits until connections are refused; one that was made as the signal came may be answered, or ended."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        try:
            httpx.get(f"{url}/healthz", trust_env=False, verify=False)
        except httpx.ConnectError:
            return
        except httpx.TransportError:
            continue
    raise AssertionError("connections are still taken")


@pytest.mark.parametrize(
    ("drain", "signals", "held", "reason", "status"),
    [(3600, 1, "closing", "length", 0), (0.3, 1, "cut", "stop", 0), (3600, 2, "cut", "stop", -signal.SIGTERM)],
    ids=["finishes", "deadline", "second signal"],
)
def test_a_stream_has_its_end(drain: float, signals: int, held: str, reason: str, status: int) -> None:
    """Its steps are held until the server closes, or cuts what is under way."""
    with child("-c", CHILD, str(TINY), str(drain), held) as server:
        url = told(server)
        with httpx.Client(timeout=120, trust_env=False, verify=False) as client:
            with client.stream("POST", f"{url}/v1/chat/completions", json={**ASKED, "max_tokens": 100}) as reply:
                lines = (line.removeprefix("data: ") for line in reply.iter_lines() if line)
                first = next(lines)
                for _ in range(signals):
                    server.send_signal(signal.SIGTERM)
                    refused(url)  # the signal was heard: two at once would be one
                rest = list(lines)
        assert rest[-1] == "[DONE]"
        assert 'error' not in rest[-2], rest[-2]
        found = [json.loads(line)["choices"][0]["finish_reason"] for line in [first, *rest[:-1]]]
        assert found[-1] == reason and not any(found[:-1])
        assert server.wait(60) == status


def test_a_second_signal_waits_for_no_step() -> None:
    """The step that runs takes an hour: the stream still has its last words, and the process ends by the signal."""
    with child("-c", CHILD, str(TINY), "60", "for ever") as server:
        url = told(server)
        with httpx.Client(timeout=120, trust_env=False, verify=False) as client:
            with client.stream("POST", f"{url}/v1/chat/completions", json=ASKED) as reply:
                lines = (line.removeprefix("data: ") for line in reply.iter_lines() if line)
                next(lines)
                assert server.stdout is not None and server.stdout.readline() == "it lasts\n"
                server.send_signal(signal.SIGTERM)
                refused(url)
                server.send_signal(signal.SIGINT)
                rest = list(lines)
        assert rest[-1] == "[DONE]" and "closed" in json.loads(rest[-2])["error"]["message"]
        assert server.wait(120) == -signal.SIGINT
        assert server.stderr is not None and "under way: 1; they have 60 s" in server.stderr.read()


def test_the_command_serves_says_where_and_ends(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("-m", "llamay", "serve", str(TINY), "-addr", "127.0.0.1:0", "-log", "json")
    with child(*words) as server:
        assert server.stderr is not None
        line = server.stderr.readline()
        found = re.fullmatch(r"llamay: llamay \S+ on (http://127\.0\.0\.1:\d+)\n", line)
        assert found, line
        with httpx.Client(base_url=found[1], timeout=120, trust_env=False, verify=False) as client:  # keeps its connection open
            assert client.get("/healthz").status_code == 200
            assert cli.main(["serve", str(TINY), "-addr", found[1].removeprefix("http://")]) == 1
            taken = capsys.readouterr().err
            assert len(taken.splitlines()) == 1 and "cannot be listened on: Address already in use, perhaps by another `llamay serve`" in taken and "-addr" in taken
            began = time.monotonic()
            os.kill(server.pid, signal.SIGINT)
            said = server.stderr.read()
        assert server.wait(60) == 0 and time.monotonic() - began < listening.IDLE  # it does not wait for that connection to end
        assert f"loading {TINY.stem}; requests wait for it" in said
        assert "curl http://127.0.0.1:" in said and '"route":"/healthz"' in said
        assert "Traceback" not in said


def test_a_model_that_is_being_loaded_is_told_to_whoever_ends_the_server(serving: Any, until: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    """It is waited for, and nothing would be heard until then."""
    server = serving()
    models, held = server.site.models, threading.Event()
    opened = models.engine._open
    monkeypatch.setattr(models.engine, "_open", lambda name: (held.wait(60), opened(name))[1])
    loading = threading.Thread(target=models.load, args=(models.default,))
    loading.start()
    until(lambda: models.engine.stats(wait=0).loading)
    notes: list[str] = []
    main.drain(server.site, SimpleNamespace(refuse=lambda: None, close=lambda: None), notes.append)
    held.set()
    loading.join(60)
    (note,) = notes
    assert note.startswith(f"{server.model} is being loaded") and "second signal" in note


@pytest.mark.parametrize("where", ["nowhere.invalid:1", "256.1.1.1:0"])
def test_an_address_that_is_none_is_one_line(where: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["serve", str(TINY), "-addr", where]) == 1
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 1 and "cannot be listened on" in said
