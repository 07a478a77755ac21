"""The numbers of each dispatch: one uniform arena, a slot for each distinct set, written when lists are built."""

import numpy as np
import wgpu

from llamay.errors import OutOfMemory
from llamay.tensor.webgpu.device import Device
from llamay.tensor.webgpu.storage import Buffer

STEP = 256  # bytes from one slot to the next: the portable alignment of uniforms
FLOATS = frozenset({"eps", "scale", "softcap"})
FIELDS = (  # in the order of wgsl/include/dims.wgsl
    "steps", "rows", "row0", "tile0", "x_stride", "y_stride", "partials", "width", "eps", "scale", "softcap",
    "heads", "kv_heads", "head_dim", "rope_half", "window", "rows_at", "outputs_at", "ring_at", "slots",
    "vocabulary", "partials_out", "units", "windowed", "expert0", "experts", "tiles", "spread",
    "head_in", "head_out",
)  # fmt: skip


class Dims:
    """Hands out windows that hold `struct Dims` of wgsl/include/dims.wgsl."""

    def __init__(self, device: Device, slots: int) -> None:
        self.device = device
        self._buffer = device.buffer(slots * STEP, wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST)
        self._slots = slots
        self._known: dict[bytes, Buffer] = {}

    def slot(self, **values: float) -> Buffer:
        """The window with these values, zero elsewhere; equal values share one."""
        words = np.zeros(len(FIELDS), np.uint32)
        for name, value in values.items():
            words[FIELDS.index(name)] = np.float32(value).view(np.uint32) if name in FLOATS else value
        key = words.tobytes()
        if key not in self._known:
            at = len(self._known)
            if at == self._slots:
                raise OutOfMemory(f"the command lists need more than the {at} sets of numbers reserved for them")
            self._known[key] = self._buffer.window(at * STEP, 4 * len(FIELDS))
            self.device.write(self._buffer, words, at * STEP)
        return self._known[key]
