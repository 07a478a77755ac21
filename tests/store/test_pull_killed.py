"""Processes that are killed, interrupted, or pull the same at once: nothing is lost and nothing is spoilt."""

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

MODEL = "application/vnd.ollama.image.model"
TEMPLATE = "application/vnd.ollama.image.template"
CHILD = Path(__file__).with_name("child.py")


class Nest:
    """A process that has imported everything and forks for each job."""

    def __init__(self, home: Path) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PIP_", "HF_", "LLAMAY_")) and not name.lower().endswith("_proxy")}
        environment = {**kept, "PIP_CONFIG_FILE": os.devnull, "HOME": str(home)}
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([sys.executable, str(CHILD)], stdin=pipe, stdout=pipe, text=True, env=environment)

    def ask(self, mode: str, root: object, server: str = "", source: str = "") -> int:
        """The answer to a job; child.py tells which there are."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([mode, root, server, source]) + "\n")
        self._process.stdin.flush()
        return int(self._process.stdout.readline())

    def start(self, kit, source: str) -> int:
        """The number of a process that pulls."""
        return self.ask("pull", str(kit.store.root), kit.server.url, source)

    def end(self, number: int) -> int:
        """How it ended, once it has."""
        return self.ask("wait", number)

    def kill(self, number: int) -> int:
        os.kill(number, signal.SIGKILL)
        return self.end(number)

    def close(self) -> None:
        self._process.communicate(timeout=120)


@pytest.fixture(scope="module")
def nest(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nest]:
    made = Nest(tmp_path_factory.mktemp("home"))
    yield made
    made.close()


def test_kill_9_at_random_moments_loses_nothing(kit, nest: Nest) -> None:
    random_ = random.Random(11)
    data = kit.gguf(1_500_000)
    blobs = kit.server.registry("tiny", "latest", [(MODEL, data), (TEMPLATE, b"{{ .Prompt }}")])
    blobs[MODEL].piece = 8_192
    blob = f"/v2/library/tiny/blobs/sha256:{kit.sha256(data)}"
    lengths = [0]
    kills = 0
    while len(set(lengths)) < 6:  # five kills met the transfer
        seen, luck = len(kit.server.asked(blob)), random_.random()
        blobs[MODEL].held = random_.randrange(100_000, 250_000)  # it never comes to its end
        child = nest.start(kit, "tiny")
        if luck < 0.8:  # the others may come before the transfer
            until(lambda before=seen: len(kit.server.asked(blob)) > before)
        if luck < 0.6:
            until(lambda before=lengths[-1]: any(part.stat().st_size > before for part in parts(kit, data)))
        time.sleep(random_.uniform(0.0, 0.08))
        assert nest.kill(child) in (0, -signal.SIGKILL)
        kit.check_blobs()
        lengths += [part.stat().st_size for part in parts(kit, data)]
        kills += 1
        assert kills < 30 and not kit.store.survey().models, "the kills do not meet the transfer"
    assert lengths == sorted(lengths), "bytes that were here are gone"
    assert sum("range" in headers for headers in kit.server.asked(blob)) >= 4
    blobs[MODEL].go_on.set()
    assert kit.read(kit.pull("tiny")) == data


@pytest.mark.skipif(not hasattr(os, "fork"), reason="a kill at every point needs fork")
@pytest.mark.parametrize("kind", ["registry", "index", pytest.param("web", marks=pytest.mark.soak)])
def test_a_kill_at_every_change_of_the_store_is_survived(kit, nest: Nest, kind: str) -> None:
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
    found = nest.ask("crash", str(kit.store.root), kit.server.url, source)
    assert found >= 25  # system calls that change the store in one pull


def test_four_processes_pulling_the_same_at_once(kit, nest: Nest) -> None:
    data = kit.gguf(300_000)
    blobs = kit.server.registry("tiny", "latest", [(MODEL, data), (TEMPLATE, b"{{ .Prompt }}")])
    blobs[MODEL].piece, blobs[MODEL].pause = 8_192, 0.01
    children = [nest.start(kit, "tiny") for _ in range(4)]
    assert [nest.end(child) for child in children] == [0] * 4
    assert kit.read(kit.pull("tiny")) == data
    assert len(kit.server.asked(f"/v2/library/tiny/blobs/sha256:{kit.sha256(data)}")) == 1
    assert kit.parts() == []


def test_four_processes_pulling_the_same_web_file_at_once(kit, nest: Nest) -> None:
    data = kit.gguf(200_000)
    kit.server.put("/m.gguf", data, etag='"one"', piece=8_192, pause=0.01)
    url = f"{kit.server.url}/m.gguf"
    children = [nest.start(kit, url) for _ in range(4)]
    assert [nest.end(child) for child in children] == [0] * 4
    assert kit.server.served == len(data), "it was sent more than once"
    assert kit.read(kit.pull(url)) == data


def test_a_waiting_process_goes_on_when_the_first_is_killed(kit, nest: Nest) -> None:
    data = kit.gguf(400_000)
    blobs = kit.server.registry("tiny", "latest", [(MODEL, data)])
    blobs[MODEL].piece, blobs[MODEL].held = 8_192, 100_000
    first = nest.start(kit, "tiny")
    until(lambda: any(part.stat().st_size > 50_000 for part in kit.parts()))
    second = nest.start(kit, "tiny")
    time.sleep(0.2)
    nest.kill(first)
    blobs[MODEL].go_on.set()
    assert nest.end(second) == 0
    assert kit.server.asked(f"/v2/library/tiny/blobs/sha256:{kit.sha256(data)}")[-1]["range"]
    assert kit.read(kit.pull("tiny")) == data


def test_ctrl_c_leaves_a_part_that_resumes_and_exits_130(kit) -> None:
    data = kit.gguf(400_000)
    resource = kit.server.put("/m.gguf", data, etag='"one"', piece=8_192, held=200_000)
    command = [sys.executable, "-m", "llamay", "pull", f"{kit.server.url}/m.gguf"]
    environment = {**os.environ, "LLAMAY_MODELS": str(kit.store.root)}
    child = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    until(lambda: any(part.stat().st_size > 50_000 for part in kit.parts()))
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=120)
    assert child.returncode == 130
    assert "goes on from there" in errors and "Traceback" not in errors
    (part,) = kit.parts()
    length = part.stat().st_size
    resource.go_on.set()
    again = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=240)
    assert again.returncode == 0, again.stderr
    assert kit.server.asked("/m.gguf")[-1]["range"] == f"bytes={length}-"
    assert "100%" in again.stderr and again.stdout == ""


def test_a_blob_a_running_pull_counts_on_is_not_removed(kit) -> None:
    template = b"{{ .Prompt }}"
    kit.server.registry("old", "latest", [(MODEL, kit.gguf(seed=1)), (TEMPLATE, template)])
    kit.pull("old")
    data = kit.gguf(200_000, seed=2)
    blobs = kit.server.registry("new", "latest", [(TEMPLATE, template), (MODEL, data)])
    blobs[MODEL].piece, blobs[MODEL].held = 8_192, 100_000
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
    blobs[MODEL].go_on.set()
    thread.join(60)
    assert failures == []
    (model,) = kit.store.survey().models
    assert kit.store.text(model, "template") == template.decode()
    assert kit.store.file(model).read_bytes() == data


def parts(kit, data: bytes) -> list[Path]:
    """What was received of a blob."""
    return [part for part in kit.parts() if part.name.startswith(f"sha256-{kit.sha256(data)}")]


def until(condition, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came to that"
        time.sleep(0.01)
