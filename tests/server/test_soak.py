"""Three minutes of 64 clients that stream, leave, read slowly and talk nonsense: nothing is left behind and nobody starves.

`LLAMAY_SOAK` scales the time.  The server is a process of its own, and so is who looks at its health.
"""

import asyncio
import contextlib
import json
import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

TINY = Path(__file__).parents[1] / "data" / "models" / "llama-gqa.f16.gguf"
SECONDS = max(4.0, 180.0 * float(os.environ.get("LLAMAY_SOAK", "1")))
WARM = max(3.0, SECONDS * 0.15)  # by then every kind of batch has its kernels, and most threads their stack and their corner of the heap
CLIENTS = 64
WORDS = "sea sky river stone wind bird tree light rain snow".split()
VISITS = 300  # that warm it at the least, on a slow machine too
GROWTH = 20 << 20  # bytes of memory
WAKINGS = 5  # times that a request is handed on, each of which a machine that is busy otherwise may delay
PROBE = """
import http.client, json, sys, time
port, seconds, times, late = int(sys.argv[1]), float(sys.argv[2]), [], []
until = time.monotonic() + seconds
while time.monotonic() < until:
    begun = time.monotonic()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", "/healthz")
    assert connection.getresponse().read()
    connection.close()
    times.append(time.monotonic() - begun)
    asleep = time.monotonic()
    time.sleep(0.02)
    late.append(time.monotonic() - asleep - 0.02)
print(json.dumps([sorted(times), sorted(late)]))
"""
ROUTES: dict[str, tuple[bytes, bytes]] = {  # the last words of a stream, and of a stream that is whole
    "/v1/chat/completions": (b"data: [DONE]\n\n", b'"finish_reason":"'),
    "/v1/completions": (b"data: [DONE]\n\n", b'"finish_reason":"'),
    "/v1/messages": (b'"message_stop"}\n\n', b'"stop_reason":"'),
    "/api/chat": (b"\n", b'"done":true'),
    "/api/generate": (b"\n", b'"done":true'),
}


@contextmanager
def process() -> Iterator[tuple[subprocess.Popen[str], int]]:
    words = [sys.executable, "-m", "llamay", "serve", str(TINY), "-addr", "127.0.0.1:0", "-log", "none"]
    made = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    try:
        assert made.stderr is not None
        found = re.search(r":(\d+)$", made.stderr.readline())
        assert found
        yield made, int(found[1])
    finally:
        made.terminate()
        assert made.wait(120) == 0


def body(chance: random.Random, route: str, *, stream: bool) -> bytes:
    text = " ".join(chance.choices(WORDS, k=chance.randint(1, 40)))
    found: dict[str, Any] = {"model": "", "stream": stream, "max_tokens": chance.randint(1, 40)}
    if route.startswith("/api"):
        found["options"] = {"num_predict": found.pop("max_tokens"), "seed": chance.randint(0, 9)}
    found |= {"prompt": text} if route.endswith(("/completions", "/generate")) and "chat" not in route else {"messages": [{"role": "user", "content": text}]}
    return json.dumps(found).encode()


def nonsense(chance: random.Random) -> bytes:
    kinds = [
        chance.randbytes(chance.randint(0, 300)), b'{"a":' + b"[" * 5000, b'{"messages": 5}', b"[]", b'{"messages":[{"role":1}]}',
        b'{"messages":[{"role":"user","content":"a"}],"temperature":"hot"}', b'{"model":"../../x","prompt":"a","messages":[{"role":"user","content":"a"}]}',
    ]  # fmt: skip
    return chance.choice(kinds)


async def visit(port: int, chance: random.Random, seen: Counter[str]) -> None:
    """One request of one kind; whoever stays must hear the end."""
    route = chance.choice(list(ROUTES))
    kind = chance.choice(["stay", "stay", "leave", "slow", "whole", "whole leave", "nonsense"])
    stream = "whole" not in kind
    sent = nonsense(chance) if kind == "nonsense" else body(chance, route, stream=stream)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        head = f"POST {route} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(sent)}\r\n\r\n"
        writer.write(head.encode() + sent)
        await writer.drain()
        if "leave" in kind:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(reader.readexactly(chance.randint(1, 2000)), chance.random() * 0.3)
            seen["left"] += 1
            return
        found = b""
        while piece := await asyncio.wait_for(reader.read(64 if kind == "slow" else 65536), 120):
            found += piece
            if kind == "slow":
                await asyncio.sleep(0.003)
        status = int(found.split(b" ", 2)[1])
        if kind == "nonsense":
            assert 200 <= status < 500, found[:500]  # a route may make sense of it
        else:
            last, end = ROUTES[route]
            assert status == 200, found[:500]
            assert end in found, found[-500:]
            if stream:
                assert found.endswith(b"\r\n0\r\n\r\n") and found.removesuffix(b"\r\n0\r\n\r\n").endswith(last), found[-500:]
        seen[kind] += 1
    except (asyncio.IncompleteReadError, ConnectionError):
        if "leave" not in kind:
            raise
        seen["left"] += 1
    finally:
        writer.close()


async def crowd(port: int, seconds: float, seed: int, visits: int = 0) -> Counter[str]:
    """So many clients for so long, and until there were so many visits."""
    until, seen = time.monotonic() + seconds, Counter[str]()

    async def client(number: int) -> None:
        chance = random.Random(seed * 1000 + number)
        while time.monotonic() < until or seen.total() < visits:
            await visit(port, chance, seen)

    async with asyncio.TaskGroup() as group:
        for number in range(CLIENTS):
            group.create_task(client(number))
    return seen


def measure(pid: int) -> dict[str, int]:
    status = Path(f"/proc/{pid}/status").read_text()
    found = {name: int(re.search(rf"^{name}:\s+(\d+)", status, re.MULTILINE)[1]) for name in ("VmRSS", "Threads")}  # type: ignore[index]
    return {"memory": found["VmRSS"] * 1024, "threads": found["Threads"], "files": len(os.listdir(f"/proc/{pid}/fd"))}


def settle(port: int) -> dict[str, Any]:
    """Waits until nobody is being answered."""
    until = time.monotonic() + 60
    while True:
        found: dict[str, Any] = httpx.get(f"http://127.0.0.1:{port}/v1/stats", trust_env=False).json()
        if found["visits"] <= 1 and not found["generations"] and not any(model["requests"] for model in found["models"]):
            time.sleep(0.3)
            return found
        assert time.monotonic() < until, found
        time.sleep(0.05)


@pytest.mark.soak
@pytest.mark.timeout(int(SECONDS * 2 + 200))
def test_a_crowd_leaves_nothing_behind() -> None:
    with process() as (server, port):
        asyncio.run(crowd(port, WARM, 1, VISITS))
        settle(port)
        before = measure(server.pid)
        probe = subprocess.Popen([sys.executable, "-c", PROBE, str(port), str(SECONDS)], stdout=subprocess.PIPE, text=True)
        seen = asyncio.run(crowd(port, SECONDS, 2))
        times, late = json.loads(probe.communicate(timeout=120)[0])
        left = settle(port)
        until = time.monotonic() + 60
        while (after := measure(server.pid))["files"] > before["files"] + 1 and time.monotonic() < until:
            time.sleep(0.1)  # connections are closed a moment after their last byte
        print(f"{dict(seen)}; before {before}, after {after}; health p99 {times[int(len(times) * 0.99)] * 1e3:.0f} ms, worst {times[-1] * 1e3:.0f} ms; woken late by {late[-1] * 1e3:.0f} ms")
        assert min(seen[kind] for kind in ("stay", "left", "slow", "whole", "nonsense")) > 0
        for model in left["models"]:
            assert model["contexts"] == [] and all(group["contexts"] == group["both"] == 0 for group in model["pages"])
        assert after["threads"] == before["threads"] and after["files"] <= before["files"] + 1
        assert after["memory"] - before["memory"] < GROWTH
        assert times[int(len(times) * 0.99)] < 0.1 + WAKINGS * late[int(len(late) * 0.99)]
        assert times[-1] < 0.5 + WAKINGS * late[-1]
