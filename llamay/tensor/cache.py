"""The formats of the KV cache: what a page holds of a key and of a value."""

from dataclasses import dataclass

from llamay.errors import UsageError
from llamay.tensor.batch import PAGE
from llamay.tensor.program import Layer, Scan, ShortConv


@dataclass(frozen=True, slots=True)
class CacheFormat:
    """How keys and values are stored: "f32", "f16", or "q8" (bytes with one f32 scale for each head of each token).

    A one-bit cache keeps only the sign and the head's mean magnitude, in q8's layout: it is
    there so that the bound on quantised caches can be seen to fail.
    """

    name: str
    keys: str
    values: str
    one_bit: bool = False

    @property
    def scaled(self) -> bool:
        """Whether something is scaled by its whole head, which must be known before the first store."""
        return "q8" in (self.keys, self.values)

    def key_bytes(self, head_dim: int) -> int:
        """Bytes of the keys of one head in a page."""
        return _bytes(self.keys, head_dim)

    def value_bytes(self, head_dim: int) -> int:
        """Bytes of the values of one head in a page."""
        return _bytes(self.values, head_dim)

    def sizes(self, op: Layer) -> tuple[int, int]:
        """Bytes of a page of a layer: its keys and its values, or what a state space or a convolution has in their places, f32 in every format."""
        if isinstance(op, Scan):
            return state_sizes(op.inner, op.states, op.shared, op.kept)
        if isinstance(op, ShortConv):
            return 4 * PAGE * op.inner, 0
        return op.kv_heads * self.key_bytes(op.head_dim), op.kv_heads * self.value_bytes(op.value_dim)

    def token_bytes(self, head_dim: int, value_dim: int) -> int:
        """Bytes that one token adds to one kv head of one layer."""
        return (self.key_bytes(head_dim) + self.value_bytes(value_dim)) // PAGE


def state_sizes(inner: int, states: int, shared: int, kept: int) -> tuple[int, int]:
    """Bytes of a state space's page: the state with B of all its tokens; the `kept` values of each, and 4 that say how many."""
    return 4 * (inner * states + PAGE * shared), 4 * (PAGE * kept + 4)


def _bytes(format: str, head_dim: int) -> int:
    if not head_dim:  # of values that are part of the keys
        return 0
    return {"f32": 4 * PAGE * head_dim, "f16": 2 * PAGE * head_dim, "q8": PAGE * head_dim + 4 * PAGE}[format]


CACHE_FORMATS = {
    format.name: format
    for format in (
        CacheFormat("f32", "f32", "f32"),
        CacheFormat("f16", "f16", "f16"),
        CacheFormat("vq8", "f32", "q8"),
        CacheFormat("q8", "q8", "q8"),
        CacheFormat("q1", "q8", "q8", one_bit=True),
    )
}
OFFERED = ("f32", "f16", "vq8", "q8")  # to people; the first is exact and the default


def cache_format(name: str) -> CacheFormat:
    """The format called `name`; UsageError names those there are."""
    if name not in CACHE_FORMATS:
        raise UsageError(f"there is no KV format {name!r}; there are {', '.join(OFFERED)}")
    return CACHE_FORMATS[name]
