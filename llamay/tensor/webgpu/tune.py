"""The launch parameters that are chosen by measuring on an adapter, once: only such as change no sum.

A candidate differs in how many tokens a workgroup does, in how many rows a lane does where
many are there, and in whether weights lie in textures.  Every sum of every output stays the
same under all of them; what fixes the order of sums is in the table of `launch`, by class.
The choice is kept in the cache folder under the adapter, its driver and the kernels' text.
"""

import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import wgpu
from numpy.typing import NDArray

from llamay import wgsl
from llamay.quant import TensorType, quantize
from llamay.tensor.webgpu import choices
from llamay.tensor.webgpu.adapters import Adapter
from llamay.tensor.webgpu.device import Device, Guest
from llamay.tensor.webgpu.dims import Dims
from llamay.tensor.webgpu.formats import UNIT, pack, steps
from llamay.tensor.webgpu.launch import Launch

SECONDS = 2.0  # a measurement takes, and no candidate is begun after
GAIN = 0.97  # of the time before that a candidate must stay under
MOST_TOKENS = 16
ROWS, COLUMNS = 4096, 2048  # of the matrix that is measured with
PROMPT = 64  # token rows of a prefill
VERSION = 1  # of the file

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Tuning:
    """What was chosen, and where from."""

    tokens: tuple[int, ...]  # tokens a workgroup may do, ascending powers of two
    wide: int  # rows a lane of linears with many tiles, 0 for the class's
    textures: bool
    source: str  # the class's defaults, measured, or read from the cache

    def applied(self, launch: Launch) -> Launch:
        """The launch class with this choice; its sums and so its numerics stay."""
        return replace(launch, tokens=self.tokens, wide=self.wide, textures=self.textures)

    def __str__(self) -> str:
        rows = f", {self.wide} rows a lane where many are there" if self.wide else ""
        weights = "textures" if self.textures else "buffers"
        return f"{'/'.join(map(str, self.tokens))} tokens a workgroup{rows}, weights in {weights} ({self.source})"


def defaults(launch: Launch) -> Tuning:
    """The class's own choice."""
    return Tuning(launch.tokens, launch.wide, launch.textures, "the class's defaults")


def choose(device: Device, folder: Path) -> Tuning:
    """The stored choice for this device; where there is none, one measured now on hardware, the defaults elsewhere.

    Compiling candidates in software takes longer than it gains at a start; `measure` does it on request.
    """
    found = stored(device, folder)
    if found is not None:
        return found
    return defaults(device.launch) if device.adapter.software else measure(device, folder)


def stored(device: Device, folder: Path) -> Tuning | None:
    """The choice in the cache folder; None where there is none that fits."""
    path = folder / "tuning" / f"{_key(device.adapter, device.launch)}.json"
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        tokens, wide, textures = tuple(found["tokens"]), found["wide"], found["textures"]
    except (OSError, ValueError, TypeError, KeyError):
        return None  # nothing there, or nothing of ours: it is measured again
    ascending = bool(tokens) and tokens == tuple(2**i for i in range(len(tokens))) and tokens[-1] <= MOST_TOKENS
    if not ascending or wide not in (0, 8) or type(wide) is not int or type(textures) is not bool:
        return None
    return Tuning(tokens, wide, textures, f"measured, kept in {path}")


def measure(device: Device, folder: Path, clock: Clock = time.perf_counter) -> Tuning:
    """Measures the candidates, within some SECONDS, and keeps the best choice."""
    end = clock() + SECONDS
    bench = _Bench(device)
    try:
        tuning, times = _best(bench, device, lambda: clock() < end)
    finally:
        bench.close()
    path = folder / "tuning" / f"{_key(device.adapter, device.launch)}.json"
    content = {
        "version": VERSION,
        "adapter": device.adapter.name,
        "backend": device.adapter.backend,
        "driver": device.adapter.driver,
        "class": device.launch.name,
        "tokens": list(tuning.tokens),
        "wide": tuning.wide,
        "textures": tuning.textures,
        "seconds": times,
    }
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        partial = path.with_suffix(f".{os.getpid()}.part")
        partial.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        partial.replace(path)
    except OSError as error:
        return replace(tuning, source=f"measured, and not kept: {error}")
    return replace(tuning, source=f"measured, kept in {path}")


def _best(bench: "_Bench", device: Device, going: Callable[[], bool]) -> tuple[Tuning, dict[str, float]]:
    """The best choice found while `going`, and the seconds of every candidate that was tried."""
    launch = device.launch
    times: dict[str, float] = {}

    def timed(candidate: Tuning, tokens: int, rows: int) -> float:
        tall = candidate.wide or launch.tile.rows
        kind = "textures" if candidate.textures else "buffers"
        name = f"{rows} rows, {tokens} tokens a workgroup, {tall} rows a lane, {kind}"
        if name not in times:
            times[name] = bench.seconds(candidate.applied(launch), tall, tokens, rows)
        return times[name]

    def decode(candidate: Tuning) -> float:
        return timed(candidate, 1, 1)

    def prefill(candidate: Tuning) -> float:
        return timed(candidate, candidate.tokens[-1], PROMPT)

    best = defaults(launch)
    for other in _kinds(best, software=device.adapter.software):
        if going() and decode(other) < GAIN * decode(best) and prefill(other) < prefill(best) / GAIN:
            best = other
    while going() and best.tokens[-1] < MOST_TOKENS:
        more = replace(best, tokens=(*best.tokens, 2 * best.tokens[-1]))
        if not prefill(more) < GAIN * prefill(best):
            break
        best = more
    while going() and best.tokens[-1] > 1:
        fewer = replace(best, tokens=best.tokens[:-1])
        if not prefill(fewer) < GAIN * prefill(best):
            break
        best = fewer
    return best, times


def _kinds(best: Tuning, *, software: bool) -> Iterable[Tuning]:
    """The other shapes of a decode step."""
    yield replace(best, wide=0 if best.wide else 8)
    if software:
        yield replace(best, textures=not best.textures)


class _Bench:
    """A made-up matrix, run in any launch."""

    def __init__(self, device: Device) -> None:
        self.device = Guest(device)
        random = np.random.default_rng(3)
        few = quantize(TensorType.Q4_0, random.normal(0, 0.02, (64, COLUMNS)).astype(np.float32))
        self._raw: NDArray[np.uint8] = np.tile(few, (ROWS // 64, 1))
        self._x = self.device.upload(random.standard_normal((PROMPT, COLUMNS)).astype(np.float32))
        self._y = self.device.buffer(4 * PROMPT * ROWS)
        self._dims = Dims(self.device, 8)
        self._weights: dict[tuple[Any, ...], Any] = {}

    def seconds(self, launch: Launch, tall: int, tokens: int, rows: int) -> float:
        """Seconds of one dispatch over `rows` token rows, by `tokens` a workgroup, `tall` rows a lane."""
        tile, format = replace(launch.tile, rows=tall), launch.format(TensorType.Q4_0)
        self.device.launch = launch
        key = (tile, launch.textures)
        if key not in self._weights:
            packed = pack(format, self._raw, COLUMNS, tile).reshape(-1).view(np.uint8)
            self._weights[key] = self.device.fill(packed.nbytes, iter([packed]))
        chosen = choices.linear(TensorType.Q4_0, launch, tile, tokens, "plain", bias=False, normed=False)
        kernel = self.device.kernel("linear", **chosen)
        dims = self._dims.slot(
            steps=steps(format, COLUMNS, tile), units=-(-COLUMNS // UNIT), rows=ROWS, x_stride=COLUMNS // 4, y_stride=ROWS // 4
        )
        group = self.device.bind(kernel, dims=dims, w=self._weights[key], x=self._x, y=self._y)
        command = (kernel, group, (-(-ROWS // tile.height), -(-rows // tokens), 1))
        self._once([command])  # compiles
        count = max(1, min(64, int(0.01 / max(self._once([command]), 1e-6))))  # some 10 ms at a time
        return min(self._once([command] * count) for _ in range(3)) / count

    def close(self) -> None:
        self.device.close()

    def _once(self, commands: list[Any]) -> float:
        self.device.flush()
        start = time.perf_counter()
        self.device.dispatch(commands)
        self.device.flush()
        return time.perf_counter() - start


def _key(adapter: Adapter, launch: Launch) -> str:
    """Names an adapter, its driver, its class, and the kernels whose speed was measured."""
    parts = [VERSION, wgpu.__version__, adapter.name, adapter.type, adapter.backend, adapter.driver, launch, wgsl.digest()]
    return hashlib.sha256("\n".join(map(repr, parts)).encode()).hexdigest()[:16]
