"""Builds the wheel and the source archive, and compares what is inside with the tree."""

import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
SUFFIXES = {".py", ".wgsl", ".tcss"}


def expected() -> set[str]:
    """Every source and data file of the packages, under the name it has in the wheel."""
    folders = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-dir"]
    names = {"llamay/py.typed"}
    for package, folder in folders.items():
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in SUFFIXES and "__pycache__" not in path.parts:
                names.add(f"{package.replace('.', '/')}/{path.relative_to(ROOT / folder).as_posix()}")
    return names


def complain(what: str, missing: set[str], surplus: set[str]) -> bool:
    for name in sorted(missing):
        print(f"{what}: missing {name}")
    for name in sorted(surplus):
        print(f"{what}: should not hold {name}")
    return bool(missing or surplus)


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        # the wheel is made from the source archive, so both are proved complete
        command = [sys.executable, "-m", "build", "--outdir", folder, str(ROOT)]
        built = subprocess.run(command, capture_output=True, text=True, check=False)
        if built.returncode:
            print(built.stdout[-4000:], built.stderr[-4000:], sep="\n")
            return 1
        (wheel,) = Path(folder).glob("*.whl")
        (archive,) = Path(folder).glob("*.tar.gz")
        held = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
        with tarfile.open(archive) as tar:
            packed = {name.partition("/")[2] for name in tar.getnames()}
        wanted = expected()
        bad = complain(wheel.name, wanted - held, held - wanted)
        bad |= complain(archive.name, {"LICENSE", "README.md", "pyproject.toml"} - packed, set())
        bad |= not starts(wheel)
        print(f"{wheel.name}: {len(held)} files, {wheel.stat().st_size // 1024} KiB")
        return int(bad)


def starts(wheel: Path) -> bool:
    """Whether the wheel, unpacked elsewhere, prints its version from its own files and finds its kernels."""
    program = (
        "import sys, importlib.resources as r; sys.path.insert(0, sys.argv[1]); import llamay, llamay.cli;"
        "assert llamay.__file__.startswith(sys.argv[1]), llamay.__file__;"
        "assert any(p.name.endswith('.wgsl') for p in r.files('llamay.wgsl').iterdir());"
        "sys.exit(llamay.cli.main(['version']))"
    )
    with tempfile.TemporaryDirectory() as folder:
        zipfile.ZipFile(wheel).extractall(folder)
        ran = subprocess.run([sys.executable, "-c", program, folder], cwd=folder, text=True, check=False)
    if ran.returncode:
        print(f"{wheel.name}: does not start")
    return ran.returncode == 0


if __name__ == "__main__":
    sys.exit(main())
