"""A device that is lost or closed is an error that says so, at every call; it never ends the process."""

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from llamay.tensor.webgpu.device import Device

CHILD = Path(__file__).with_name("loss_child.py")
posix = pytest.mark.skipif(os.name != "posix", reason="Windows ends a process that aborts without asking a handler")


def child(case: str, model: Path, timeout: float = 120) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(CHILD), case, str(model)], capture_output=True, text=True, timeout=timeout)


def result(case: str, model: Path) -> dict[str, list[str]]:
    done = child(case, model)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture
def model(adapter, named_case) -> Path:
    return named_case("llama-gqa.f16").path


def test_a_device_that_goes_during_a_submission_is_lost_at_every_call(model: Path) -> None:
    found = result("destroyed", model)
    assert len(found) == 10
    assert {kind for kind, _ in found.values()} == {"DeviceLost"}, found
    assert all("was lost" in words for _, words in found.values())


def test_a_wait_notices_a_loss_that_it_did_not_cause(model: Path) -> None:
    found = result("destroyed_by_another", model)
    assert found["flush"][0] == "DeviceLost", found


def test_a_closed_device_says_that_it_is_closed_at_every_call(model: Path) -> None:
    found = result("closed", model)
    assert len(found) == 9
    assert {kind for kind, _ in found.values()} == {"DeviceError"}, found
    assert all("was closed" in words for _, words in found.values())


@posix
@pytest.mark.parametrize("case", ["aborted_poll", "aborted_submit"])
def test_an_abort_inside_wgpu_is_a_lost_device(case: str, model: Path) -> None:
    found = result(case, model)
    assert found["flush"][0] == found["again"][0] == "DeviceLost", found
    assert "the driver gave it up" in found["flush"][1]
    assert found["second"] == [0, 1, 2, 3]


@posix
def test_any_other_abort_still_ends_the_process(model: Path) -> None:
    assert child("aborted_elsewhere", model).returncode == -signal.SIGABRT


def test_threads_of_a_closed_device_end(adapter) -> None:
    """A server that gives idle models back opens devices for weeks."""
    before = threading.active_count()
    for _ in range(3):
        Device(adapter).close()
    until = time.monotonic() + 60
    while threading.active_count() > before and time.monotonic() < until:
        gc.collect()  # again and again: a thread that ends may be the last that holds a device
        time.sleep(0.02)
    assert threading.active_count() <= before
