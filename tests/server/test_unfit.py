"""A server that is started with a context that a model does not have: told where it starts, else once in the journal."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from llamay import cli
from llamay.server.log import Journal
from llamay.store import Store, names
from llamay.store.pull import pull

DATA = Path(__file__).parents[1] / "data"
TINY = DATA / "models" / "llama-gqa.f16.gguf"  # of 256 tokens
BERT = DATA / "encoders" / "bert-mean.f16.gguf"  # of 128


@pytest.mark.parametrize(("path", "made"), [(TINY, 256), (BERT, 128)])
def test_a_named_model_that_has_less_ends_the_server_at_once(
    path: Path, made: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cli.main(["serve", str(path), "-c", "1024", "-addr", "127.0.0.1:0"]) == 2
    told = capsys.readouterr().err
    assert f"made for a context of {made} tokens" in told and "1024" in told and f"-c {made} or less" in told
    monkeypatch.setenv("LLAMAY_MODEL", str(path))
    assert cli.main(["serve", "-c", "1024", "-addr", "127.0.0.1:0"]) == 2


def test_a_named_file_that_cannot_be_run_ends_the_server_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(TINY.read_bytes()[:1000])
    assert cli.main(["serve", str(cut), "-addr", "127.0.0.1:0"]) == 3
    assert "cut: " in capsys.readouterr().err


def test_an_adapter_that_is_not_there_ends_the_server_at_once(capsys: pytest.CaptureFixture[str], adapter: Any) -> None:
    for named in ([str(TINY)], []):
        assert cli.main(["serve", *named, "-device", "webgpu:no such adapter", "-addr", "127.0.0.1:0"]) == 6
        told = capsys.readouterr().err
        assert "no adapter is called 'no such adapter'; there is" in told and adapter.name in told and "http" not in told


@pytest.mark.parametrize("flag", ["-embed", "-rerank"])
def test_an_encoder_that_is_not_installed_ends_the_server_at_once(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMAY_MODELS", str(tmp_path))
    assert cli.main(["serve", str(TINY), flag, "bert", "-addr", "127.0.0.1:0"]) == 4
    assert "model 'bert' is not installed; there is: llama-gqa.f16" in capsys.readouterr().err


def test_a_model_of_less_is_told_once_in_the_journal_and_in_every_answer(
    serving: Any, tmp_path: Path, until: Callable[..., None]
) -> None:
    store = Store(tmp_path)
    pull(store, str(TINY), name=names.parse("tiny"))
    server = serving(None, "", models=store.root, context=1024)
    lines: list[str] = []
    server.site.journal = Journal(lines.append, "json")
    asked = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 2}
    with server.client() as client:
        for path, stream in (("/v1/chat/completions", True), ("/v1/messages", False), ("/api/chat", True)):
            reply = client.post(path, json={**asked, "model": "tiny", "stream": stream})
            assert reply.status_code == 500
            assert "tiny:latest was made for a context of 256 tokens" in reply.text and "-c 256 or less" in reply.text
    until(lambda: len(lines) == 4)
    told = [json.loads(line) for line in lines]
    assert [one["event"] for one in told].count("unfit") == 1 and not any(one["event"] == "fault" for one in told)
    assert "-c 256 or less" in next(one["told"] for one in told if one["event"] == "unfit")


def test_an_encoder_beside_models_that_answer_keeps_to_its_own(serving: Any, tmp_path: Path) -> None:
    store = Store(tmp_path)
    pull(store, str(BERT), name=names.parse("bert"))
    server = serving(None, models=store.root, context=256)
    with server.client() as client:
        assert len(client.post("/v1/embeddings", json={"input": "a", "model": "bert"}).json()["data"]) == 1
        long = client.post("/v1/embeddings", json={"input": "a " * 200, "model": "bert"})
        assert long.status_code == 400 and "128" in long.text
