"""Where two contexts part: how many tokens they share, and the texts from there on."""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from llamay.kv.snapshots.manifest import Manifest


@dataclass(frozen=True, slots=True)
class Parting:
    """Two contexts compared."""

    common: int  # tokens from the start that are the same
    tokens: tuple[int, int]  # of each
    rest: tuple[tuple[int, ...], tuple[int, ...]]  # tokens of each from there on
    texts: tuple[str, str]  # of each from the beginning of the line in which they part; "" where no text was saved
    shared: int  # pages with the same bytes
    pages: tuple[int, int]  # of each

    @property
    def same(self) -> bool:
        return not self.rest[0] and not self.rest[1]


def parting(left: Manifest, right: Manifest) -> Parting:
    """Compares two saved contexts, by tokens, by their pages' digests and by the texts saved with them."""
    return compared(
        (left.tokens, right.tokens), (left.text, right.text), (set(left.digests()), set(right.digests()))
    )


def compared(
    tokens: tuple[Sequence[int], Sequence[int]],
    texts: tuple[str, str],
    pages: tuple[AbstractSet[object], AbstractSet[object]],
) -> Parting:
    """Compares two contexts by their tokens, texts and pages."""
    left, right = tokens
    same = common(left, right)
    return Parting(
        common=same,
        tokens=(len(left), len(right)),
        rest=(tuple(left[same:]), tuple(right[same:])),
        texts=_texts(*texts),
        shared=len(pages[0] & pages[1]),
        pages=(len(pages[0]), len(pages[1])),
    )


def common(left: Sequence[object], right: Sequence[object]) -> int:
    """How many elements both begin with."""
    for index, (ours, theirs) in enumerate(zip(left, right, strict=False)):
        if ours != theirs:
            return index
    return min(len(left), len(right))


def _texts(left: str, right: str) -> tuple[str, str]:
    """Both texts from the line on in which they part."""
    start = left[: common(left, right)].rfind("\n") + 1
    return left[start:], right[start:]
