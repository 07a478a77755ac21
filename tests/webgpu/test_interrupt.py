"""Ctrl-C is heard while the device works, and leaves everything usable."""

import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CHILD = Path(__file__).with_name("loss_child.py")
posix = pytest.mark.skipif(os.name != "posix", reason="a process of Windows cannot be sent Ctrl-C alone")
INTERRUPTS = 6  # as many as the child waits for
HEARD = 20  # seconds: where others compute the process takes long to end, and its work takes minutes


@pytest.fixture
def model(adapter, named_case) -> Path:
    return named_case("llama-gqa.f16").path


def start(case: str, model: Path, word: str) -> subprocess.Popen[str]:
    child = subprocess.Popen([sys.executable, str(CHILD), case, str(model)], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    assert child.stdout.readline().strip() == word
    return child


@posix
def test_a_long_wait_ends_at_once(model: Path) -> None:
    child = start("interrupted_wait", model, "waiting")
    time.sleep(0.5)
    sent = time.perf_counter()
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=120)
    assert json.loads(out) == {"interrupted": True}
    assert time.perf_counter() - sent < HEARD


@posix
def test_interrupts_at_any_moment_leave_the_engine_as_good_as_new(model: Path) -> None:
    child = start("interrupted_generations", model, "ready")
    assert child.stdout is not None
    pause = random.Random(5)
    for _ in range(INTERRUPTS):
        time.sleep(pause.uniform(0.0, 0.15))
        child.send_signal(signal.SIGINT)
        while not select.select([child.stdout], [], [], 15)[0]:
            child.send_signal(signal.SIGINT)  # Python swallows one that arrives while an object is finalised
        assert child.stdout.readline().strip() == "interrupted"
    out, _ = child.communicate(timeout=120)
    found = json.loads(out)
    assert found["interrupts"] == INTERRUPTS and found["wrong"] == 0 and found["text"]
