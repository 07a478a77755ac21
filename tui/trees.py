"""Trees of contexts, as lines with the strokes that show who came from whom."""

from collections.abc import Iterator
from dataclasses import dataclass

from llamay.tui.moment import Held, Kept, Model, Snapshot


@dataclass(frozen=True, slots=True)
class Node:
    """One context with its place in the tree."""

    kept: Kept | None
    held: Held | None
    model: str
    strokes: str  # in front of it: `│ ├─`

    @property
    def key(self) -> str:
        """What tells it from others."""
        if self.kept is not None:
            return self.kept.id
        return f"{self.model}#{self.held.id}" if self.held is not None else self.model

    @property
    def tokens(self) -> int:
        """How many it holds."""
        return self.kept.tokens if self.kept is not None else self.held.tokens if self.held is not None else 0

    @property
    def own(self) -> int:
        """Pages that nobody else has."""
        return sum(self.held.own) if self.held is not None else 0

    @property
    def shared(self) -> int:
        """Pages that others have too."""
        return sum(self.held.shared) if self.held is not None else 0


def kept(snapshot: Snapshot) -> list[Node]:
    """The contexts of clients: roots, and below each what was made from it, the oldest first."""
    by_id = {one.id: one for one in snapshot.kept}
    below: dict[str, list[Kept]] = {}
    for one in snapshot.kept:
        below.setdefault(one.parent if one.parent in by_id else "", []).append(one)

    def walk(parent: str, before: str, depth: int) -> Iterator[Node]:
        children = below.get(parent, [])
        for at, one in enumerate(children):
            last = at == len(children) - 1
            stroke = "" if not depth else before + ("└ " if last else "├ ")
            model = snapshot.model(one.model)
            yield Node(one, None if model is None else model.held(one.context), one.model, stroke)
            # a chain of answers is no branching: it stays where it is
            deeper = before if not depth else before + ("  " if last else "│ ")
            yield from walk(one.id, deeper, depth + 1)

    return list(walk("", "", 0))


def passing(model: Model, snapshot: Snapshot) -> list[Node]:
    """Contexts of requests under way, which nobody keeps."""
    known = {one.context for one in snapshot.kept if one.model == model.name}
    found = [one for one in model.contexts if one.id not in known]
    return [Node(None, one, model.name, "├ " if one.parent in {other.id for other in found} else "") for one in found]
