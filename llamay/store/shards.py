"""File names of models: which files are parts of one split model, and which quantisation a name tells."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

from llamay.errors import PullError

# What is taken when nobody says: the usual trade of size against quality first, then towards larger.
PREFERRED = (
    *("Q4_K_M", "Q4_K_S", "Q4_K_L", "UD-Q4_K_XL", "Q4_K", "Q4_1", "Q4_0", "IQ4_XS", "IQ4_NL"),
    *("Q5_K_M", "Q5_K_S", "Q5_K", "Q5_1", "Q5_0", "Q6_K", "Q6_K_L", "Q8_0", "MXFP4", "MXFP4_MOE", "BF16", "F16", "F32"),
)

_PART = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
_QUANT = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d(?:_[A-Z0-9]+)*|TQ\d_\d|MXFP4(?:_[A-Z]+)?|BF16|F16|F32))(?=[-./]|$)", re.IGNORECASE
)
_ASIDE = re.compile(r"(?:^|[-._/])(?:mmproj|imatrix)(?=[-._]|$)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Shards:
    """One model among files: its file names in order (one, or all parts), its quantisation as named, upper case or ""."""

    files: tuple[str, ...]
    quant: str
    missing: int = 0  # parts that are not there

    @property
    def first(self) -> str:
        """The name that stands for the model."""
        return self.files[0]


def group(files: Iterable[str]) -> list[Shards]:
    """The models among file names, in order of name; projectors and importance matrices are none."""
    single: list[str] = []
    split: dict[tuple[str, int], dict[int, str]] = {}
    for file in sorted(files):
        if not file.lower().endswith(".gguf") or _ASIDE.search(file):
            continue
        match = _PART.fullmatch(file)
        if match is None:
            single.append(file)
        else:
            split.setdefault((match["stem"], int(match["count"])), {})[int(match["number"])] = file
    found = [Shards((file,), quant(file)) for file in single]
    for (stem, count), parts in split.items():
        inside = sorted(number for number in parts if 1 <= number <= count)
        if inside:
            found.append(Shards(tuple(parts[number] for number in inside), quant(stem), count - len(inside)))
    return sorted(found, key=lambda shards: shards.first)


def beside(file: str, siblings: Iterable[str]) -> tuple[str, ...]:
    """A file of a folder, or all parts of the split model it is a part of; raises PullError when parts are missing."""
    if not _PART.fullmatch(file):
        return (file,)
    return named(group(siblings), file, "the folder").files


def quant(file: str) -> str:
    """The quantisation a file's name tells, upper case, or ""; the last one counts."""
    found = _QUANT.findall(re.sub(r"\.gguf$", "", file, flags=re.IGNORECASE))
    return found[-1].upper() if found else ""


def choose(models: list[Shards], wanted: str, whence: str) -> Shards:
    """The model of the wanted quantisation, or of the most usual one; raises PullError listing what there is."""
    if not models:
        raise PullError(f"{whence} holds no GGUF file")
    if wanted:
        fitting = [model for model in models if model.quant == wanted.upper()]
    else:
        ranked = [model for quant in PREFERRED for model in models if model.quant == quant]
        best = ranked[0].quant if ranked else models[0].quant
        fitting = [model for model in models if model.quant == best]
    if len(fitting) == 1:
        return _whole(fitting[0])
    listed = "\n".join(f"  {model.quant or '?':<10} {model.first}" for model in (fitting or models)[:40])
    problem = f"holds {len(fitting)} models of that quantisation" if fitting else f"holds no {wanted}"
    raise PullError(f"{whence} {problem}; name one of these files:\n{listed}")


def named(models: list[Shards], file: str, whence: str) -> Shards:
    """The model one of whose files is called `file`, by its whole name or, if only one is, by its base name."""
    exact = [model for model in models if file in model.files]
    fitting = exact or [model for model in models if file in [name.rpartition("/")[2] for name in model.files]]
    if len(fitting) == 1:
        return _whole(fitting[0])
    listed = "\n".join(f"  {model.first}" for model in models[:40])
    raise PullError(f"{whence} holds no {file!a}" + (f"; it holds\n{listed}" if listed else ""))


def _whole(model: Shards) -> Shards:
    if model.missing:
        count = len(model.files) + model.missing
        raise PullError(f"{ascii(model.first)[1:-1]}: {len(model.files)} of {count} parts are there; all are needed")
    return model
