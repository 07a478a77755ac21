"""Routes of llama.cpp's server beyond /completion: gaps that are filled, and slots."""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

MARKS = {"<|fim_prefix|>": 20, "<|fim_suffix|>": 21, "<|fim_middle|>": 22}
FILES = {"<|repo_name|>": 23, "<|file_sep|>": 24}
GAP = {"input_prefix": "def f(x):", "input_suffix": "return y", "temperature": 0, "n_predict": 4, "ignore_eos": True}


@pytest.fixture(scope="module")
def filler(host: Any) -> Iterator[Any]:
    """A server whose vocabulary is said to have tokens for gaps and files."""
    with host() as server:
        server.site.models.language(server.site.models.default).tokenizer.ids.update(MARKS)
        yield server


def test_a_gap_is_filled(filler: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = filler.site.models.language(filler.site.models.default).tokenizer
    encode = tokenizer.encode

    def behind(ids: list[int]) -> str:
        """What goes on with these tokens."""
        asked = {**GAP, "prompt": [tokenizer.bos, *ids] if tokenizer.add_bos else ids}
        return str(client.post("/completion", json=asked).json()["content"])

    gap = [20, *encode(GAP["input_prefix"]), 21, *encode(GAP["input_suffix"]), 22]
    with filler.client() as client:
        found = client.post("/infill", json=GAP).json()
        assert found["content"] == behind(gap) and found["tokens_predicted"] == 4 and found["stop"]
        begun = client.post("/infill", json={**GAP, "prompt": " y ="}).json()
        assert begun["content"] == behind([*gap, *encode(" y =")])
        extra = {**GAP, "input_extra": [{"filename": "a.py", "text": "z = 1"}], "n_indent": 4, "samplers": ["top_k"]}
        assert client.post("/infill", json=extra).json()["content"] == behind([*encode("\n\n--- snippet ---\n\nz = 1"), *gap])
        for name, id in FILES.items():
            monkeypatch.setitem(tokenizer.ids, name, id)
        files = [23, *encode("repository\n"), 24, *encode("a.py\nz = 1"), 24, *encode("this file\n")]
        assert client.post("/infill", json=extra).json()["content"] == behind([*files, *gap])
        assert client.post("/infill", json={**GAP, "prompt": [1, 2]}).status_code == 400
        ollama = {"prompt": GAP["input_prefix"], "suffix": GAP["input_suffix"], "stream": False, "options": {"temperature": 0, "num_predict": 4}}
        assert client.post("/api/generate", json=ollama).json()["response"]


def test_without_tokens_for_gaps_there_is_no_infill(client: httpx.Client) -> None:
    reply = client.post("/infill", json=GAP)
    assert reply.status_code == 501 and reply.headers["x-should-retry"] == "false"
    assert "/completion" in reply.json()["error"]["message"]


def test_slots_tell_who_takes_part(host: Any, halt: Any, until: Callable[..., None]) -> None:
    with host() as server, server.client() as client:
        assert client.post("/completion", json={**GAP, "prompt": "sea"}).status_code == 200
        until(lambda: not any(one["is_processing"] for one in client.get("/slots").json()))
        idle = client.get("/slots").json()
        assert len(idle) == server.site.configuration.batch
        assert idle[0]["n_ctx"] == server.site.models.loaded(server.model).context
        seen: list[Any] = []
        held = halt.by_step(server.site.models.engine, server.site.models.loaded(server.model).executor)

        def look() -> None:
            with server.client() as other:
                until(lambda: seen or seen.extend(one for one in other.get("/slots").json() if one["is_processing"]))
            held.go_on.set()

        looking = threading.Thread(target=look)
        looking.start()
        client.post("/completion", json={**GAP, "prompt": "the sea is", "n_predict": 100})
        looking.join()
        assert seen and seen[0]["id_task"] > 0 and seen[0]["next_token"][0]["has_next_token"]
        assert "sea" not in str(seen)


def test_slots_are_not_saved(client: httpx.Client) -> None:
    reply = client.post("/slots/0?action=save", json={"filename": "a"})
    assert reply.status_code == 501 and reply.headers["x-should-retry"] == "false"
    assert "/v1/contexts" in reply.json()["error"]["message"]
