"""Every example of the documents runs, on a tiny model in a home of its own, and says what it should."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EXAMPLES = sorted((ROOT / "docs" / "examples").glob("*.py"))
MODEL = ROOT / "tests" / "data" / "models" / "llama-gqa.f16.gguf"
SAYS = {
    "answer": "the likeliest of four",
    "contexts": "'ferry' came back with 148 tokens: True",
    "logits": "\n",
    "threads": "company changed nothing: True",
}


def test_all_are_known() -> None:
    assert {path.stem for path in EXAMPLES} == set(SAYS)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path: Path, tmp_path: Path) -> None:
    folders = {"HOME": tmp_path, "XDG_CONFIG_HOME": tmp_path / "config", "XDG_CACHE_HOME": tmp_path / "cache"}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LLAMAY_")}
    environment = {**kept, **{name: str(folder) for name, folder in folders.items()}, "LLAMAY_BACKEND": "numpy"}
    done = subprocess.run(
        [sys.executable, str(path), str(MODEL)], env={**environment, "PYTHONIOENCODING": "utf-8"}, capture_output=True,
        text=True, encoding="utf-8", timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert SAYS[path.stem] in done.stdout
    assert path.name in (ROOT / "docs" / "python.md").read_text(encoding="utf-8")
