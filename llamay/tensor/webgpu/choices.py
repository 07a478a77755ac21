"""What a template needs to become the kernel for one tensor type, launch class and epilogue."""

from llamay.quant import TensorType
from llamay.tensor.webgpu.formats import Plane, Tile, block_vectors, plane_vectors
from llamay.tensor.webgpu.launch import Launch
from llamay.wgsl import XYZW, Choice

SUMS = 4  # that a lane of a linear has in the making at once


def _offsets(planes: tuple[Plane, ...], tile: Tile) -> dict[str, int]:
    """First vec4 of each plane within its unit or head."""
    offsets, at = {}, 0
    for plane in planes:
        offsets[plane.name] = at
        at += plane.per_lane(tile.rows) * tile.row_lanes // 4
    return offsets


class _Static:
    """Accessors for rows known when the text is made: the words lie in `let`s that the template loaded."""

    def __init__(self, planes: tuple[Plane, ...], tile: Tile) -> None:
        self.planes = {plane.name: plane for plane in planes}
        self.tile = tile

    def word(self, name: str, j: int, i: int) -> str:
        plane = self.planes[name]
        flat = j * max(plane.words, 1) + i if plane.words else i
        if plane.per_lane(self.tile.rows) % 4:
            return f"p_{name}.{XYZW[flat]}"
        return f"p_{name}_{flat // 4}.{XYZW[flat % 4]}"

    def half(self, name: str, j: int) -> str:
        return f"unpack2x16float({self.word(name, j, j // 2)}).{'xy'[j % 2]}"

    def bits(self, name: str, j: int) -> str:
        word = self.word(name, j, j // 2)
        return f"({word} >> 16u)" if j % 2 else f"({word} & 0xffffu)"


class _Dynamic:
    """Accessors for one row whose place `j` is known only when it runs: the words lie in `let`s named by plane."""

    def __init__(self, head: tuple[Plane, ...], unit: tuple[Plane, ...], tile: Tile) -> None:
        self.tile = tile
        self.loads: list[str] = []
        for planes, base in ((head, "base"), (unit, "b")):
            for plane in planes:
                self._load(plane, f"{base} + {_offsets(planes, tile)[plane.name]}u")

    def _load(self, plane: Plane, at: str) -> None:
        per_lane = plane.per_lane(self.tile.rows)
        for i in range(max(plane.words, 1)):
            flat = f"(j * {plane.words}u + {i}u)" if plane.words else "(j / 2u)"
            if per_lane % 4:  # two lanes share a vec4
                vector, part = f"r / {4 // per_lane}u", f"r % {4 // per_lane}u * {per_lane}u + {flat}"
            else:
                vector, part = f"{flat} / 4u * {self.tile.row_lanes}u + r", f"{flat} % 4u"
            self.loads.append(f"let r_{plane.name}_{i} = stream({at} + {vector})[{part}];")

    def word(self, name: str, j: str, i: int) -> str:
        return f"r_{name}_{i}"

    def half(self, name: str, j: str) -> str:
        return f"unpack2x16float(r_{name}_0)[j % 2u]"

    def bits(self, name: str, j: str) -> str:
        return f"((r_{name}_0 >> (16u * (j % 2u))) & 0xffffu)"


def _shape(type: TensorType, launch: Launch, tile: Tile) -> dict[str, Choice]:
    format = launch.format(type)
    return {
        "format": format.name,
        "S": tile.lanes,
        "L": tile.row_lanes,
        "R": tile.rows,
        "KL": tile.k_lanes,
        "G": format.group,
        "units": format.units,
        "points": format.points,
        "block": block_vectors(format, tile),
        "head_vectors": plane_vectors(format.head, tile),
        "unit_vectors": plane_vectors(format.unit, tile),
        "reduce": launch.reduce,
        "textures": launch.textures,
    }


def _views(planes: tuple[Plane, ...], tile: Tile) -> tuple[object, ...]:
    offsets = _offsets(planes, tile)
    return tuple(
        {
            "name": plane.name,
            "offset": offsets[plane.name],
            "vectors": plane.per_lane(tile.rows) // 4,
            "pair": plane.per_lane(tile.rows) % 4 != 0,
        }
        for plane in planes
    )


def linear(
    type: TensorType,
    launch: Launch,
    tile: Tile,
    tokens: int,
    epilogue: str,
    *,
    bias: bool,
    normed: bool,
    **more: Choice,
) -> dict[str, Choice]:
    """The choices of `linear.wgsl`; see the template for what each does."""
    format = launch.format(type)
    access = _Static(format.head + format.unit, tile)

    def tree(first: int, level: int = tile.k_lanes.bit_length() - 1, k: int = 0) -> str:
        """The k-lanes' partial sums from word `first`, added in the order of the subgroup's butterfly."""
        if level == 0:
            return f"partial_y[{first + k * tile.row_lanes}u + r]"
        return f"({tree(first, level - 1, k)} + {tree(first, level - 1, k + (tile.k_lanes >> level))})"

    return {
        **_shape(type, launch, tile),
        "MT": tokens,
        "A": min(SUMS, tile.rows) if tokens == 1 else 1,
        "epilogue": epilogue,
        "bias": bias,
        "normed": normed,
        "sums": format.sums,
        "ragged": format.ragged,
        "broadcast": launch.broadcast,
        "log2_KL": tile.k_lanes.bit_length() - 1,
        "head": _views(format.head, tile),
        "planes": _views(format.unit, tile),
        "tree": tree,
        "word": access.word,
        "half": access.half,
        "bits": access.bits,
        **more,
    }


def embed(
    type: TensorType, launch: Launch, tile: Tile, *, positions: bool = False, kinds: bool = False
) -> dict[str, Choice]:
    """The choices of `embed.wgsl`; `positions`, `kinds`: with a vector for each position, for each kind of token."""
    format = launch.format(type)
    access = _Dynamic(format.head, format.unit, tile)
    return {
        **_shape(type, launch, tile),
        "height": tile.height,
        "positions": positions,
        "kinds": kinds,
        "loads": tuple(access.loads),
        "word": access.word,
        "half": access.half,
        "bits": access.bits,
    }
