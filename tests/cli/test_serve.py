"""`llamay serve`: each flag reaches the server."""

import importlib
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from llamay import cli
from llamay.errors import UsageError
from llamay.server import banner, main
from llamay.server.configuration import Configuration, duration
from llamay.server.site import Site

ROOT = Path(__file__).parents[2]
FLAGS: list[tuple[list[str], dict[str, Any]]] = [
    ([], {"host": "127.0.0.1", "port": 11435}),
    (["-addr", "0.0.0.0:80"], {"host": "0.0.0.0", "port": 80}),
    (["-addr", ":8080"], {"host": "127.0.0.1", "port": 8080}),
    (["-addr", "[::1]:9"], {"host": "::1", "port": 9}),
    (["-batch", "3"], {"batch": 3}),
    (["-concurrency", "4"], {"concurrency": 4}),
    (["-queue", "5"], {"queue": 5}),
    (["-prefill-chunk", "64"], {"chunk": 64}),
    (["-keepalive", "1h30m"], {"keep_alive": 5400.0}),
    (["-keepalive", "-1"], {"keep_alive": None}),
    (["-max-loaded", "2"], {"loaded": 2}),
    (["-max-contexts", "7"], {"contexts": 7, "most_pinned": 3}),
    (["-max-pinned", "5"], {"pinned": 5, "most_pinned": 5}),
    (["-api-key", "k"], {"api_key": "k"}),
    (["-origins", "https://A.example, http://b"], {"origins": ("https://a.example", "http://b")}),
    (["-hosts", "Models.lan"], {"hosts": ("models.lan",)}),
    (["-embed", "e"], {"embed": "e"}),
    (["-rerank", "r"], {"rerank": "r"}),
    (["-per-client", "2"], {"per_client": 2}),
    (["-log", "json"], {"log": "json"}),
]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What the server was started with."""
    found: list[tuple[Any, ...]] = []

    def start(settings: Any, configuration: Configuration, model: str, *, note: Any) -> int:
        found.append((settings, configuration, model))
        return 0

    monkeypatch.setattr(main, "serve", start)
    return found


@pytest.mark.parametrize(("words", "fields"), FLAGS, ids=lambda value: " ".join(value) or None)
def test_a_flag_reaches_the_server(served: list[tuple[Any, ...]], words: list[str], fields: dict[str, Any]) -> None:
    assert cli.main(["serve", "a-model", *words]) == 0
    (_, configuration, model) = served[0]
    assert model == "a-model"
    assert {name: getattr(configuration, name) for name in fields} == fields


def test_the_key_comes_from_the_settings_where_no_flag_says_it(
    served: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMAY_API_KEY", "quiet")
    assert cli.main(["serve"]) == 0 and cli.main(["serve", "-api-key", "loud"]) == 0
    assert [configuration.api_key for _, configuration, _ in served] == ["quiet", "loud"]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("5m", 300.0), ("1h30m", 5400.0), ("90", 90.0), ("100ms", 0.1), ("0", 0.0), ("-1m", None), (90, 90.0), (-1, None), (1e300, None),
     (10**400, None), ("9" * 12, None)],
)  # fmt: skip
def test_a_time(text: str | float, seconds: float | None) -> None:
    assert duration(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf", "1e5", "--1", "9" * 5000])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(UsageError, match="no time"):
        duration(text)


def test_every_flag_of_its_own_is_tested() -> None:
    loading = {"-c", "-kv", "-kv-mem", "-backend"}
    flags = {action.option_strings[0] for action in cli.parser_of(cli.load("serve")).flags()} - {"-help", "-m"}
    tested = {words[0] for words, _ in FLAGS if words}
    own = {flag for flag in flags if flag not in loading and f"-{flag.lstrip('-')}" in tested}
    assert tested <= own, tested - own


@pytest.mark.parametrize(
    "words", [["-batch", "0"], ["-queue", "x"], ["-addr", "a:b"], ["-addr", "x:99999"], ["-keepalive", "soon"], ["-log", "xml"],
              ["-per-client", "-1"], ["-concurrency", "-3"]],
)  # fmt: skip
def test_a_wrong_flag_is_wrong_usage(served: list[tuple[Any, ...]], words: list[str]) -> None:
    assert cli.main(["serve", *words]) == 2 and not served


def test_the_second_script(served: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, name = scripts["llamay-server"].partition(":")
    monkeypatch.setattr("sys.argv", ["llamay-server", "-addr", ":1"])
    assert getattr(importlib.import_module(module), name)() == 0 and served[0][1].port == 1


def test_settings_and_bounds(served: list[tuple[Any, ...]]) -> None:
    assert cli.main(["serve", "-c", "128", "-kv", "q8", "-batch", "4", "-concurrency", "2", "-queue", "9", "-m", "other"]) == 0
    settings, configuration, model = served[0]
    assert (settings.context, settings.kv, model) == (128, "q8", "other")
    bounds = configuration.bounds
    assert (bounds.running, bounds.waiting, configuration.places) == (2, 11, 11)


@pytest.mark.parametrize(("host", "key", "careful"), [("127.0.0.1", "", False), ("0.0.0.0", "", True), ("0.0.0.0", "k", False)])
def test_the_banner_warns_where_others_can_reach_it(tmp_path: Path, host: str, key: str, careful: bool) -> None:
    models: Any = SimpleNamespace(default=SimpleNamespace(name="m"), engine=None, settings=SimpleNamespace(contexts=tmp_path))
    said = banner.text(Site(models, Configuration(host=host, api_key=key)), 11435)
    assert ("-api-key" in said) is careful
    assert ("Authorization: Bearer" in said) is bool(key)
    assert "http://127.0.0.1:11435/v1/chat/completions" in said and "/v1/messages" in said and "/api/chat" in said
