"""Arrows point down only: an AST walk over every import of every package."""

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Top first.  A package imports what stands below its layer; inside one, only what SIBLINGS grants.
LAYERS = (
    ("__main__",),
    ("cli", "tui", "server"),
    ("verify", "bench", "ppl", "serve", "client", "index"),
    ("model", "constrain", "vision", "video", "whisper"),
    ("kv", "lora", "tok", "arch"),
    ("tensor",),
    ("sample",),  # plain settings and plans; executors carry them out on the device
    ("gguf", "quant", "wgsl", "store", "ollama", "seal", "audit", "capture", "pii"),
    ("errors", "settings"),
)
SIBLINGS = {
    "cli": {"tui", "server"},
    "verify": {"serve", "client", "index"},
    "bench": {"serve", "client", "index"},
    "ppl": {"serve", "client", "index"},
    "serve": {"client", "index"},
    "gguf": {"quant"},
    "settings": {"errors"},
}
OWNERS = {  # who alone imports a package of others
    "wgpu": "llamay.tensor.webgpu",
    "falcon": "llamay.server",
    "waitress": "llamay.server",
    "textual": "llamay.tui",
    "argparse": "llamay.cli",
}
LAYER = {package: number for number, layer in enumerate(LAYERS) for package in layer}


def modules() -> Iterator[tuple[str, Path]]:
    """Every module of the distribution: its dotted name and its file."""
    folders = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]
    for package, folder in folders.items():
        for path in sorted((ROOT / folder).rglob("*.py")):
            parts = path.relative_to(ROOT / folder).with_suffix("").parts
            yield ".".join([package, *parts]).removesuffix(".__init__"), path


def imports(source: str) -> Iterator[str]:
    """Dotted names a source imports; `from a import b` counts as a.b."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def complaints(module: str, source: str) -> list[str]:
    """What in this module's imports breaks the rules."""
    own = module.split(".")[1] if "." in module else ""
    found = []
    for name in imports(source):
        first, _, rest = name.partition(".")
        if first in OWNERS and not f"{module}.".startswith(OWNERS[first] + "."):
            found.append(f"{module} imports {name}; only {OWNERS[first]} may")
        target = rest.split(".")[0]
        if first != "llamay" or target == own or target.startswith("__"):
            continue
        if target not in LAYER:
            found.append(f"{module} imports {name}, which is in no layer")
        elif own and not allowed(own, target):
            found.append(f"{module} imports {name}, which is not below it")
    return found


def allowed(own: str, target: str) -> bool:
    return LAYER[target] > LAYER[own] or target in SIBLINGS.get(own, set())


def test_imports_point_down() -> None:
    listed = list(modules())
    assert len(listed) > 30
    unplaced = {name.split(".")[1] for name, _ in listed if "." in name} - set(LAYER)
    assert not unplaced, f"place these in LAYERS: {sorted(unplaced)}"
    assert [line for name, path in listed for line in complaints(name, path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("llamay.gguf.file", "import llamay.serve"),
        ("llamay.sample.chain", "from llamay.tensor import batch"),
        ("llamay.tensor.executor", "from llamay.model import bind"),
        ("llamay.tok.bpe", "from llamay.arch import describe"),
        ("llamay.quant.k", "from llamay.gguf import open"),
        ("llamay.server.app", "from llamay import tui"),
        ("llamay.serve.engine", "def f():\n    import falcon"),
        ("llamay.model.bind", "import wgpu"),
        ("llamay.tensor.numpy", "from wgpu.utils import get_default_device"),
        ("llamay.serve.engine", "from llamay.nowhere import x"),
        ("llamay.verify", "from llamay import cli"),
    ],
)
def test_a_planted_import_is_found(module: str, source: str) -> None:
    assert len(complaints(module, source)) == 1


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("llamay.tensor.executor", "from llamay.sample import Sampling"),
        ("llamay.tensor.webgpu.device", "import wgpu\nfrom llamay.errors import NoAdapter"),
        ("llamay.cli.tui", "from llamay import tui"),
        ("llamay.verify", "from llamay.serve.engine import Engine"),
        ("llamay.gguf.file", "from llamay.quant import LAYOUTS\nimport numpy"),
        ("llamay", "from llamay.serve import x"),
        ("llamay.cli.version", "from llamay import __version__"),
    ],
)
def test_a_rightful_import_passes(module: str, source: str) -> None:
    assert complaints(module, source) == []
