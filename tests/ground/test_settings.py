"""Settings: four sources, one order, and refusals that name the source."""

import json
from pathlib import Path
from typing import Any

import pytest

from llamay import cli, settings
from llamay.errors import SettingsError
from llamay.tensor.cache import OFFERED


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """No variable of the outside and a home of our own."""
    import os

    for name in list(os.environ):
        if name.startswith("LLAMAY_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def config(folder: Path, text: str) -> Path:
    path = folder / "config" / "llamay" / "config.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_defaults() -> None:
    made = settings.resolve()
    assert made.settings.backend == "auto"
    assert set(made.origins.values()) == {"default"}


def test_file_then_variable_then_flag(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = config(bare, 'backend = "numpy"\ncontext = 512\nkv = "f16"\n')
    monkeypatch.setenv("LLAMAY_CONTEXT", "1024")
    monkeypatch.setenv("LLAMAY_KV", "f32")
    made = settings.resolve({"kv": "f16", "backend": None})
    assert (made.settings.backend, made.settings.context, made.settings.kv) == ("numpy", 1024, "f16")
    origins = (made.origins["backend"], made.origins["context"], made.origins["kv"], made.origins["models"])
    assert origins == (str(path), "LLAMAY_CONTEXT", "flag", "default")


def test_paths_expand_and_an_empty_variable_is_unset(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMAY_MODELS", "~/there")
    monkeypatch.setenv("LLAMAY_KV", "")
    made = settings.load()
    assert (made.models, made.kv) == (bare / "there", "f32")


def test_kv_formats_are_those_of_the_executors() -> None:
    assert settings.KV_FORMATS == OFFERED and settings.Settings().kv == OFFERED[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("bakend = 1", "no setting 'bakend'; did you mean backend"),
        ("context = 'x'", "context is 'x'; expected a whole number"),
        ("context = true", "context is True; expected a whole number"),
        ("kv = 1", "kv is 1; expected text"),
        ("require_webgpu = 2", "expected true or false"),
        ("[backend]\nx = 1", "expected text"),
        ("kv = 'q1'", "config.toml: kv is 'q1'; it may be f32, f16, vq8 or q8"),
        ("colour = 1", "no setting 'colour'; there are backend, model, models"),
        ("context = -1", "context is -1"),
        ("backend = 'cuda'", "it may be auto, webgpu, webgpu:NAME or numpy"),
        ("backend = 'webgpu:'", "it may be"),
        ("= 1", "config.toml"),
        ("kv = '\ud800'", "config.toml"),
    ],
)
def test_a_bad_file_is_refused_by_name(bare: Path, text: str, message: str) -> None:
    path = config(bare, "")
    path.write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(SettingsError, match=message):
        settings.load()


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("LLAMAY_BAKEND", "numpy", "did you mean LLAMAY_BACKEND"),
        ("LLAMAY_COLOUR", "red", "the variable LLAMAY_COLOUR; there are LLAMAY_BACKEND, LLAMAY_MODEL"),
        ("LLAMAY_KV_MEM", "lots", "LLAMAY_KV_MEM: kv_mem is 'lots'; it may be a size"),
        ("LLAMAY_CONTEXT", "1e3", "LLAMAY_CONTEXT: context is '1e3'"),
        ("LLAMAY_REQUIRE_WEBGPU", "maybe", "expected true or false"),
        ("LLAMAY_CONFIG", "/nowhere/x.toml", "no such file"),
    ],
)
def test_a_bad_variable_is_refused_by_name(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, message: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(SettingsError, match=message):
        settings.load()


def test_another_config_file(bare: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (bare / "mine.toml").write_text("context = 7")
    monkeypatch.setenv("LLAMAY_CONFIG", str(bare / "mine.toml"))
    assert settings.load().context == 7


def test_a_flag_is_checked_too() -> None:
    with pytest.raises(SettingsError, match="backend"):
        settings.load({"backend": "gpu"})
    with pytest.raises(SettingsError, match="the flag for context"):
        settings.load({"context": "x"})


def test_env_prints_each_value_and_its_origin(
    bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("LLAMAY_BACKEND", "numpy")
    assert cli.main(["env", "--json"]) == 0
    rows: dict[str, Any] = {row["name"]: row for row in json.loads(capsys.readouterr().out)["settings"]}
    assert (rows["backend"]["value"], rows["backend"]["origin"]) == ("numpy", "LLAMAY_BACKEND")
    assert rows["require_webgpu"]["value"] is False
    assert cli.main(["env"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.split()[:3] == ["LLAMAY_BACKEND", "numpy", "LLAMAY_BACKEND"] for line in lines)


@pytest.mark.parametrize("name", ["LLAMAY_MODELS", "LLAMAY_CACHE", "LLAMAY_CONTEXTS", "LLAMAY_CONFIG"])
def test_the_home_of_nobody_is_refused_by_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "~nobodyofthisname/there")
    with pytest.raises(SettingsError, match=rf"{name}: '~nobodyofthisname/there' begins with a home folder"):
        settings.resolve()


def test_a_user_without_any_home_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def unknown() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", unknown)
    with pytest.raises(SettingsError, match="HOME is not set"):
        settings.resolve()
    for name, value in (("MODELS", "/m"), ("CACHE", "/c"), ("CONTEXTS", "/x")):
        monkeypatch.setenv(f"LLAMAY_{name}", value)
    assert str(settings.load().models) == "/m", "what is named needs no home"


def test_a_path_with_a_null_character_is_refused(bare: Path) -> None:
    config(bare, 'models = "a\\u0000b"\n')
    with pytest.raises(SettingsError, match="null character"):
        settings.resolve()


@pytest.mark.parametrize("digits", ["9" * 5000, "-" + "9" * 5000, "--1", "\u00b2"])
def test_a_number_that_cannot_be_read_is_refused(digits: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMAY_CONTEXT", digits)
    with pytest.raises(SettingsError, match="expected a whole number"):
        settings.resolve()
