"""How kernels are launched on a class of adapter: the table that fixes the order of every sum.

The tuner may vary only what changes no sum (tokens a workgroup, row lanes, rows); what
does (k-lanes, reduction) is decided here, by class, never by timing.
"""

from dataclasses import dataclass, replace

from llamay.quant import TensorType
from llamay.tensor.webgpu.formats import FORMATS, RECAST, Format, Tile

WARP = 32  # lanes of a workgroup where one subgroup holds it
MOST_QUERIES = 8  # query heads that a workgroup of attention does: more would not fit its registers
WIDE = 24  # tiles a linear must have before its tiles grow
SPLIT = 256  # positions of one attention split: fixed, so that sums depend on the position alone


@dataclass(frozen=True, slots=True)
class Launch:
    """One class of adapters."""

    name: str
    tile: Tile
    reduce: str  # "subgroup" where one subgroup holds a workgroup, else "shared"
    broadcast: bool  # eight lanes in a subgroup, each a row lane: x is read once a unit and handed round, values looked up
    attention_lanes: int
    tokens: tuple[int, ...]  # tokens a workgroup a linear may do, ascending
    recast: bool = False  # the types of RECAST lie as it says: equal values, summed from other terms
    textures: bool = False  # weights, and rows that linears read, lie in textures: lavapipe loads texels faster than buffer words
    accumulators: int = 64  # f32s a lane that attention may sum in
    wide: int = 0  # rows a lane of linears with many tiles (0: the tile's own)

    def __str__(self) -> str:
        sums = "subgroups" if self.reduce == "subgroup" else "workgroup memory"
        tile = f"tiles of {self.tile.lanes} lanes by {self.tile.rows} rows"
        return f"{self.name}: {tile}, {self.tile.k_lanes} of them along a sum, joined by {sums}"

    @property
    def numerics(self) -> str:
        """Id of the summation order; results of equal ids are equal bit for bit on one adapter, where matrices lie alike."""
        return f"llamay-1.{self.reduce}.k{self.tile.k_lanes}.a{self.attention_lanes}"

    def format(self, type: TensorType) -> Format:
        """How matrices of the type lie on the device."""
        return RECAST.get(type, FORMATS[type]) if self.recast else FORMATS[type]

    def tile_for(self, rows: int, *, normed: bool) -> Tile:
        """The tile of a linear of `rows` rows; `normed` says that its input is normed.

        Linears that write the residual keep the class's tile: the sums of squares they
        leave are cut by it.  Others may take more rows a lane, which changes no sum.
        """
        if self.wide and normed and rows >= WIDE * self.tile.row_lanes * self.wide:
            return replace(self.tile, rows=self.wide)
        return self.tile

    def gated_tile(self, rows: int) -> Tile:
        """The tile of gate and up woven together, `rows` both: a texel takes what four rows of each give."""
        return replace(self.tile, rows=8) if self.textures else self.tile_for(rows, normed=True)

    def queries(self, group: int, value_dim: int) -> tuple[int, int]:
        """(workgroups, query heads of each) that do the `group` query heads of a kv head; fewer where values are latents."""
        most = max(1, min(MOST_QUERIES, self.accumulators // self._sums(value_dim)))
        pieces = -(-group // most)
        return pieces, -(-group // pieces)

    def _sums(self, value_dim: int) -> int:
        """f32s a lane sums in for one query head."""
        return -(-value_dim // (4 * self.attention_lanes)) * 4

    def joint(self, group: int, value_dim: int) -> int:
        """How many tokens of a prompt share what attention reads; `group` query heads share a kv head.

        Each has accumulators of its own, in registers on hardware; software spills them cheaply.
        """
        per_lane = self._sums(value_dim) * self.queries(group, value_dim)[1]
        return next((tokens for tokens in (4, 2) if tokens * per_lane <= self.accumulators and tokens in self.tokens), 1)

    def tokens_for(self, rows: int) -> int:
        """The fewest tokens a workgroup that cover `rows`, else the most there are."""
        return next((count for count in self.tokens if count >= rows), self.tokens[-1])


LAUNCHES = {
    # one 8-wide vector a workgroup: lavapipe turns a subgroup into one AVX register
    "narrow": Launch("narrow", Tile(8, 8, 4), "subgroup", True, 8, (1, 2, 4), recast=True, textures=True, accumulators=256, wide=8),
    # other software: vectors of 4 (SSE, NEON) or of 16, or no subgroups; workgroup memory is slow there, so few lanes
    "slim": Launch("slim", Tile(4, 4, 4), "shared", False, 8, (1, 2, 4), recast=True, textures=True, accumulators=256, wide=8),
    # a warp a workgroup
    "subgroup": Launch("subgroup", Tile(32, 4, 4), "subgroup", False, 32, (1, 2, 4, 8)),
    # no subgroups at all, or of varying size
    "portable": Launch("portable", Tile(32, 4, 4), "shared", False, 32, (1, 2, 4, 8)),
}


def launch_for(probed: int, *, software: bool, least: int = 0) -> Launch:
    """The class for an adapter on which a probe saw subgroups of `probed` invocations (0: none).

    `least` is the smallest subgroup its driver may choose for a kernel, 0 where that is not
    told.  NVIDIA and Apple have 32, AMD 32 or 64.  Intel's compiler chooses among 8, 16 and
    32 by kernel, whatever it chose for the probe, so that nothing there may rely on 32.
    """
    if software:
        return LAUNCHES["narrow"] if probed == 8 else LAUNCHES["slim"]
    if probed >= WARP and (least == 0 or least >= WARP):
        return LAUNCHES["subgroup"]
    return LAUNCHES["portable"]
