"""What llamay reads and runs, in tables made from the tables that decide it: `info -supported` and docs/supported.md."""

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, fields
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from llamay.arch import Architecture
    from llamay.cli.facts import Facts

TITLES = {
    "types": ("type", "number", "block", "bits a weight", "NumPy", "WGSL"),
    "architectures": ("general.architecture", "beside llama's block", "refused with"),
    "tokenizers": ("tokenizer.ggml.model", "kind", "tokenizer.ggml.pre"),
}


def tables() -> "Facts":
    """Tensor types by executor, architectures by the names that reach them, tokenizers."""
    return {"types": _types(), "architectures": _architectures(), "tokenizers": _tokenizers()}


def lines(found: "Facts") -> list[str]:
    """The page of `info -supported`: columns as wide as they must be, the last one free."""
    text: list[str] = []
    for name, rows in cells(found).items():
        shown = [TITLES[name], *rows]
        wide = [max(len(row[at]) for row in shown) for at in range(len(TITLES[name]) - 1)]
        text += ["", name] if text else [name]
        text += ["  " + "  ".join([*map(str.ljust, row, wide), row[-1]]).rstrip() for row in shown]
    return text


def markdown(found: "Facts") -> str:
    """The same as tables of a document."""
    parts = []
    for name, rows in cells(found).items():
        shown = [TITLES[name], ["---"] * len(TITLES[name]), *rows]
        parts.append(f"## {name.capitalize()}\n\n" + "\n".join(f"| {' | '.join(row)} |" for row in shown) + "\n")
    return "\n".join(parts)


def cells(found: "Facts") -> dict[str, list[list[str]]]:
    """The rows of each table, as texts."""
    types = [
        [
            row["type"], str(row["number"]), f"{row['elements']} in {row['bytes']} bytes", f"{row['bits']:g}",
            *("yes" if row[executor] else "no" for executor in ("numpy", "wgsl")),
        ]
        for row in found["types"]
    ]  # fmt: skip
    architectures = [
        [", ".join(row["names"]), ", ".join(row["differs"]) or "that block", "; ".join(row["refused"])]
        for row in found["architectures"]
    ]
    tokenizers = [[row["model"], row["kind"], ", ".join(row["pre"])] for row in found["tokenizers"]]
    return {"types": types, "architectures": architectures, "tokenizers": tokenizers}


def _types() -> list["Facts"]:
    from llamay.quant import LAYOUTS, supported
    from llamay.tensor.webgpu.formats import FORMATS

    return [
        {
            "type": type.name,
            "number": int(type),
            "elements": layout.elements,
            "bytes": layout.bytes,
            "bits": round(8 * layout.bytes / layout.elements, 4),
            "numpy": supported(type),
            "wgsl": type in FORMATS,
        }
        for type, layout in sorted(LAYOUTS.items())
    ]


def _architectures() -> list["Facts"]:
    from llamay.arch import ARCHITECTURES

    return [
        {"names": list(row.names), "differs": list(_differences(row)), "refused": list(row.foreign.values())}
        for row in ARCHITECTURES
    ]


def _differences(row: "Architecture") -> Iterator[str]:
    """The fields of a row that are not llama's: their names, and what they hold where that is not yes."""
    for field in fields(row):
        value: Any = getattr(row, field.name)
        default = field.default if field.default_factory is MISSING else field.default_factory()
        if field.name == "names" or value == default or isinstance(value, Mapping):
            continue
        words = field.name.replace("_", " ")
        if isinstance(value, tuple) and all(isinstance(each, bool) for each in value):
            yield f"{words}: {''.join('x' if each else '-' for each in value)}"
        elif value is True:
            yield words
        else:
            yield f"{words}: {'no' if value is False else f'{value:g}' if isinstance(value, float) else value}"


def _tokenizers() -> list["Facts"]:
    from llamay.tok.pretokenizers import PRETOKENIZERS
    from llamay.tok.vocabulary import MODELS

    return [
        {"model": name, "kind": model.kind, "pre": sorted(PRETOKENIZERS) if name == "gpt2" else []}
        for name, model in MODELS.items()
    ]
