"""An opened adapter: its queue and limits, its buffers, its compiled kernels, and what became of it."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import wgpu
from numpy.typing import NDArray

from llamay.errors import DeviceError, OutOfMemory
from llamay.tensor.webgpu.adapters import Adapter
from llamay.tensor.webgpu.launch import LAUNCHES, Launch, launch_for
from llamay.tensor.webgpu.storage import LINE, TEXELS, Buffer, Rows, Texture, copy_out, pieces
from llamay.tensor.webgpu.watch import DEPTH, Watch
from llamay.wgsl import Choice, compose

WANTED_FEATURES = ("subgroup", "timestamp-query")
PORTABLE = {  # what WebGPU promises everywhere
    "max-buffer-size": 256 << 20,
    "max-storage-buffer-binding-size": 128 << 20,
    "max-storage-buffers-per-shader-stage": 8,
    "max-compute-workgroup-storage-size": 16384,
    "max-compute-invocations-per-workgroup": 256,
    "max-compute-workgroup-size-x": 256,
    "max-compute-workgroups-per-dimension": 65535,
    "max-texture-dimension-2d": 8192,
    "max-storage-textures-per-shader-stage": 4,
}
UPLOAD = 8 << 20  # bytes a submit while filling a buffer: one huge write doubles the resident memory
STORAGE = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_DST | wgpu.BufferUsage.COPY_SRC
IMAGE = wgpu.TextureUsage.STORAGE_BINDING | wgpu.TextureUsage.COPY_DST | wgpu.TextureUsage.COPY_SRC
IMAGES = 5  # textures that one kernel binds at most: weights, rows, queries, keys and values
UNIFORM = wgpu.BufferUsage.UNIFORM | wgpu.BufferUsage.COPY_DST
SOFTWARE_DEPTH = 2  # submissions on their way: what was submitted is worked off whatever a person interrupts
_BINDING = re.compile(
    r"@binding\((\d+)\)\s*var(?:<(uniform|storage,\s*read_write|storage,\s*read)>)?\s*(\w+)\s*:\s*(texture\w*<[\w, ]+>)?"
)
_LAYOUTS: dict[str, dict[str, Any]] = {
    "uniform": {"buffer": {"type": "uniform"}},
    "storage,read": {"buffer": {"type": "read-only-storage"}},
    "storage,read_write": {"buffer": {"type": "storage"}},
    "texture_storage_2d<rgba32uint,read>": {"storage_texture": {"access": "read-only", "format": "rgba32uint"}},
    "texture_storage_2d<rgba32float,read>": {"storage_texture": {"access": "read-only", "format": "rgba32float"}},
    "texture_storage_2d<rgba32float,write>": {"storage_texture": {"access": "write-only", "format": "rgba32float"}},
}


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """A compiled pipeline and the names of its bindings."""

    name: str
    pipeline: Any
    layout: Any
    bindings: dict[str, int]
    label: str = ""  # for people: the name and the choices that tell its variants apart


class Device:
    """One wgpu device and everything made on it.  Owned by one thread.

    With `portable` only the limits WebGPU promises everywhere are asked for, so that a
    kernel that needs more fails here as it would on the smallest adapter.
    """

    def __init__(self, adapter: Adapter, *, portable: bool = False, launch: Launch | None = None) -> None:
        """`launch` is the class for it, None for what the adapter should have.  Raises DeviceError."""
        self.adapter = adapter
        features = [] if portable else [name for name in WANTED_FEATURES if name in adapter.features]
        self.limits = limits = dict(PORTABLE)
        try:
            if not portable:
                limits |= {name: max(least, int(adapter.handle.limits[name])) for name, least in PORTABLE.items()}
            self.handle: Any = adapter.handle.request_device_sync(required_features=features, required_limits=limits)
        except Exception as error:
            raise DeviceError(f"the adapter {adapter.name!r} gave no device: {error}") from error
        self.queue: Any = self.handle.queue
        self.watch = Watch(adapter.name, self.handle, SOFTWARE_DEPTH if adapter.software else DEPTH)
        self.allocated = 0  # bytes of all buffers alive
        self.proven: set[Kernel] = set()  # whose numbers the self-test found right here
        self.tables: dict[str, Buffer] = {}  # what kernels of a format look up, by its name
        self._kernels: dict[tuple[Any, ...], Kernel] = {}
        self._layouts: dict[tuple[Any, ...], Any] = {}
        self._owned: list[Any] = []
        subgroup = self._probe_subgroup() if "subgroup" in features else 0
        if launch is None:
            found = launch_for(subgroup, software=adapter.software, least=adapter.subgroups[0])
            launch = LAUNCHES["portable"] if portable else found
        if launch.textures and limits["max-storage-textures-per-shader-stage"] < IMAGES:
            launch = replace(launch, textures=False)
        self.launch: Launch = launch

    @property
    def name(self) -> str:
        return self.adapter.name

    @property
    def binding(self) -> int:
        """Bytes that one binding of a buffer takes."""
        return min(self.limits["max-storage-buffer-binding-size"], self.limits["max-buffer-size"])

    def check(self) -> None:
        """Raises DeviceLost once the device is gone, with the cause, and DeviceError once it is closed."""
        self.watch.check()

    def buffer(self, size: int, usage: int = STORAGE) -> Buffer:
        """A zeroed buffer of at least `size` bytes.

        Raises OutOfMemory when it exceeds what the adapter takes in one piece.
        """
        size = max(16, (size + 3) & ~3)
        if size > self.limits["max-buffer-size"]:
            raise OutOfMemory(
                f"{self.name} takes buffers of at most {self.limits['max-buffer-size']:,} bytes, {size:,} were asked for"
            )
        self.check()
        with self._making(f"a buffer of {size:,} bytes"):
            handle = self.handle.create_buffer(size=size, usage=usage)
        self._owned.append(handle)
        self.allocated += size
        return Buffer(handle, 0, size)

    def upload(self, values: NDArray[Any]) -> Buffer:
        """A new storage buffer with the bytes of `values`."""
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
        buffer = self.buffer(data.nbytes)
        self.write(buffer, data)
        return buffer

    def texture(self, size: int, format: str = "rgba32uint") -> Texture:
        """A zeroed texture of at least `size` bytes; `write` fills it."""
        size = max(16, -(-size // 16) * 16)
        self.check()
        with self._making(f"a texture of {size:,} bytes"):
            handle = self.handle.create_texture(size=(TEXELS, -(-size // LINE), 1), format=format, usage=IMAGE)
        self._owned.append(handle)
        self.allocated += size
        return Texture(handle, handle.create_view(), size)

    def rows(self, size: int) -> Rows:
        """Zeroed memory of `size` bytes for rows that linears read, of the kind from which the launch class reads fastest."""
        if self.launch.textures and size <= LINE * self.limits["max-texture-dimension-2d"]:
            return self.texture(size, "rgba32float")
        return self.buffer(size)

    def fill(self, size: int, parts: Iterator[NDArray[np.uint8]]) -> Rows:
        """Memory of `size` bytes for weights, in the kind the launch class reads, written part by part."""
        memory, at = self.texture(size) if self.launch.textures else self.buffer(size), 0
        for part in parts:
            self.write(memory, part, at)
            self.flush()
            at += part.nbytes
        return memory

    def write(self, buffer: Rows, data: NDArray[Any], offset: int = 0) -> None:
        """Copies bytes into memory, in pieces so that the staging memory stays small; what a texture takes are whole vec4s."""
        flat = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        whole = 16 if isinstance(buffer, Texture) else 4
        if flat.nbytes % whole:
            flat = np.concatenate([flat, np.zeros(-flat.nbytes % whole, np.uint8)])
        self.check()
        for start in range(0, flat.nbytes, UPLOAD):
            piece = flat[start : start + UPLOAD]
            with self._making("the staging of a write"):
                self._write(buffer, piece, offset + start)
            if flat.nbytes > UPLOAD:
                self.flush()

    def _write(self, memory: Rows, data: NDArray[np.uint8], offset: int) -> None:
        if isinstance(memory, Buffer):
            self.queue.write_buffer(memory.handle, memory.offset + offset, data)
            return
        for done, origin, extent in pieces(offset, data.nbytes):
            place = {"texture": memory.handle, "mip_level": 0, "origin": origin}
            lines = {"offset": done, "bytes_per_row": LINE, "rows_per_image": extent[1]}
            self.queue.write_texture(place, data, lines, extent)

    def flush(self) -> None:
        """Submits what is queued and waits, so that staging memory is given back."""
        self.watch.idle()

    def read(self, buffer: Rows, dtype: Any, count: int, offset: int = 0) -> NDArray[Any]:
        """Waits for the device and returns `count` values from byte `offset`; for tests and loading, not for the loop."""
        size = count * np.dtype(dtype).itemsize
        aligned = 16 if isinstance(buffer, Texture) else 4
        whole = -(-size // aligned) * aligned
        staging = self.buffer(whole, wgpu.BufferUsage.MAP_READ | wgpu.BufferUsage.COPY_DST)
        try:
            encoder = self.handle.create_command_encoder()
            copy_out(encoder, buffer, offset, staging, 0, whole)
            self.watch.wait(self.submit(encoder, staging.handle))
            return np.frombuffer(staging.handle.read_mapped(0, whole), dtype, count)
        finally:
            self.release([staging])

    def kernel(self, name: str, **choices: Choice) -> Kernel:
        """The compiled kernel `name` under these choices; each is compiled once a device."""
        # callables and tables of planes follow from the format and the launch class, which the rest names
        key = (name, *sorted((k, str(v)) for k, v in choices.items() if isinstance(v, int | float | str)))
        if key not in self._kernels:
            shown = [str(choices[name]) for name in ("format", "epilogue", "MT", "key_format") if name in choices]
            shown += ["of experts"] * (choices.get("experts") is True)
            kernel = self.compile(name, compose(name, **choices))
            self._kernels[key] = replace(kernel, label=" ".join([name, *shown]))
        return self._kernels[key]

    def compile(self, name: str, text: str) -> Kernel:
        """Compiles WGSL whose entry point is `name`, with the layout its bindings declare."""
        found = [(int(n), (kind or texture).replace(" ", ""), var) for n, kind, var, texture in _BINDING.findall(text)]
        shape = tuple((number, kind) for number, kind, _ in found)
        if shape not in self._layouts:
            entries = [
                {"binding": number, "visibility": wgpu.ShaderStage.COMPUTE, **_LAYOUTS[kind]} for number, kind in shape
            ]
            with self._making(f"the bindings of {name}"):
                self._layouts[shape] = self.handle.create_bind_group_layout(entries=entries)
        layout = self._layouts[shape]
        try:
            module = self.handle.create_shader_module(code=text)
            pipeline = self.handle.create_compute_pipeline(
                layout=self.handle.create_pipeline_layout(bind_group_layouts=[layout]),
                compute={"module": module, "entry_point": name},
            )
        except wgpu.GPUError as error:
            self.watch.alive()
            raise DeviceError(f"{self.name} refuses the kernel {name}: {error}") from error
        return Kernel(name, pipeline, layout, {var: number for number, _, var in found})

    def bind(self, kernel: Kernel, **buffers: Rows) -> Any:
        """A bind group of `kernel` with a buffer for each of its bindings, by name."""
        if kernel.bindings.keys() != buffers.keys():
            odd = sorted(kernel.bindings.keys() ^ buffers.keys())
            raise DeviceError(f"kernel {kernel.name}: bindings do not match at {', '.join(odd)}")
        entries = [
            {"binding": number, "resource": _resource(buffers[name])} for name, number in kernel.bindings.items()
        ]
        with self._making(f"a bind group of {kernel.name}"):
            return self.handle.create_bind_group(layout=kernel.layout, entries=entries)

    def dispatch(self, commands: Sequence[tuple[Kernel, Any, tuple[int, int, int]]]) -> None:
        """Runs (kernel, bind group, workgroups) in order, in one pass; does not wait."""
        encoder = self.handle.create_command_encoder()
        run = encoder.begin_compute_pass()
        for kernel, group, workgroups in commands:
            run.set_pipeline(kernel.pipeline)
            run.set_bind_group(0, group)
            run.dispatch_workgroups(*workgroups)
        run.end()
        self.submit(encoder)

    def submit(self, encoder: Any, reads: Any = None, done: Callable[[float], None] | None = None) -> Any:
        """Queues what an encoder recorded: see `Watch.submit`."""
        return self.watch.submit(encoder, reads, done)

    def release(self, buffers: Sequence[Rows]) -> None:
        """Gives buffers' memory back; the device must be done with them."""
        for buffer in buffers:
            if buffer.handle in self._owned:
                self._owned.remove(buffer.handle)
                self.allocated -= buffer.size
                buffer.handle.destroy()

    def close(self) -> None:
        """Gives everything back; any further use raises DeviceError.  Safe to call twice."""
        self.watch.close()
        for handle in self._owned:
            handle.destroy()
        self._owned.clear()
        self._kernels.clear()
        self.allocated = 0

    @contextmanager
    def _making(self, what: str) -> Iterator[None]:
        """An error of wgpu inside says that it was `what` that did not fit, or that the device is gone."""
        try:
            yield
        except wgpu.GPUError as error:
            if isinstance(error, wgpu.GPUOutOfMemoryError) or "Not enough memory" in str(error):
                used = f"{self.allocated:,} bytes are in use there already"
                raise OutOfMemory(f"{self.name} has no room for {what}; {used}") from error
            raise self.watch.told(error, f"making {what}") from error

    def _probe_subgroup(self) -> int:
        """The size of the subgroups a 32-invocation workgroup is really cut into; 0 when they differ."""
        text = """
@group(0) @binding(0) var<storage, read_write> sizes: array<u32>;
@compute @workgroup_size(32)
fn probe(@builtin(local_invocation_index) lane: u32, @builtin(subgroup_size) size: u32) {
  sizes[lane] = size;
  sizes[32u + lane] = subgroupAdd(1u);
}"""
        try:
            kernel = self.compile("probe", text)
        except DeviceError:
            return 0  # the feature is announced and its built-ins are refused: do without
        sizes = self.buffer(256)
        self.dispatch([(kernel, self.bind(kernel, sizes=sizes), (1, 1, 1))])
        seen = self.read(sizes, np.uint32, 64)
        self.release([sizes])
        size = int(seen[0])
        whole = (seen[:32] == size).all() and (seen[32:] == min(size, 32)).all()
        return size if whole else 0


class Guest(Device):
    """A device that somebody else owns: kernels are shared, and closing it gives back only what was made through it."""

    def __init__(self, host: Device) -> None:
        self.__dict__.update(host.__dict__)
        self._owned, self.tables = [], {}
        self.allocated = 0

    def close(self) -> None:
        """Gives back what was made through it, once the device is done with it.  Safe to call twice."""
        if self._owned:
            self.flush()
        for handle in self._owned:
            handle.destroy()
        self._owned.clear()
        self.allocated = 0


def _resource(bound: Buffer | Texture) -> Any:
    if isinstance(bound, Texture):
        return bound.view
    return {"buffer": bound.handle, "offset": bound.offset, "size": bound.size}
