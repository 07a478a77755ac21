"""The list of packages, the size of files and what `import llamay` costs."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SETUPTOOLS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
FOLDERS: dict[str, str] = SETUPTOOLS["package-dir"]
CEILING = 400  # lines; a longer file is two rooms

HEAVY = ("numpy", "wgpu", "textual", "falcon", "waitress", "httpx", "jinja2", "regex", "msgspec", "argparse", "asyncio")


def test_every_package_is_listed() -> None:
    """A forgotten one works from the checkout and is missing from the wheel."""
    found = set()
    for package, folder in FOLDERS.items():
        for path in (ROOT / folder).rglob("__init__.py"):
            found.add(".".join([package, *path.parent.relative_to(ROOT / folder).parts]))
    assert sorted(SETUPTOOLS["packages"]) == sorted(found)


def test_every_folder_with_code_is_a_package() -> None:
    for folder in FOLDERS.values():
        for path in (ROOT / folder).rglob("*.py"):
            assert (path.parent / "__init__.py").exists(), f"{path.parent} has no __init__.py"


def test_no_file_is_longer_than_the_ceiling() -> None:
    lengths = {}
    for folder in {*FOLDERS.values(), "tests", "bench", ".ci", "docs"}:
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in (".py", ".wgsl"):
                lengths[path.relative_to(ROOT).as_posix()] = len(path.read_text(encoding="utf-8").splitlines())
    assert len(lengths) > 40
    assert {name: lines for name, lines in lengths.items() if lines > CEILING} == {}


def test_every_module_opens_with_a_sentence() -> None:
    silent = []
    for folder in FOLDERS.values():
        for path in (ROOT / folder).rglob("*.py"):
            if not path.read_text(encoding="utf-8").startswith(('"""', 'r"""')):
                silent.append(path.relative_to(ROOT).as_posix())
    assert silent == []


@pytest.mark.parametrize("module", ["llamay", "llamay.errors", "llamay.settings"])
def test_the_import_is_light(module: str) -> None:
    program = f"import sys, {module}; print(*[name for name in {HEAVY} if name in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []


def test_the_engine_needs_no_surface() -> None:
    """Importing the engine loads no HTTP and no terminal."""
    program = (
        "import sys, llamay.serve, llamay.model, llamay.tok, llamay.store, llamay.tensor;"
        "print(*[name for name in ('textual', 'falcon', 'waitress', 'wgpu') if name in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []
