"""What the kernels' tests share: the ways a kernel is launched, buffers that show a stray write, blocks of every type.

A kernel writes into buffers filled with POISON that end in GUARD words of it, and reads from buffers that end in
them: a missing write leaves a NaN, a write too far changes a guard, a read too far turns a sum into NaN.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from llamay.quant import LAYOUTS, TensorType, dequantize
from llamay.tensor.webgpu import choices
from llamay.tensor.webgpu.device import TEXELS, Buffer, Device, Texture
from llamay.tensor.webgpu.formats import FORMATS, Tile, pack, steps
from llamay.tensor.webgpu.launch import LAUNCHES, Launch

Array = NDArray[Any]

POISON = 0x7FC0DEAD  # as f32 a NaN
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
    "activate": (1e-6, "exp or tanh in f32"),
    "pick": (0.0, "it compares and copies"),
}

HALVES = {  # byte offsets of the f16 fields of a block
    TensorType.Q4_0: (0,),
    TensorType.Q4_1: (0, 2),
    TensorType.Q5_0: (0,),
    TensorType.Q5_1: (0, 2),
    TensorType.Q8_0: (0,),
    TensorType.Q8_1: (0, 2),
    TensorType.Q2_K: (80, 82),
    TensorType.Q3_K: (108,),
    TensorType.Q4_K: (0, 2),
    TensorType.Q5_K: (0, 2),
    TensorType.Q6_K: (208,),
}


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

    memory: Buffer | Texture
    type: TensorType
    raw: NDArray[np.uint8]
    values: NDArray[np.float64]  # [rows, columns]
    tile: Tile
    bias: NDArray[np.float32] | None

    @property
    def dims(self) -> dict[str, int]:
        rows, columns = self.values.shape
        return {"steps": steps(FORMATS[self.type], columns, self.tile), "rows": rows, "units": up(columns, 32) // 32}

    @property
    def tiles(self) -> int:
        return -(-len(self.values) // self.tile.height)


class Lab:
    """Runs single kernels.  Every buffer it makes is given back when `run` returns."""

    up = staticmethod(up)

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

    def blocks(self, type: TensorType, rows: int, columns: int, random: np.random.Generator) -> NDArray[np.uint8]:
        """Blocks [rows, row bytes] whose quants, scales and signs take every value there is."""
        layout = LAYOUTS[type]
        if layout.elements == 1:
            values = (random.standard_normal((rows, columns)) * 2.0 ** random.integers(-3, 3)).astype(np.float32)
            if type is TensorType.F32:
                return values.view(np.uint8)
            if type is TensorType.F16:
                return values.astype(np.float16).view(np.uint8)
            return (values.view(np.uint32) >> 16).astype(np.uint16).view(np.uint8)
        raw = random.integers(0, 256, (rows, columns // layout.elements, layout.bytes), np.uint8)
        size = 2.0 ** random.uniform(-8, -3, raw.shape[:2])
        for offset in HALVES.get(type, ()):
            sign = random.choice([-1.0, 1.0], raw.shape[:2])
            raw[:, :, offset : offset + 2] = (size * sign).astype(np.float16)[..., None].view(np.uint8)
        if type is TensorType.Q8_K:
            raw[:, :, :4] = size.astype(np.float32)[..., None].view(np.uint8)
        return raw.reshape(rows, -1)

    def load(
        self, variant: Variant, type: TensorType, raw: NDArray[np.uint8], bias: NDArray[np.float32] | None = None
    ) -> Weights:
        """The blocks on the variant's device, as its kernels read them; `run` gives the memory back."""
        values = dequantize(type, raw)
        data = pack(type, raw, values.shape[1], variant.tile, bias).reshape(-1).view(np.uint8)
        memory: Buffer | Texture
        if variant.launch.textures:
            memory = variant.device.texture(data.nbytes)
            filled = np.zeros(memory.size, np.uint8)
            filled[: data.nbytes] = data
            variant.device.write_rows(memory, 0, filled)
            assert memory.size % (16 * TEXELS) == 0
        else:
            memory = variant.device.upload(data)
        return Weights(memory, type, raw, values.astype(np.float64), variant.tile, bias)

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
        bound: dict[str, Buffer | Texture] = {}
        for name, given in {**read, **write}.items():
            if isinstance(given, Weights):
                bound[name] = given.memory
            else:
                words = np.ascontiguousarray(given).reshape(-1).view(np.uint32)
                bound[name] = device.upload(np.concatenate([words, guard]))
        uniform = device.buffer(256, UNIFORM)
        device.write(uniform, self._dims(dims))
        if len(device._kernels) > KEPT:
            device._kernels.clear()
        compiled = device.kernel(kernel, **chosen)
        group = device.bind(compiled, dims=uniform, **bound)
        device.dispatch([(compiled, group, workgroups)] * passes)
        found = {}
        for name, given in write.items():
            buffer = bound[name]
            assert isinstance(buffer, Buffer)
            words = device.read(buffer, np.uint32, given.size * given.dtype.itemsize // 4 + GUARD)
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


class Pool:
    """Pages of keys and values and the state that names them, as kernels see them, for `sequences` tables.

    The pages of the tables are scattered; one more belongs to nobody and takes what padding rows write.
    """

    def __init__(self, kv_heads: int, head_dim: int, lengths: Sequence[int], random: np.random.Generator) -> None:
        self.kv_heads, self.head_dim = kv_heads, head_dim
        needs = [-(-length // 16) for length in lengths]
        self.pages = sum(needs) + 3
        order = random.permutation(self.pages)
        cuts = np.cumsum(needs)
        self.tables = np.split(order[: cuts[-1]], cuts[:-1])
        self.scratch = int(order[cuts[-1]])

    def slots(self, sequence: int, positions: Array) -> Array:
        """Where the positions of a sequence lie, as the twins count: page * 16 + position % 16."""
        slots: Array = self.tables[sequence][positions // 16] * 16 + positions % 16
        return slots

    def state(
        self, positions: Sequence[int], sequences: Sequence[int], padded: int, outputs: Sequence[int] = (), windowed: int = 0
    ) -> tuple[Array, dict[str, int]]:
        """The words of `padded` rows, of which the first are given, and where they begin (an odd place)."""
        rows_at, count = 5, len(positions)
        outputs_at = rows_at + 4 * padded
        scratch_at = outputs_at + len(outputs)
        starts = np.cumsum([scratch_at + 1, *(len(table) for table in self.tables)])[:-1]
        rows = np.zeros((padded, 4), np.uint32)
        rows[:, 2 + windowed] = scratch_at
        rows[:count, 0] = 77
        rows[:count, 1] = positions
        rows[:count, 2 + windowed] = starts[np.asarray(sequences)]
        rows[:, 3 - windowed] = 1 << 30  # the other group's table
        parts = [np.full(rows_at, POISON), rows.reshape(-1), outputs, [self.scratch], *self.tables]
        words = np.concatenate([np.asarray(part, np.int64) for part in parts]).astype(np.uint32)
        return words, {"rows_at": rows_at, "outputs_at": outputs_at, "windowed": windowed}

    def lay(self, what: str, format: str, values: Array) -> tuple[Array, Array]:
        """Keys [kv_heads, head_dim, slots] or values [kv_heads, slots, head_dim] as words [page, kv head, ...] of
        a cache format, and what is left of them in it, in the order they came in."""
        cut = self._cut(what, values.astype(np.float64))
        if format == "f32":
            kept = cut.astype(np.float32)
            words: Array = kept.view(np.uint32)
        elif format == "f16":
            kept = cut.astype(np.float16)
            words = kept.view(np.uint32)
        else:
            scale = self._scales(what, np.abs(cut).max((2 if what == "keys" else 3, 4)) / 127).astype(np.float32)
            steps = np.divide(cut, scale, out=np.zeros_like(cut), where=scale > 0)
            kept = np.rint(np.nan_to_num(steps)).astype(np.int8)
            tail = scale.reshape(self.pages, self.kv_heads, 16).view(np.uint32)
            words = np.concatenate([kept.view(np.uint32).reshape(*tail.shape[:2], -1), tail], -1)
            kept = kept.astype(np.float64) * scale
        return words.reshape(self.pages, self.kv_heads, -1), self._joined(what, kept.astype(np.float64))

    def read(self, what: str, format: str, words: Array) -> Array:
        """The inverse: what words [page, kv head, ...] hold."""
        if format == "f32":
            cut = words.view(np.float32)
        elif format == "f16":
            cut = words.view(np.float16)
        else:
            scale = self._scales(what, np.ascontiguousarray(words[:, :, -16:]).view(np.float32))
            cut = self._shaped(what, np.ascontiguousarray(words[:, :, :-16]).view(np.int8)) * scale.astype(np.float64)
        return self._joined(what, self._shaped(what, cut).astype(np.float64))

    def stray(self, what: str, format: str, words: Array, slots: Array) -> int:
        """How many words outside the given slots (and the page of padding rows) are not POISON."""
        ones = np.zeros(self.pages * 16)
        ones[slots] = 1
        ones[self.scratch * 16 : self.scratch * 16 + 16] = 1
        shape = (self.kv_heads, self.head_dim, 1) if what == "keys" else (self.kv_heads, 1, self.head_dim)
        line = ones if what == "keys" else ones[:, None]
        theirs, _ = self.lay(what, format, np.ones(shape) * line)
        return int(((theirs == 0) & (words.reshape(theirs.shape) != POISON)).sum())

    def dirty(self, what: str, format: str, words: Array, slots: Array) -> Array:
        """The words with everything outside the given slots as bad as an earlier owner could leave it."""
        shape = (self.kv_heads, self.head_dim, 1) if what == "keys" else (self.kv_heads, 1, self.head_dim)
        line = np.ones(self.pages * 16)
        line[slots] = 0
        theirs, _ = self.lay(what, format, np.ones(shape) * (line if what == "keys" else line[:, None]))
        bad = np.uint32(0x7E007E00 if format == "f16" else POISON)  # not-a-number, in each half
        return np.where(theirs.reshape(words.shape) != 0, bad, words)

    def words(self, format: str) -> int:
        """Words of a head in a page."""
        return {"f32": 16 * self.head_dim, "f16": 8 * self.head_dim, "q8": 4 * self.head_dim + 16}[format]

    def _cut(self, what: str, values: Array) -> Array:
        """Keys [page, kv head, dim / 4, 16, 4], values [page, kv head, 16, dim / 4, 4]."""
        if what == "keys":
            shaped = values.reshape(self.kv_heads, self.head_dim // 4, 4, self.pages, 16).transpose(3, 0, 1, 4, 2)
        else:
            shaped = values.reshape(self.kv_heads, self.pages, 16, self.head_dim // 4, 4).transpose(1, 0, 2, 3, 4)
        return np.ascontiguousarray(shaped)

    def _joined(self, what: str, cut: Array) -> Array:
        if what == "keys":
            return cut.transpose(1, 2, 4, 0, 3).reshape(self.kv_heads, self.head_dim, -1)
        return cut.transpose(1, 0, 2, 3, 4).reshape(self.kv_heads, -1, self.head_dim)

    def _shaped(self, what: str, flat: Array) -> Array:
        inner = (self.head_dim // 4, 16, 4) if what == "keys" else (16, self.head_dim // 4, 4)
        return flat.reshape(self.pages, self.kv_heads, *inner)

    def _scales(self, what: str, scales: Array) -> Array:
        """Scales [page, kv head, 16] against cut keys or values."""
        return scales[:, :, None, :, None] if what == "keys" else scales[:, :, :, None, None]


@pytest.fixture(scope="session")
def pool() -> type[Pool]:
    return Pool


@pytest.fixture(scope="session")
def lab(gpu: Device, portable_gpu: Device) -> Lab:
    return Lab(gpu, portable_gpu)


@pytest.fixture(params=["own", "lanes", "portable"], scope="session")
def variant(request: pytest.FixtureRequest, lab: Lab) -> Variant:
    """The three ways to add over a workgroup."""
    return lab.variant(request.param)
