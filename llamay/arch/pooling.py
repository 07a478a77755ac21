"""How a model makes a vector of a text, as its file says it, and whether a head makes a score of that."""

from typing import Literal

from llamay.arch.keys import Keys
from llamay.arch.table import Architecture
from llamay.errors import MalformedFile, Unsupported
from llamay.gguf import Array, File

Pooled = Literal["", "mean", "first", "last"]
TYPES: tuple[Pooled, ...] = ("", "mean", "first", "last")  # by pooling_type
RANK = 4  # what a head makes a score of: the first position of an encoder, the last of a decoder
HEAD = "cls.output.weight"
MOST_LABELS = 1024


def pooling(file: File, row: Architecture, keys: Keys) -> Pooled:
    """Empty where the model generates text.  Raises Unsupported for what llamay does not pool."""
    causal = keys.flag("attention.causal", default=not row.both_ways)
    if causal == row.both_ways:
        reads = "in one direction" if causal else "both ways"
        raise Unsupported(f"this {keys.prefix} file is read {reads}, which llamay does not run for that architecture")
    for side in ("2_feat_in", "2_feat_out", "3_feat_in", "3_feat_out"):
        keys.get(f"dense_{side}")  # what the shapes of the linears say, too
    stated = keys.integer("pooling_type", 0, RANK, default=0)
    if row.both_ways:
        return "first" if stated == RANK or ranks(file) else TYPES[stated] or "mean"
    if stated in (0, RANK) or TYPES[stated] == "last":
        return "last" if stated else ""
    raise Unsupported(f"this {keys.prefix} file pools by {TYPES[stated]}; of decoders llamay runs those that take the last row")


def ranks(file: File) -> bool:
    """Whether there is a head."""
    return HEAD in file.tensors


def labels(keys: Keys) -> tuple[str, ...]:
    """The names of a head's scores."""
    found = keys.get("classifier.output_labels")
    if found is None:
        return ()
    if not isinstance(found, Array) or len(found) > MOST_LABELS:
        raise MalformedFile(f"{keys.prefix}.classifier.output_labels is no array of up to {MOST_LABELS} strings")
    names = found.strings()
    return tuple(names)
