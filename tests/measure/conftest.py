"""What the measuring commands' tests share: both backends, tiny models, and a command line of their own."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llamay import cli, settings
from llamay.settings import Settings
from llamay.tensor.webgpu import opening

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "tests" / "data" / "models"
CHOSEN = settings.load()
BACKENDS = sorted({"numpy", CHOSEN.backend})  # LLAMAY_BACKEND=numpy leaves one

Run = Callable[..., int]


@pytest.fixture(autouse=True)
def one_device(lending: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Models are loaded onto one device: compiling the kernels of each anew is what took the time."""
    monkeypatch.setattr(opening, "Device", lending)


@pytest.fixture(params=BACKENDS, scope="session")
def in_force(request: pytest.FixtureRequest) -> Settings:
    """The settings of one backend."""
    return Settings(backend=request.param, require_webgpu=CHOSEN.require_webgpu)


@pytest.fixture
def models() -> Path:
    """The folder of tiny models."""
    return MODELS


@pytest.fixture
def llamay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a command line with an empty home and no settings but the backend's."""
    for name in list(os.environ):
        if name.startswith("LLAMAY_") and name not in ("LLAMAY_REQUIRE_WEBGPU", "LLAMAY_BACKEND"):
            monkeypatch.delenv(name)
    for name, folder in (("HOME", ""), ("XDG_CONFIG_HOME", "config"), ("XDG_CACHE_HOME", "cache")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    return lambda *words: cli.main([str(word) for word in words])
