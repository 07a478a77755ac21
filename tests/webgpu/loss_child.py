"""A process in which a device is lost, closed, or waited for: a mistake in the code under test would abort it.

It prints a JSON object on stdout; `test_loss` and `test_interrupt` read it.
"""

import ctypes
import json
import sys
import threading
import time
from pathlib import Path

import numpy as np

from llamay.errors import LlamayError
from llamay.sample import Sampling
from llamay.serve.engine import Engine
from llamay.serve.loading import load
from llamay.serve.request import Limits, Request
from llamay.settings import Settings
from llamay.tensor.batch import Batch
from llamay.tensor.webgpu import aborts, adapters
from llamay.tensor.webgpu.device import Device

TABLE = np.arange(4, dtype=np.int32)
GREEDY = Sampling(temperature=0.0)
BUSY = """
@group(0) @binding(0) var<storage, read_write> out: array<f32>;
@compute @workgroup_size(8)
fn busy(@builtin(global_invocation_id) id: vec3<u32>) {
  var x = f32(id.x);
  for (var i = 0u; i < 60000u; i++) { x = fma(x, 0.999, 0.1); }
  out[id.x] = x;
}"""

LONG = (60000, 30, 1)  # workgroups of BUSY: minutes, and on a processor with many cores seconds yet


def batch(rows: int = 5) -> Batch:
    return Batch.single(np.arange(rows, dtype=np.int32), 0, TABLE)


def outcome(call) -> list[str]:
    """The error's type and words, or what came back."""
    try:
        return ["no error", str(type(call()).__name__)]
    except LlamayError as error:
        return [type(error).__name__, str(error)]


def calls(executor) -> dict[str, list[str]]:
    """Everything an executor can be asked for."""
    device = executor.device
    return {
        "begin": outcome(lambda: executor.begin((GREEDY,), (np.zeros(0, np.int32),))),
        "forward": outcome(lambda: executor.forward(batch())),
        "submit": outcome(lambda: executor.submit(batch(), 3)),
        "continue": outcome(lambda: executor.submit(None, 1)),
        "buffer": outcome(lambda: device.buffer(64)),
        "upload": outcome(lambda: device.upload(np.zeros(64, np.float32))),
        "read": outcome(lambda: device.read(executor.memory.logits, np.float32, 4)),
        "flush": outcome(device.flush),
    }


def destroyed(path: Path) -> dict[str, object]:
    """The device goes while a submission is on its way, then everything is tried again."""
    executor = load.load(path, Settings()).executor
    executor.begin((GREEDY,), (np.zeros(0, np.int32),))
    executor.submit(batch(), 4)
    executor.device.handle.destroy()
    made = outcome(lambda: executor.device.compile("busy", BUSY))  # the first to notice
    found: dict[str, object] = {"compile": made, "collect": outcome(executor.collect), **calls(executor)}
    executor.close()
    return found


def destroyed_by_another(path: Path) -> dict[str, object]:
    """The device goes while the owner waits for it."""
    device = Device(adapters.choose()[0])
    kernel = device.compile("busy", BUSY)
    out = device.buffer(4 * 8 * 60000)
    device.dispatch([(kernel, device.bind(kernel, out=out), LONG)])
    threading.Timer(0.3, device.handle.destroy).start()
    start = time.perf_counter()
    found = outcome(device.flush)
    return {"flush": found, "seconds": time.perf_counter() - start}


def closed(path: Path) -> dict[str, object]:
    loaded = load.load(path, Settings())
    loaded.executor.begin((GREEDY,), (np.zeros(0, np.int32),))
    loaded.executor.submit(batch(), 4)
    loaded.close()
    loaded.close()
    return {"collect": outcome(loaded.executor.collect), **calls(loaded.executor)}


def _abort() -> None:
    ctypes.CDLL(None).abort()


def aborted_poll(path: Path) -> dict[str, object]:
    """What wgpu does when a wait is the first to notice a loss, on the thread where it does."""
    device = Device(adapters.choose()[0])
    device.flush()
    device.handle._poller._poll_func = lambda block: _abort()
    found = outcome(device.flush)
    return {"flush": found, "again": outcome(lambda: device.buffer(64)), "second": _second()}


def aborted_submit(path: Path) -> dict[str, object]:
    """The same in a submission."""
    device = Device(adapters.choose()[0])
    device.flush()
    device.queue.submit = lambda commands: _abort()
    found = outcome(device.flush)
    return {"flush": found, "again": outcome(lambda: device.buffer(64)), "second": _second()}


def _second() -> list[int]:
    """Another device goes on working."""
    device = Device(adapters.choose()[0])
    buffer = device.upload(np.arange(4, dtype=np.uint32))
    found = device.read(buffer, np.uint32, 4).tolist()
    device.close()
    return found


def aborted_elsewhere(path: Path) -> dict[str, object]:
    """Any other abort ends the process, as it always did."""
    aborts.guard(threading.Thread(target=print), print)
    _abort()
    return {}


def interrupted_wait(path: Path) -> dict[str, object]:
    """Waits for minutes of work until an interrupt comes."""
    device = Device(adapters.choose()[0])
    kernel = device.compile("busy", BUSY)
    out = device.buffer(4 * 8 * 60000)
    group = device.bind(kernel, out=out)
    device.dispatch([(kernel, group, LONG)])
    try:
        print("waiting", flush=True)
        device.flush()
    except KeyboardInterrupt:
        print(json.dumps({"interrupted": True}), flush=True)
        sys.stdout.flush()
        import os

        os._exit(0)  # the work itself goes on for long
    return {"interrupted": False}


def interrupted_generations(path: Path) -> dict[str, object]:
    """Generates over and over; every interrupt must leave the engine as good as new."""
    loaded = load.load(path, Settings())
    engine = Engine.of(loaded)
    request = Request(tuple(loaded.language.raw("a b c").tokens), GREEDY, Limits(tokens=40))

    def generate() -> str:
        return "".join(getattr(event, "text", "") for event in engine.submit(request))

    expected = generate()
    interrupts = told = wrong = 0
    print("ready", flush=True)
    while interrupts < 6:
        try:
            if told < interrupts:  # here, where the next one may come as soon as this is read
                told += 1
                print("interrupted", flush=True)
            while True:
                wrong += generate() != expected
                engine.call(lambda scheduler: scheduler.cache.evict(scheduler.cache.groups[0].pages.count))
        except KeyboardInterrupt:
            interrupts += 1
    print("interrupted", flush=True)
    wrong += generate() != expected
    engine.close()
    return {"interrupts": interrupts, "wrong": wrong, "text": expected}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](Path(sys.argv[2]))), flush=True)
