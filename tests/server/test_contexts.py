"""/v1/contexts, on the wire."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from llamay.server.configuration import Configuration

HELLO = [{"role": "user", "content": "tell me of the sea"}]
TOKENS = list(range(10, 60))


@pytest.fixture
def shelf(serving) -> Any:
    """A server of the test's own, and a client of it."""
    at = serving(Configuration(contexts=12))
    with at.client() as found:
        yield found


def made(client: httpx.Client, **body: Any) -> dict[str, Any]:
    reply = client.post("/v1/contexts", json=body)
    assert reply.status_code == 201, reply.text
    found: dict[str, Any] = reply.json()
    return found


def completed(client: httpx.Client, context: str, prompt: str = " and", **more: Any) -> httpx.Response:
    asked = {"prompt": prompt, "max_tokens": 6, "temperature": 0, "ignore_eos": True, **more}
    return client.post("/v1/completions", json=asked, headers={"X-Llamay-Context": context})


def failed(reply: httpx.Response, status: int, code: str | None = None) -> str:
    """The message of an error in OpenAI's shape."""
    assert reply.status_code == status, reply.text
    error = reply.json()["error"]
    assert error["code"] == code
    return str(error["message"])


def test_a_context_is_made_and_looked_at(shelf: httpx.Client) -> None:
    found = made(shelf, tokens=TOKENS, name="numbers", pin=True)
    assert found["id"].startswith("ctx_")
    assert isinstance(found["created"], int)
    assert found == {
        "id": found["id"], "object": "context", "model": "llama-gqa.f16", "name": "numbers", "parent": None,
        "fork_point": 0, "tokens": 50, "pages": {"own": 1, "shared": 3}, "pinned": True, "created": found["created"],
    }  # fmt: skip
    assert shelf.get(f"/v1/contexts/{found['id']}").json() == found
    prompt = made(shelf, prompt="tell me")
    said = made(shelf, messages=HELLO)
    assert prompt["tokens"] < said["tokens"] and not said["pinned"] and said["name"] is None
    listed = shelf.get("/v1/contexts").json()
    assert listed["object"] == "list"
    assert [one["id"] for one in listed["data"]] == [found["id"], prompt["id"], said["id"]]


def test_what_a_context_is_made_from(shelf: httpx.Client) -> None:
    for body, words in (
        ({}, "one of prompt, messages and tokens; given: none"),
        ({"prompt": "a", "tokens": [5]}, "given: prompt and tokens"),
        ({"messages": []}, "messages is empty"),
        ({"tokens": [5, 100_000]}, "tokens holds 100000; the vocabulary ends at"),
        ({"tokens": [-1]}, "tokens holds -1"),
        ({"tokens": [1 << 40]}, "tokens holds 1099511627776"),
        ({"tokens": []}, "no tokens"),
        ({"tokens": ["a"]}, "tokens"),
        ({"prompt": "a", "name": "../../etc/passwd"}, "name is"),
        ({"prompt": "a " * 100_000}, "tokens at the least"),
    ):
        reply = shelf.post("/v1/contexts", json=body)
        code = "context_length_exceeded" if "at the least" in words else None
        assert words in failed(reply, 400, code)
    assert "not installed" in failed(shelf.post("/v1/contexts", json={"model": "x", "prompt": "a"}), 404, "model_not_found")
    assert shelf.get("/v1/contexts").json()["data"] == []


def test_forks_share_pages_and_answer_alike(shelf: httpx.Client) -> None:
    parent = made(shelf, tokens=TOKENS)
    reply = shelf.post(f"/v1/contexts/{parent['id']}/fork?n=8")
    assert reply.status_code == 201
    forks = reply.json()
    assert forks["object"] == "list" and len(forks["data"]) == 8
    for fork in forks["data"]:
        assert (fork["parent"], fork["fork_point"], fork["tokens"]) == (parent["id"], 50, 50)
        assert fork["pages"] == {"own": 0, "shared": 4}
    texts = {completed(shelf, one["id"]).json()["choices"][0]["text"] for one in [parent, *forks["data"][:3]]}
    assert len(texts) == 1
    assert len(shelf.post(f"/v1/contexts/{parent['id']}/fork").json()["data"]) == 1
    for n, words in (("0", "0 forks"), ("13", "1 to 12 contexts"), ("x", "")):
        assert words in failed(shelf.post(f"/v1/contexts/{parent['id']}/fork?n={n}"), 400)


def test_rewinding(shelf: httpx.Client) -> None:
    kept = made(shelf, tokens=TOKENS)
    short = made(shelf, tokens=TOKENS[:20])
    reply = shelf.post(f"/v1/contexts/{kept['id']}/rewind", json={"to": 20})
    assert reply.status_code == 200
    assert (reply.json()["id"], reply.json()["tokens"]) == (kept["id"], 20)
    text = completed(shelf, kept["id"]).json()["choices"][0]["text"]
    assert text == completed(shelf, short["id"]).json()["choices"][0]["text"]
    assert "it can go back to 0 to 20, not 21" in failed(shelf.post(f"/v1/contexts/{kept['id']}/rewind", json={"to": 21}), 400)
    failed(shelf.post(f"/v1/contexts/{kept['id']}/rewind", json={}), 400)


def test_saving_and_restoring(shelf: httpx.Client, folders: dict[str, Path]) -> None:
    kept = made(shelf, tokens=TOKENS, name="numbers")
    reply = shelf.post(f"/v1/contexts/{kept['id']}/snapshot", json={"name": "my numbers", "tags": ["a"]})
    assert reply.status_code == 201
    found = reply.json()
    assert found == {
        "object": "context.snapshot", "context": kept["id"], "name": "my numbers", "tags": ["a"],
        "model": kept["model"], "parent": None, "tokens": 50, "created": found["created"],
    }  # fmt: skip
    assert "saved as 'my numbers' already" in failed(
        shelf.post(f"/v1/contexts/{kept['id']}/snapshot", json={"name": "my numbers"}), 400
    )
    assert shelf.post(f"/v1/contexts/{kept['id']}/snapshot").json()["name"], "a name is made up"
    reply = shelf.post("/v1/contexts/restore", json={"snapshot": "my numbers", "name": "again"})
    assert reply.status_code == 201
    again = reply.json()
    assert (again["tokens"], again["name"], again["note"]) == (50, "again", "49 tokens restored as pages")
    assert again["id"] != kept["id"]
    text = completed(shelf, kept["id"]).json()["choices"][0]["text"]
    assert completed(shelf, again["id"]).json()["choices"][0]["text"] == text
    part = shelf.post("/v1/contexts/restore", json={"snapshot": "my numbers", "tokens": 20}).json()
    assert part["tokens"] == 20
    missing = shelf.post("/v1/contexts/restore", json={"snapshot": "nothing"})
    assert "no context is saved as 'nothing'" in failed(missing, 404)
    for name in ("../my numbers", "..\\x", "/etc/passwd"):
        assert "name is" in failed(shelf.post("/v1/contexts/restore", json={"snapshot": name}), 400)
        assert "name is" in failed(shelf.post(f"/v1/contexts/{kept['id']}/snapshot", json={"name": name}), 400)
    assert {path.name for path in folders["contexts"].iterdir()} == {"aside", "pages", "saved", "store.lock"}


def test_a_damaged_file_is_told_by_its_name(serving: Any, tmp_path: Path) -> None:
    """Not by where this machine keeps it; and what is not damaged goes on."""
    with serving(contexts=tmp_path / "secret-place").client() as client:
        kept = made(client, tokens=TOKENS)
        assert client.post(f"/v1/contexts/{kept['id']}/snapshot", json={"name": "mine"}).status_code == 201
        (page, *_), (saved,) = ((tmp_path / "secret-place" / folder).glob("*") for folder in ("pages", "saved"))
        for path, content in ((page, b""), (page, b"x" * 9999), (page, None), (saved, saved.read_bytes()[:40])):
            path.unlink() if content is None else path.write_bytes(content)
            told = failed(client.post("/v1/contexts/restore", json={"snapshot": "mine"}), 400)
            assert path.name in told and "secret-place" not in told
            again = client.post("/v1/contexts/restore", json={"snapshot": "mine", "recompute": True})
            if path == saved:  # its tokens are what is computed
                assert path.name in failed(again, 400)
                continue
            assert again.status_code == 201 and again.json()["tokens"] == 50
            assert again.json()["note"].startswith("50 tokens recomputed: ") and path.name in again.json()["note"]
            assert "secret-place" not in again.text
            assert client.delete(f"/v1/contexts/{again.json()['id']}").is_success
        assert [one["id"] for one in client.get("/v1/contexts").json()["data"]] == [kept["id"]]
        assert completed(client, kept["id"]).status_code == 200


def test_where_two_part(shelf: httpx.Client) -> None:
    left, right = made(shelf, tokens=TOKENS), made(shelf, tokens=[*TOKENS[:30], 7, 8])
    found = shelf.get(f"/v1/contexts/{left['id']}/diff/{right['id']}").json()
    assert found["contexts"] == [left["id"], right["id"]]
    assert (found["object"], found["common_tokens"], found["tokens"]) == ("context.diff", 30, [50, 32])
    assert found["rest"] == [TOKENS[30:], [7, 8]]
    assert (found["shared_pages"], found["pages"]) == (1, [4, 2])
    assert len(found["texts"]) == 2 and found["texts"][0] != found["texts"][1]


def test_deleting(shelf: httpx.Client) -> None:
    kept = made(shelf, tokens=TOKENS)
    fork = shelf.post(f"/v1/contexts/{kept['id']}/fork").json()["data"][0]
    assert shelf.delete(f"/v1/contexts/{kept['id']}").json() == {"id": kept["id"], "object": "context", "deleted": True}
    failed(shelf.delete(f"/v1/contexts/{kept['id']}"), 404, "context_lost")
    assert [one["id"] for one in shelf.get("/v1/contexts").json()["data"]] == [fork["id"]]
    assert completed(shelf, fork["id"]).status_code == 200


def test_a_lost_context_is_404_on_every_route(shelf: httpx.Client) -> None:
    there = made(shelf, tokens=TOKENS)["id"]
    for lost in ("ctx_0123456789abcdef01234567", "x", "..%2f..%2fetc", "%00"):
        for reply in (
            shelf.get(f"/v1/contexts/{lost}"),
            shelf.delete(f"/v1/contexts/{lost}"),
            shelf.post(f"/v1/contexts/{lost}/fork?n=2"),
            shelf.post(f"/v1/contexts/{lost}/rewind", json={"to": 0}),
            shelf.post(f"/v1/contexts/{lost}/snapshot", json={}),
            shelf.get(f"/v1/contexts/{lost}/diff/{there}"),
            shelf.get(f"/v1/contexts/{there}/diff/{lost}"),
        ):
            assert reply.status_code == 404
            if "%" not in lost:
                assert "12 are kept, -max-contexts" in failed(reply, 404, "context_lost")
    assert "is not kept here" in failed(completed(shelf, "ctx_gone"), 404, "context_lost")


def test_the_least_recently_used_is_lost_and_a_restart_loses_all(serving) -> None:
    with serving(Configuration(contexts=2, pinned=2)).client() as client:
        first = made(client, tokens=TOKENS)["id"]
        for n in range(2):
            made(client, tokens=TOKENS[: 20 + n])
        failed(client.get(f"/v1/contexts/{first}"), 404, "context_lost")
        for n in range(2):
            made(client, tokens=TOKENS[: 20 + n], pin=True)
        assert "2 of 2 contexts are pinned" in failed(client.post("/v1/contexts", json={"tokens": TOKENS}), 409, "contexts_full")
        last = client.get("/v1/contexts").json()["data"][0]["id"]
    with serving(Configuration(contexts=2)).client() as client:
        failed(completed(client, last), 404, "context_lost")


def test_one_client_pins_so_many_and_no_more(serving) -> None:
    at = serving(Configuration(contexts=4))
    with at.client() as client:
        pinned = [made(client, tokens=TOKENS[: 20 + n], pin=True)["id"] for n in range(2)]
        message = failed(client.post("/v1/contexts", json={"tokens": TOKENS, "pin": True}), 409, "pins_full")
        assert "one client may have 2" in message and "DELETE" in message and "-max-pinned" in message
        assert not made(client, tokens=TOKENS)["pinned"]
        address = "127.0.0.1"
        assert client.get("/v1/stats").json()["shelf"] == {"contexts": 4, "pins": 2, "pinned": {address: 2}}
        at.site.shelf.grow(at.site.models.default, TOKENS, {"max_tokens": 0}, pinned=True, client="another")[1].result()
        assert client.delete(f"/v1/contexts/{pinned[0]}").status_code == 200
        assert made(client, tokens=TOKENS, pin=True)["pinned"]


def test_many_contexts_on_a_small_pool_refuse_nobody(serving) -> None:
    at = serving(Configuration(contexts=64), context=128, kv_mem="0.1M")
    with at.client() as client:
        pages = 0
        ids = []
        for n in range(40):
            found = made(client, tokens=[10 + n, *TOKENS, *TOKENS[: n % 9]])
            pages += 4
            ids.append(found["id"])
        listed = client.get("/v1/contexts").json()["data"]
        assert any(one["pages"] == {"own": 0, "shared": 0} for one in listed)
        assert len(listed) == 40
        for id in ids[::9]:
            assert completed(client, id).status_code == 200
        reply = client.post("/v1/completions", json={"prompt": TOKENS * 2, "max_tokens": 5, "ignore_eos": True})
        assert reply.status_code == 200
    model = at.site.models.default.name
    at.site.models.engine.call(lambda scheduler: scheduler.cache.check_integrity(), model)
