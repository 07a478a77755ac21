"""Every example of the documents runs, on a tiny model in a home of its own, and says what it should."""

import os
import runpy
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


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty home, and none of the caller's settings."""
    for name in [name for name in os.environ if name.startswith("LLAMAY_")]:
        monkeypatch.delenv(name)
    for name, folder in {"HOME": tmp_path, "XDG_CONFIG_HOME": tmp_path / "config", "XDG_CACHE_HOME": tmp_path / "cache"}.items():
        monkeypatch.setenv(name, str(folder))
    monkeypatch.setenv("LLAMAY_BACKEND", "numpy")


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", [str(path), str(MODEL)])
    runpy.run_path(str(path), run_name="__main__")
    assert SAYS[path.stem] in capsys.readouterr().out
    assert path.name in (ROOT / "docs" / "python.md").read_text(encoding="utf-8")


@pytest.mark.usefixtures("home")
def test_an_example_is_a_program_of_its_own() -> None:
    words = [sys.executable, str(EXAMPLES[0]), str(MODEL)]
    done = subprocess.run(words, capture_output=True, text=True, encoding="utf-8", timeout=120, env={**os.environ, "PYTHONIOENCODING": "utf-8"})
    assert done.returncode == 0, done.stderr
    assert SAYS[EXAMPLES[0].stem] in done.stdout
