"""Which executor a small encoder gets: the device, or NumPy where that is quicker, as measured once on this machine."""

import json
import os
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from llamay.serve.loading import devices
from llamay.serve.loading.devices import Choice
from llamay.serve.loading.pools import Pools
from llamay.settings import Settings
from llamay.tensor.batch import PAGE, Batch
from llamay.tensor.executor import Executor
from llamay.tensor.program import Program

SMALL = 256 << 20  # bytes of weights, beyond which nobody tries NumPy
TEXTS, LENGTH = 8, 32  # that are timed, and the tokens of each
TIMES = 3


def executor(choice: Choice, program: Program, sizes: Pools, settings: Settings, weights: int) -> tuple[Choice, Executor]:
    """The executor of an encoder with so many bytes of weights, and what it computes on.

    A device that a person named is taken.  A software adapter is not tried: it computes on the
    same cores as NumPy, and takes longer to compile its kernels than a query takes to embed.
    """
    if choice.adapter is None or settings.backend != "auto" or settings.require_webgpu or weights > SMALL:
        return choice, devices.executor(choice, program, sizes, settings)
    plain = replace(choice, backend="numpy", adapter=None, reason="it is quicker for a small encoder")
    if choice.adapter.software:
        return plain, devices.executor(plain, program, sizes, settings)
    kept = settings.cache / "encoders" / f"{_key(choice, program)}.json"
    known = _read(kept)
    if known is not None:
        taken = choice if known == "webgpu" else plain
        return taken, devices.executor(taken, program, sizes, settings)
    both = [(one, devices.executor(one, program, sizes, settings)) for one in (choice, plain)]
    times = [seconds(one) for _, one in both]
    quicker = times.index(min(times))
    both[1 - quicker][1].close()
    _write(kept, both[quicker][0].backend, times)
    return both[quicker]


def seconds(executor: Executor) -> float:
    """The least time that some texts take, after one time that compiles what they need."""
    texts = min(TEXTS, executor.slots, executor.pages // -(-LENGTH // PAGE))
    rows = texts * LENGTH
    tables = np.arange(texts * -(-LENGTH // PAGE), dtype=np.int32).reshape(texts, -1)
    batch = Batch(
        tokens=(np.arange(rows) % executor.program.vocabulary).astype(np.int32),
        positions=np.tile(np.arange(LENGTH, dtype=np.int32), texts),
        sequences=np.repeat(np.arange(texts, dtype=np.int32), LENGTH),
        tables=tuple(tables),
        outputs=np.arange(1, texts + 1, dtype=np.int32) * LENGTH - 1,
    )
    executor.forward(batch)
    spent = []
    for _ in range(TIMES):
        start = time.perf_counter()
        executor.forward(batch)
        spent.append(time.perf_counter() - start)
    return min(spent)


def _key(choice: Choice, program: Program) -> str:
    """Machine, kernels and shape, as a file's name."""
    import hashlib

    from llamay import wgsl

    adapter = choice.adapter
    told = (adapter.name, adapter.driver, adapter.backend) if adapter is not None else ()
    shape = (program.hidden, len(program.operations), os.cpu_count(), np.__version__, wgsl.digest())
    return hashlib.sha256(repr((*told, *shape)).encode()).hexdigest()[:24]


def _read(path: Path) -> str | None:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))["quicker"]
    except (OSError, ValueError, TypeError, KeyError):
        return None  # nothing there, or nothing of ours: it is measured again
    return found if found in ("numpy", "webgpu") else None


def _write(path: Path, quicker: str, times: list[float]) -> None:
    content = {"quicker": quicker, "seconds": {"webgpu": times[0], "numpy": times[1]}}
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.part")
        partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError:
        return  # it is measured again the next time
