"""What the server adds to a token, and what a shared prefix saves until the first one.

    python -m pytest bench/test_server.py -s [--model NAME]

The model is the one that was named, else a tiny one of tests/data.  Its figures are printed and, with --benchmark-json, kept.
"""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from llamay import settings
from llamay.serve.models import Models
from llamay.server import main, turn
from llamay.server.configuration import Configuration
from llamay.server.site import Site

pytestmark = pytest.mark.timeout(1800)  # a real model on a software device takes minutes

TINY = Path(__file__).parents[1] / "tests" / "data" / "models" / "llama-gqa.f16.gguf"
STREAMS, TOKENS = 8, 500
ROUNDS = 5  # in which those tokens are generated, from the engine and through HTTP by turns: a machine is not always as fast
SHARED = 1000  # tokens


@pytest.fixture
def site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Site, int]]:
    """A server in this process, and its port."""
    model = request.config.getoption("--model") or str(TINY)
    made = Configuration(port=0)
    models = Models(settings.load({"contexts": tmp_path}), made.bounds, model)
    found = Site(models, made)
    listening = main.listen(found)
    thread = threading.Thread(target=listening.run, daemon=True)
    thread.start()
    models.load(models.default)
    yield found, listening.port
    listening.close()
    thread.join(10)
    models.close()


def body(text: str, tokens: int) -> dict[str, Any]:
    return {"prompt": text, "max_tokens": tokens, "ignore_eos": True, "temperature": 0, "stream": True}


def together(read: Callable[[Any], None], asked: list[Any]) -> float:
    """Reads an answer a thread; returns the seconds until all were read."""
    threads = [threading.Thread(target=read, args=(one,)) for one in asked]
    start = time.perf_counter()
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    return time.perf_counter() - start


CLIENTS = """
import http.client, json, sys, threading, time
port, bodies = int(sys.argv[1]), json.load(sys.stdin)
def read(body):
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=1800)
    connection.request("POST", "/v1/completions", json.dumps(body))
    reply = connection.getresponse()
    assert reply.status == 200, reply.read()
    while reply.read1(65536):
        pass
threads = [threading.Thread(target=read, args=(body,)) for body in bodies]
start = time.perf_counter()
for one in threads:
    one.start()
for one in threads:
    one.join()
print(time.perf_counter() - start)
"""


def streams(port: int, bodies: list[dict[str, Any]]) -> float:
    """Through HTTP, from a process of its own: a client's work is not the server's."""
    words = [sys.executable, "-c", CLIENTS, str(port)]
    ran = subprocess.run(words, input=json.dumps(bodies), capture_output=True, text=True, check=True)
    return float(ran.stdout)


def directly(site: Site, bodies: list[dict[str, Any]]) -> float:
    """The same from the engine itself: what is left is the model's time and the scheduler's."""
    models = site.models

    def read(asked: dict[str, Any]) -> None:
        tokens = tuple(models.language(models.default).raw(asked["prompt"]).tokens)
        for _ in models.ask(models.default, tokens, {"max_tokens": asked["max_tokens"], "ignore_end": True, "temperature": 0.0}):
            pass

    return together(read, bodies)


def test_overhead(site: tuple[Site, int], monkeypatch: pytest.MonkeyPatch, record_property: Callable[[str, object], None]) -> None:
    """What the server adds to a step at 8 streams: on the critical path, which is how much longer the same answers
    take through HTTP than from the engine, and in processor seconds of the threads that write replies, which the
    engine does not wait for while a device computes: the upper bound.
    """
    found, port = site
    busy: list[float] = []
    iterate = turn.Turn.__iter__

    def timed(self: turn.Turn) -> Iterator[Any]:
        began = time.thread_time()  # which stands still while the thread waits
        yield from iterate(self)
        busy.append(time.thread_time() - began)

    room = found.models.load(found.models.default).context
    tokens = min(TOKENS // ROUNDS, room - 64)
    bodies = [body(f"a b {number}", tokens) for number in range(STREAMS)]
    short = [{**one, "max_tokens": 8} for one in bodies]
    directly(found, short)  # what is compiled, tested and cached once
    streams(port, short)
    monkeypatch.setattr(turn.Turn, "__iter__", timed)
    pairs = [(directly(found, bodies) / tokens, streams(port, bodies) / tokens) for _ in range(ROUNDS)]
    alone, each = (median(one) for one in zip(*pairs, strict=True))
    added = median(through - engine for engine, through in pairs)
    spent = sum(busy) / (ROUNDS * tokens)
    record_property("added_ms", added * 1e3)
    record_property("added_us", spent / STREAMS * 1e6)
    print(
        f"\n{STREAMS} streams of {ROUNDS} x {tokens} tokens: {alone * 1e3:.2f} ms a step from the engine, {each * 1e3:.2f} ms through HTTP; "
        f"added on the critical path {added * 1e3:+.2f} ms, {added / alone:+.1%}; "
        f"{spent / STREAMS * 1e6:.0f} us of processor a token and stream, {spent / each:.1%} of a step"
    )


def test_first_token(site: tuple[Site, int], record_property: Callable[[str, object], None]) -> None:
    """Seconds to the first token of a prompt whose first 1,000 tokens are known, and of one that is not known."""
    found, port = site
    room = found.models.load(found.models.default).context
    shared = "a " * min(SHARED, room // 2 - 32)

    def first(text: str) -> float:
        return streams(port, [body(text, 1)])

    cold = median([first(f"{number} {shared} and") for number in range(3)])
    first(f"{shared} once")
    cached = median([first(f"{shared} then {number}") for number in range(5)])
    record_property("ratio", cold / cached)
    print(f"\nfirst token: cold {cold * 1e3:.0f} ms, cached {cached * 1e3:.0f} ms: 1/{cold / cached:.1f}")
