"""Processes that are killed, interrupted, or pull the same at once: nothing is lost and nothing is spoilt."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

MODEL = "application/vnd.ollama.image.model"
TEMPLATE = "application/vnd.ollama.image.template"
CHILD = Path(__file__).with_name("child.py")


def start(kit, mode: str, source: str) -> "subprocess.Popen[str]":
    command = [sys.executable, str(CHILD), mode, str(kit.store.root), kit.server.url, source]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_kill_9_at_random_moments_loses_nothing(kit) -> None:
    random_ = random.Random(11)
    data = kit.gguf(1_500_000)
    blobs = kit.server.registry("tiny", "latest", [(MODEL, data), (TEMPLATE, b"{{ .Prompt }}")])
    blobs[MODEL].piece, blobs[MODEL].pause = 8_192, 0.004  # most of a second for the whole
    blob = f"/v2/library/tiny/blobs/sha256:{kit.sha256(data)}"
    lengths = [0]
    kills = 0
    while len(set(lengths)) < 6:  # five kills met the transfer
        seen = len(kit.server.asked(blob))
        child = start(kit, "pull", "tiny")
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
        if random_.random() < 0.8:  # the others may come before the transfer
            until(lambda before=seen: len(kit.server.asked(blob)) > before)
        time.sleep(random_.uniform(0.0, 0.08))
        child.kill()
        _, errors = child.communicate()
        assert child.returncode in (0, -signal.SIGKILL), errors
        kit.check_blobs()
        lengths += [part.stat().st_size for part in kit.parts() if part.name.startswith(f"sha256-{kit.sha256(data)}")]
        kills += 1
        assert kills < 30 and not kit.store.survey().models, "the kills do not meet the transfer"
    assert lengths == sorted(lengths), "bytes that were here are gone"
    assert sum("range" in headers for headers in kit.server.asked(blob)) >= 4
    assert kit.read(kit.pull("tiny")) == data


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a kill at every point needs fork")
@pytest.mark.parametrize("kind", ["registry", "web", "index"])
def test_a_kill_at_every_change_of_the_store_is_survived(kit, kind: str) -> None:
    data = kit.gguf(20_000)
    if kind == "registry":
        kit.server.registry("tiny", "latest", [(MODEL, data)])
        source = "tiny"
    elif kind == "web":
        kit.server.put("/m.gguf", data, etag='"one"')
        source = f"{kit.server.url}/m.gguf"
    else:
        kit.server.index("llm-tiny", dict([kit.wheel("llm-tiny", "1", {"T.gguf": data})]))
        source = "pypi:llm-tiny"
    child = start(kit, "crash", source)
    output, errors = child.communicate(timeout=120)
    assert child.returncode == 0, errors
    assert int(output) >= 25  # system calls that change the store in one pull


def test_four_processes_pulling_the_same_at_once(kit) -> None:
    data = kit.gguf(300_000)
    blobs = kit.server.registry("tiny", "latest", [(MODEL, data), (TEMPLATE, b"{{ .Prompt }}")])
    blobs[MODEL].piece, blobs[MODEL].pause = 8_192, 0.01
    children = [start(kit, "pull", "tiny") for _ in range(4)]
    for child in children:
        _, errors = child.communicate(timeout=60)
        assert child.returncode == 0, errors
    assert kit.read(kit.pull("tiny")) == data
    assert len(kit.server.asked(f"/v2/library/tiny/blobs/sha256:{kit.sha256(data)}")) == 1
    assert kit.parts() == []


def test_four_processes_pulling_the_same_web_file_at_once(kit) -> None:
    data = kit.gguf(200_000)
    kit.server.put("/m.gguf", data, etag='"one"', piece=8_192, pause=0.01)
    url = f"{kit.server.url}/m.gguf"
    children = [start(kit, "pull", url) for _ in range(4)]
    for child in children:
        _, errors = child.communicate(timeout=60)
        assert child.returncode == 0, errors
    assert kit.server.served == len(data), "it was sent more than once"
    assert kit.read(kit.pull(url)) == data


def test_a_waiting_process_goes_on_when_the_first_is_killed(kit) -> None:
    data = kit.gguf(400_000)
    blobs = kit.server.registry("tiny", "latest", [(MODEL, data)])
    blobs[MODEL].piece, blobs[MODEL].pause = 8_192, 0.02
    first = start(kit, "pull", "tiny")
    until(lambda: any(part.stat().st_size > 50_000 for part in kit.parts()))
    second = start(kit, "pull", "tiny")
    assert second.stdout is not None and second.stdout.readline() == "ready\n"
    time.sleep(0.2)
    first.kill()
    first.communicate()
    blobs[MODEL].pause = 0.0
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 0, errors
    assert kit.server.asked(f"/v2/library/tiny/blobs/sha256:{kit.sha256(data)}")[-1]["range"]
    assert kit.read(kit.pull("tiny")) == data


def test_ctrl_c_leaves_a_part_that_resumes_and_exits_130(kit) -> None:
    data = kit.gguf(400_000)
    resource = kit.server.put("/m.gguf", data, etag='"one"', piece=8_192, pause=0.02)
    command = [sys.executable, "-m", "llamay", "pull", f"{kit.server.url}/m.gguf"]
    environment = {**os.environ, "LLAMAY_MODELS": str(kit.store.root)}
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    until(lambda: any(part.stat().st_size > 50_000 for part in kit.parts()))
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=30)
    assert child.returncode == 130
    assert "goes on from there" in errors and "Traceback" not in errors
    (part,) = kit.parts()
    length = part.stat().st_size
    resource.pause = 0.0
    again = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)
    assert again.returncode == 0, again.stderr
    assert kit.server.asked("/m.gguf")[-1]["range"] == f"bytes={length}-"
    assert "100%" in again.stderr and again.stdout == ""


def test_a_blob_a_running_pull_counts_on_is_not_removed(kit) -> None:
    template = b"{{ .Prompt }}"
    kit.server.registry("old", "latest", [(MODEL, kit.gguf(seed=1)), (TEMPLATE, template)])
    kit.pull("old")
    data = kit.gguf(200_000, seed=2)
    blobs = kit.server.registry("new", "latest", [(TEMPLATE, template), (MODEL, data)])
    blobs[MODEL].piece, blobs[MODEL].pause = 8_192, 0.01
    failures: list[BaseException] = []

    def pull_new() -> None:
        try:
            kit.pull("new")
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=pull_new)
    thread.start()
    until(lambda: any(part.stat().st_size > 0 for part in kit.parts()))
    from llamay.store import names

    kit.store.remove(names.parse("old"))
    kit.store.sweep()
    assert thread.is_alive(), "the removal came too late to show anything"
    thread.join()
    assert failures == []
    (model,) = kit.store.survey().models
    assert kit.store.text(model, "template") == template.decode()
    assert kit.store.file(model).read_bytes() == data


def until(condition, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)
