"""Whether a model fits: what a load needs against what the device has, before anything is allocated.

WebGPU tells nobody how much memory there is, and drivers hand out more than they have.  So
the need is computed here, by laying the model out on a device that only counts, and the
other side is read from the system where that is possible.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from llamay.errors import OutOfMemory
from llamay.tensor import room
from llamay.tensor.batch import PAGE
from llamay.tensor.cache import CacheFormat
from llamay.tensor.program import Embed, Latent, Program, Qkv
from llamay.tensor.webgpu.adapters import Adapter
from llamay.tensor.webgpu.device import STORAGE, Device
from llamay.tensor.webgpu.memory import Memory
from llamay.tensor.webgpu.state import StateLayout
from llamay.tensor.webgpu.storage import Buffer, Rows, Texture

OVERHEAD = 96 << 20  # bytes for pipelines, the driver's own buffers and what is in flight while loading
SHARED = 0.75  # of the machine's memory that an adapter without memory of its own takes at most
CARDS = Path("/sys/class/drm")


@dataclass(frozen=True, slots=True)
class Need:
    """Bytes on the device."""

    weights: int
    kv: int  # keys and values
    work: int
    page: int  # bytes of keys and values that one page more adds
    pages: int  # of the group whose pages grow with the context
    largest_kv: int  # the largest buffer of keys or of values in that group

    @property
    def total(self) -> int:
        return self.weights + self.kv + self.work + OVERHEAD

    def pages_within(self, have: int, largest: int) -> int:
        """How many pages would fit `have` bytes with no buffer above `largest`."""
        by_room = self.pages + (have - self.total) // self.page if self.page else self.pages
        by_buffer = largest // (self.largest_kv // (self.pages + 1)) - 1 if self.largest_kv else self.pages
        return max(0, min(by_room, by_buffer))


@dataclass(frozen=True, slots=True)
class Have:
    """Bytes a load may take, and where the figure is from."""

    bytes: int
    source: str


class Counter(Device):
    """Lays things out as a Device does, and only counts their bytes."""

    def __init__(self, device: Device) -> None:
        self.adapter, self.limits, self.launch = device.adapter, device.limits, device.launch
        self.allocated, self.tables = 0, {}

    def buffer(self, size: int, usage: int = STORAGE) -> Buffer:
        size = max(16, (size + 3) & ~3)
        self.allocated += size
        return Buffer(None, 0, size)

    def texture(self, size: int, format: str = "") -> Texture:
        size = max(16, -(-size // 16) * 16)
        self.allocated += size
        return Texture(None, None, size)

    def write(self, buffer: Rows, data: NDArray[Any], offset: int = 0) -> None:
        pass

    def fill(self, size: int, parts: Iterator[NDArray[np.uint8]]) -> Rows:
        return self.texture(size) if self.launch.textures else self.buffer(size)


def need(
    device: Device, program: Program, rows: int, pages: int, layout: StateLayout, window_pages: int, cache: CacheFormat
) -> Need:
    """What `Memory` of these arguments takes, and the tables its plan adds."""
    counter = Counter(device)
    memory = Memory(counter, program, rows, pages, layout, window_pages, cache)
    for op in program.operations:
        if isinstance(op, Qkv | Latent):
            memory.turns(op.rope)
        if isinstance(op, Embed):
            for table in (op.positions, op.kinds):
                if table is not None:
                    memory.table(table)
    growing = [layer for layer in range(len(memory.keys)) if layer not in memory.windowed]
    return Need(
        weights=memory.weight_bytes,
        kv=memory.kv_bytes,
        work=counter.allocated - memory.weight_bytes - memory.kv_bytes,
        page=sum(memory.key_bytes[layer] + memory.value_bytes[layer] for layer in growing),
        pages=pages,
        largest_kv=max((max(memory.keys[layer].size, memory.values[layer].size) for layer in growing), default=0),
    )


def have(adapter: Adapter, allowed: int = 0) -> Have | None:
    """What the adapter has to give: `allowed` where a person set it, else what the system tells; None: unknown."""
    if allowed:
        return Have(allowed, "are what device_memory allows")
    if adapter.software:
        return Have(room.machine().free, "of the machine's memory are free")
    if adapter.type == "IntegratedGPU":
        machine = room.machine()
        return Have(min(machine.free, int(SHARED * machine.total)), "of the machine's memory are free for the adapter")
    free = _free_on_card(adapter)
    return None if free is None else Have(free, "of the card's memory are free")


def check(device: Device, need: Need, have: Have | None, context: int) -> None:
    """Raises OutOfMemory when the need exceeds what there is, or a buffer what can be bound; says what would fit."""
    largest = device.binding
    free = need.total if have is None else have.bytes
    if need.total <= free and need.largest_kv <= largest:
        return
    parts = f"weights {_mib(need.weights)}, keys and values {_mib(need.kv)}, work {_mib(need.work + OVERHEAD)}"
    if have is not None and need.total > free:
        found = f"the model needs {_mib(need.total)} on {device.name} ({parts}); {_mib(free)} {have.source}"
    else:
        found = f"keys take {_mib(need.largest_kv)} a layer; {device.name} binds at most {_mib(largest)} at a time"
    fitting = min(need.pages_within(free, largest), -(-context // PAGE) - 1) * PAGE
    if fitting > 0:
        advice = f"a context of {fitting} tokens would fit (-c {fitting})"
    else:
        advice = "no context is small enough; a smaller quantisation may be, or -device numpy, which needs little"
    raise OutOfMemory(f"{found}: {advice}")


def _mib(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB"


def _free_on_card(adapter: Adapter) -> int | None:
    """Bytes free on an AMD card, which alone tells in a file; None elsewhere."""
    wanted = (adapter.handle.info.get("vendor_id"), adapter.handle.info.get("device_id"))
    for card in sorted(CARDS.glob("card*/device")):
        try:
            if (int((card / "vendor").read_text(), 16), int((card / "device").read_text(), 16)) == wanted:
                total, used = ((card / f"mem_info_vram_{name}").read_text() for name in ("total", "used"))
                return max(0, int(total) - int(used))
        except (OSError, ValueError):
            continue  # another vendor's card
    return None
