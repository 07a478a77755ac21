"""What the kernels' tests share: the ways a kernel is launched, buffers that show a stray write, blocks of every type.

A kernel writes into buffers filled with POISON that end in GUARD words of it, and reads from buffers that end in
them: a missing write leaves a NaN, a write too far changes a guard, a read too far turns a sum into NaN.
"""

import importlib.util
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from llamay.quant import TensorType, dequantize
from llamay.tensor.webgpu import choices
from llamay.tensor.webgpu.device import Device
from llamay.tensor.webgpu.formats import Format, Tile, pack, steps
from llamay.tensor.webgpu.launch import LAUNCHES, Launch
from llamay.tensor.webgpu.storage import Buffer, Rows
from llamay.tensor.webgpu.weights import points

Array = NDArray[Any]


def beside(name: str) -> ModuleType:
    """The module of that name in this folder, which is no package."""
    specification = importlib.util.spec_from_file_location(name, Path(__file__).parent / f"{name}.py")
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


BLOCKS, PAGES = beside("blocks"), beside("pages")
POISON = PAGES.POISON  # as f32 a NaN
GUARD = 64  # words
KEPT = 40  # kernels: a software adapter holds megabytes for each
UNIFORM = 0x40 | 0x08  # buffer usage: uniform, copied to

# kernel: (largest error in units of the terms that were summed, why that much)
TOLERANCES = {
    "linear": (2e-6, "f32 sums of up to 2,048 products in one sequence: rounding walks like its root, 45 * 6e-8"),
    "embed": (6e-8, "one rounding: values equal those of llamay.quant"),
    "attention": (4e-6, "exp and the sum of 256 shares in f32"),
    "attention_combine": (1e-6, "a handful of exp and products in f32"),
    "rope_store": (1e-6, "a norm of one head and one rotation in f32"),
    "norm_add": (1e-6, "a norm of one row in f32"),
    "sum_norm": (1e-6, "two sums and a norm of one row in f32"),
    "layer_norm": (1e-6, "two sums and a norm of one row in f32"),
    "rms_norm": (1e-6, "a norm of one row in f32"),
    "part_norm": (1e-6, "a norm of one row in f32"),
    "short_convolve": (1e-6, "a sum of some products"),
    "convolve": (1e-6, "a sum of some products, and exp in f32"),
    "scan": (6e-6, "tens of steps, each an exp of a product in f32, and a sum over states"),
    "latent_store": (1e-6, "a norm of one row and one rotation in f32"),
    "route": (2e-6, "exp of a difference of logits, which is rounded to their size, and a sum of hundreds"),
    "expert_add": (2e-6, "a sum of some products in f32"),
    "activate": (1e-6, "exp or tanh in f32"),
    "pool": (1e-6, "a sum of some hundred rows in f32"),
    **dict.fromkeys(("pick", "group_pairs"), (0.0, "they compare, count and copy")),
}

TEXELS_OF = {  # kernel, or epilogue of linear: bindings that are textures where the launch class has such
    "linear": ("x",),
    "residual": ("hw",),
    "gated": ("y",),
    "activated": ("y",),
    "embed": ("hw",),
    "norm_add": ("hw",),
    "sum_norm": ("hw",),
    "expert_add": ("hw",),
    "layer_norm": ("y",),
    "activate": ("y",),
    "attention": ("q", "out"),
    "qkv": ("q_out",),
    "rope_store": ("q_out",),
    "attention_combine": ("out",),
}


def texels(variant: "Variant", kernel: str, chosen: Mapping[str, Any]) -> set[str]:
    """Which bindings `run` gives as textures."""
    if not variant.launch.textures:
        return set()
    epilogue = str(chosen.get("epilogue", ""))
    names = {*TEXELS_OF.get(kernel, ()), *TEXELS_OF.get(epilogue, ())}
    if epilogue == "gated" and chosen["R"] == 4:
        names.remove("y")  # a lane writes half a texel, and so to a buffer
    if chosen.get("splits"):
        names.remove("out")
    if {kernel, epilogue} & {"attention", "qkv", "rope_store", "latent_store"}:
        formats = {"keys": chosen.get("key_format", "f32"), "values": chosen.get("value_format", "f32")}
        names |= {name for name, format in formats.items() if format == "f32"}
    return names


def up(number: int, multiple: int) -> int:
    """The least multiple that is not below the number."""
    return -(-number // multiple) * multiple


@dataclass(frozen=True, slots=True)
class Variant:
    """A way to launch a kernel, on the device that runs it."""

    name: str
    device: Device
    launch: Launch
    tile: Tile

    @property
    def attention(self) -> dict[str, Any]:
        """The choices of kernels that reduce over a workgroup of the class's width."""
        return {"S": self.launch.attention_lanes, "reduce": self.launch.reduce}


@dataclass(frozen=True, slots=True, eq=False)
class Weights:
    """A matrix on the device, and its values."""

    memory: Rows
    points: Buffer | None
    type: TensorType
    format: Format
    raw: NDArray[np.uint8]
    values: NDArray[np.float64]  # [rows, columns]
    tile: Tile
    bias: NDArray[np.float32] | None

    @property
    def dims(self) -> dict[str, int]:
        rows, columns = self.values.shape
        return {"steps": steps(self.format, columns, self.tile), "rows": rows, "units": up(columns, 32) // 32}

    @property
    def tiles(self) -> int:
        return -(-len(self.values) // self.tile.height)


class Lab:
    """Runs single kernels.  Every buffer it makes is given back when `run` returns."""

    up, blocks = staticmethod(up), staticmethod(BLOCKS.blocks)

    def __init__(self, gpu: Device, portable: Device) -> None:
        self.gpu, self.portable = gpu, portable
        text = files("llamay.wgsl").joinpath("include/dims.wgsl").read_text("utf-8")
        self.fields = re.findall(r"^\s+(\w+): (u32|f32),", text, re.MULTILINE)

    def variant(self, name: str) -> Variant:
        """`own`: the adapter's class as it is; `wide`: with the tall tiles of wide linears; `swapped`: weights in
        buffers where the class has textures, and the other way round; `lanes`: the inner axis cut over the
        subgroup; `portable`: no subgroups, WebGPU's least limits."""
        own = self.gpu.launch
        if name == "own":
            return Variant(name, self.gpu, own, own.tile)
        if name == "wide":
            return Variant(name, self.gpu, own, replace(own.tile, rows=8))
        if name == "swapped":
            return Variant(name, self.gpu, replace(own, textures=not own.textures), own.tile)
        if name == "lanes":
            width = own.attention_lanes
            tile = Tile(width, width // 4, 4)
            launch = Launch("lanes", tile, own.reduce, False, width, (1, 2, 4, 8))
            return Variant(name, self.gpu, launch, tile)
        assert name == "portable"
        return Variant(name, self.portable, LAUNCHES["portable"], LAUNCHES["portable"].tile)

    def load(
        self, variant: Variant, type: TensorType, raw: NDArray[np.uint8], bias: NDArray[np.float32] | None = None
    ) -> Weights:
        """The blocks on the variant's device, as its kernels read them; `run` gives the memory back."""
        values = dequantize(type, raw)
        format = variant.launch.format(type)
        data = pack(format, raw, values.shape[1], variant.tile, bias).reshape(-1).view(np.uint8)
        memory: Rows
        if variant.launch.textures:
            memory = variant.device.texture(data.nbytes)
            variant.device.write(memory, data)
        else:
            memory = variant.device.upload(data)
        table = points(variant.device, format)
        return Weights(memory, table, type, format, raw, values.astype(np.float64), variant.tile, bias)

    def poisoned(self, *shape: int, dtype: Any = np.float32) -> Array:
        return np.full(shape, POISON, np.uint32).view(dtype)

    @staticmethod
    def untouched(array: Array) -> bool:
        """Whether every word is still POISON."""
        return bool((np.ascontiguousarray(array).view(np.uint32) == POISON).all())

    def run(
        self,
        variant: Variant,
        kernel: str,
        chosen: Mapping[str, Any],
        workgroups: tuple[int, int, int],
        dims: Mapping[str, float],
        read: Mapping[str, Array | Weights],
        write: Mapping[str, Array],
        passes: int = 1,
    ) -> dict[str, Array]:
        """Dispatches one kernel; returns the arrays of `write` as it left them.

        Fails where a guard word behind one of those has changed.
        """
        device = variant.device
        guard = np.full(GUARD, POISON, np.uint32)
        textures = texels(variant, kernel, chosen)
        bound: dict[str, Rows] = {}
        kept: dict[str, Buffer] = {}  # the device's own
        for name, given in {**read, **write}.items():
            if isinstance(given, Weights):
                bound[name] = given.memory
                kept |= {} if given.points is None else {"points": given.points}
            else:
                words = np.ascontiguousarray(given).reshape(-1).view(np.uint32)
                words = np.concatenate([words, guard])
                bound[name] = device.rows(words.nbytes) if name in textures else device.buffer(words.nbytes)
                device.write(bound[name], words)
        uniform = device.buffer(256, UNIFORM)
        device.write(uniform, self._dims(dims))
        if len(device._kernels) > KEPT:
            device._kernels.clear()
        compiled = device.kernel(kernel, **{"texels": " ".join(sorted(textures & bound.keys())), **chosen})
        group = device.bind(compiled, dims=uniform, **bound, **kept)
        device.dispatch([(compiled, group, workgroups)] * passes)
        found = {}
        for name, given in write.items():
            words = device.read(bound[name], np.uint32, given.size * given.dtype.itemsize // 4 + GUARD)
            assert (words[-GUARD:] == POISON).all(), f"{kernel} wrote behind {name}"
            found[name] = words[:-GUARD].view(given.dtype).reshape(given.shape).copy()
        device.release([uniform, *bound.values()])
        return found

    def linear(
        self,
        variant: Variant,
        weights: Weights,
        x: Array,
        tokens: int,
        epilogue: str,
        dims: Mapping[str, float],
        read: Mapping[str, Array],
        write: Mapping[str, Array],
        normed: bool = False,
        stride: int = 0,
        count: int | None = None,
        **more: Any,
    ) -> dict[str, Array]:
        """Runs linear.wgsl with an epilogue, `tokens` a workgroup, on x [T, columns] in rows of `stride` floats.

        `count` is how many tokens it is to do where that is not T.
        """
        columns = x.shape[1]
        count = len(x) if count is None else count
        stride = stride or up(columns, 32)
        chosen = choices.linear(
            weights.type, variant.launch, weights.tile, tokens, epilogue,
            bias=weights.bias is not None, normed=normed, **more,
        )  # fmt: skip
        numbers = {**weights.dims, "x_stride": stride // 4, **dims}
        read = {"w": weights, "x": self.inputs(x, max(len(x), up(count, tokens)), stride), **read}
        return self.run(
            variant, "linear", chosen, (weights.tiles, up(count, tokens) // tokens, 1), numbers, read, write
        )

    @staticmethod
    def inputs(x: Array, rows: int, stride: int) -> Array:
        """x [T, columns] as linears read it: zeros to the end of a unit; poison behind that and in further rows."""
        count, columns = x.shape
        out = np.full((rows, stride), np.nan, np.float32)
        out[:, : up(columns, 32)] = 0
        out[:count, :columns] = x
        return out

    def _dims(self, values: Mapping[str, float]) -> NDArray[np.uint32]:
        words = np.zeros(len(self.fields), np.uint32)
        names = [name for name, _ in self.fields]
        for name, value in values.items():
            at = names.index(name)
            words[at] = np.float32(value).view(np.uint32) if self.fields[at][1] == "f32" else value
        return words

    @staticmethod
    def close(kernel: str, found: Array, expected: Array, scale: Array | float) -> None:
        """Fails where an element is further from its twin than TOLERANCES allows at `scale`, or not a number."""
        assert found.shape == expected.shape
        tolerance = TOLERANCES[kernel][0]
        error = np.abs(found.astype(np.float64) - expected) / np.maximum(scale, 1e-30)
        worst = error.max(initial=0.0)  # NaN where any element is
        assert worst <= tolerance, f"{kernel}: error {worst:.2e} of the terms' size, {tolerance:.0e} allowed"


@pytest.fixture(scope="session")
def pool() -> Any:
    return PAGES.Pool


@pytest.fixture(scope="session")
def lab(gpu: Device, portable_gpu: Device) -> Lab:
    return Lab(gpu, portable_gpu)


@pytest.fixture(params=["own", "lanes", "portable"], scope="session")
def variant(request: pytest.FixtureRequest, lab: Lab) -> Variant:
    """The three ways to add over a workgroup."""
    return lab.variant(request.param)
