"""The official SDK of Ollama and langchain-ollama on a real socket; what a real model says is in test_real_model.py."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

TINY = Path(__file__).parents[1] / "data" / "models" / "llama-gqa.f16.gguf"
QUESTION = {"role": "user", "content": "What is the capital of France? Answer in one sentence."}
GREEDY: dict[str, Any] = {"temperature": 0, "num_predict": 24}


@pytest.fixture
def client(ollama: Any, tiny: Any) -> Any:
    """The SDK's client of the tiny server, without certificates, which take 50 ms to read."""
    return ollama.Client(host=tiny.url, verify=False)


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def test_chat(tiny: Any, client: Any) -> None:
    whole = client.chat(tiny.model, [QUESTION], options=GREEDY)
    assert whole.message.content and whole.done and whole.done_reason in ("stop", "length")
    assert whole.eval_count and whole.prompt_eval_count and whole.total_duration
    pieces = list(client.chat(tiny.model, [QUESTION], options=GREEDY, stream=True))
    assert len(pieces) > 2 and "".join(piece.message.content or "" for piece in pieces) == whole.message.content
    assert pieces[-1].done and pieces[-1].eval_count == whole.eval_count


def test_generate(tiny: Any, client: Any) -> None:
    whole = client.generate(tiny.model, QUESTION["content"], options=GREEDY)
    assert whole.response and whole.context
    pieces = list(client.generate(tiny.model, QUESTION["content"], options=GREEDY, stream=True))
    assert "".join(piece.response for piece in pieces) == whole.response
    again = client.generate(tiny.model, "And of Italy?", context=whole.context, options=GREEDY)
    assert again.response and again.context[: len(whole.context)] == whole.context
    assert client.generate(tiny.model, "2 + 2 =", raw=True, options=GREEDY).response


def test_the_asynchronous_client(tiny: Any, ollama: Any, client: Any) -> None:
    async def talk() -> str:
        asked = ollama.AsyncClient(host=tiny.url, verify=False)
        return "".join([part.message.content or "" async for part in await asked.chat(tiny.model, [QUESTION], stream=True, options=GREEDY)])

    assert asyncio.run(talk()) == client.chat(tiny.model, [QUESTION], options=GREEDY).message.content


def test_what_there_is(tiny: Any, client: Any) -> None:
    client.generate(tiny.model, keep_alive=60)
    assert f"{tiny.model}:latest" in [one.model for one in client.list().models]
    shown = client.show(tiny.model)
    assert shown.capabilities == ["completion"] and shown.modelinfo and shown.modelinfo["general.architecture"] == "llama"
    (running,) = client.ps().models
    assert running.model == f"{tiny.model}:latest" and running.expires_at is not None


def test_errors(tiny: Any, ollama: Any, client: Any) -> None:
    for ask in (
        lambda: client.chat("no-such-model", [QUESTION]),
        lambda: list(client.chat("no-such-model", [QUESTION], stream=True)),
    ):
        with pytest.raises(ollama.ResponseError, match="not found") as missing:
            ask()
        assert missing.value.status_code == 404
    with pytest.raises(ollama.ResponseError, match="encoder") as refused:
        client.embed(tiny.model, "hello")
    assert refused.value.status_code == 501
    with pytest.raises(ollama.ResponseError, match="push is not supported"):
        client.push("mine")
    for stream in (False, True):
        with pytest.raises(ollama.ResponseError, match=r"\d+.* tokens") as long:
            list(client.generate(tiny.model, "word " * 300, stream=stream))
        assert long.value.status_code == 400


def test_models_are_made_copied_and_deleted(serving: Any, ollama: Any, tmp_path: Path) -> None:
    running = serving(None, TINY, models=tmp_path / "models")
    client = ollama.Client(host=running.url, verify=False)
    data = TINY.with_name("qwen3.f16.gguf")
    digest = client.create_blob(data)
    assert client.create("mine", files={data.name: digest}, system="be kind", parameters={"temperature": 0}).status == "success"
    assert [one.status for one in client.create("more", from_="mine", stream=True)][-1] == "success"
    client.copy("more", "other:tag")
    assert sorted(str(one.model) for one in client.list().models)[1:] == ["mine:latest", "more:latest", "other:tag"]
    for name in ("mine", "more"):
        client.delete(name)
    assert client.generate("other:tag", "x", options={"num_predict": 2}).done
    with pytest.raises(ollama.ResponseError) as missing:
        client.delete("mine")
    assert missing.value.status_code == 404


def test_langchain(tiny: Any) -> None:
    from langchain_ollama import ChatOllama, OllamaLLM

    chat = ChatOllama(model=tiny.model, base_url=tiny.url, temperature=0, num_predict=24, validate_model_on_init=True)
    asked = [("system", "You are a helpful assistant."), ("human", QUESTION["content"])]
    whole = chat.invoke(asked)
    assert whole.content
    assert "".join(str(piece.content) for piece in chat.stream(asked)) == whole.content
    assert OllamaLLM(model=tiny.model, base_url=tiny.url, temperature=0, num_predict=24).invoke(QUESTION["content"])
