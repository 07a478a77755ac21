"""What a model thinks is told apart on each API, whole and streamed, and asked for in each API's words."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from llamay.tok.chat import ChatTemplate

HELLO = [{"role": "user", "content": "hello"}]
CHAT = {"messages": HELLO, "temperature": 0, "max_tokens": 24, "ignore_eos": True}
OLLAMA = {"options": {"temperature": 0, "num_predict": 24}}
TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
    "{% if enable_thinking is not defined or enable_thinking %}<think>\n{% else %}quick{{ reasoning_effort }}{% endif %}"
)
OPENED = "<think>\n"


class Thinker:
    """A server whose model thinks until it happens to write a certain text."""

    def __init__(self, server: Any) -> None:
        self.client: httpx.Client = server.client()
        self.language = server.site.models.language(server.site.models.default)
        self.language.template = self.template = ChatTemplate(TEMPLATE)
        self.template.thinks = ("<think>", "</think>")  # replaces the property: what is found once
        raw = self.post("/v1/chat/completions", {**CHAT, "reasoning_format": "none"})["choices"][0]["message"]
        self.raw: str = raw["content"]
        assert len(self.raw) > 12 and "reasoning_content" not in raw
        at = next(at for at in range(6, len(self.raw)) if self.raw.find(self.raw[at : at + 2]) == at)
        self.template.thinks = ("<think>", self.raw[at : at + 2])
        self.thought, self.said = self.raw[:at].strip(), self.raw[at + 2 :].lstrip()
        assert self.thought and self.said

    def post(self, route: str, body: dict[str, Any]) -> Any:
        reply = self.client.post(route, json=body)
        assert reply.status_code == 200, reply.text
        return reply.json()

    def events(self, route: str, body: dict[str, Any]) -> list[Any]:
        reply = self.client.post(route, json={**body, "stream": True})
        assert reply.status_code == 200, reply.text
        lines = [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith(("data: {", "{"))]
        return [json.loads(line) for line in lines]

    def prompt(self, route: str, body: dict[str, Any]) -> str:
        """What the template made of a request."""
        rendered: list[str] = []
        render = self.template.render

        def noted(*words: Any, **more: Any) -> Any:
            found = render(*words, **more)
            rendered.append(found.text)
            return found

        self.template.render = noted  # type: ignore[method-assign]
        self.post(route, body)
        del self.template.render
        return rendered[-1]


@pytest.fixture(scope="module")
def thinker(host: Any) -> Iterator[Thinker]:
    with host() as server:
        yield Thinker(server)


def test_openai_chat(thinker: Thinker) -> None:
    message = thinker.post("/v1/chat/completions", CHAT)["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == (thinker.thought, thinker.said)
    deltas = [one["choices"][0]["delta"] for one in thinker.events("/v1/chat/completions", CHAT)]
    assert "".join(one.get("reasoning_content", "") for one in deltas) == thinker.thought
    assert "".join(one.get("content", "") for one in deltas) == thinker.said
    scored = thinker.post("/v1/chat/completions", {**CHAT, "logprobs": True})["choices"][0]["logprobs"]["content"]
    assert len(scored) == 24, "each token is told once"


def test_openai_responses(thinker: Thinker) -> None:
    body = {"input": "hello", "temperature": 0, "max_output_tokens": 24, "ignore_eos": True}
    thought, said = thinker.post("/v1/responses", body)["output"]
    assert (thought["type"], thought["content"]) == ("reasoning", [{"type": "reasoning_text", "text": thinker.thought}])
    assert (said["type"], said["content"][0]["text"]) == ("message", thinker.said)
    found = thinker.events("/v1/responses", body)
    for kind, text, index in (("reasoning_text", thinker.thought, 0), ("output_text", thinker.said, 1)):
        deltas = [one for one in found if one["type"] == f"response.{kind}.delta"]
        assert "".join(one["delta"] for one in deltas) == text and {one["output_index"] for one in deltas} == {index}
    assert [one["sequence_number"] for one in found] == list(range(len(found)))
    items = [one["type"].removeprefix("response.output_item.") for one in found if "output_item" in one["type"]]
    assert items == ["added", "done"] * 2
    assert [one["type"] for one in found[-1]["response"]["output"]] == ["reasoning", "message"]


def test_anthropic(thinker: Thinker) -> None:
    body = {"messages": HELLO, "max_tokens": 24, "temperature": 0, "thinking": {"type": "enabled", "budget_tokens": 1024}}
    thought, said = thinker.post("/v1/messages", body)["content"]
    assert thought == {"type": "thinking", "thinking": thinker.thought, "signature": ""}
    assert said == {"type": "text", "text": thinker.said}
    found = thinker.events("/v1/messages", body)
    starts = [(one["index"], one["content_block"]["type"]) for one in found if one["type"] == "content_block_start"]
    assert starts == [(0, "thinking"), (1, "text")]
    assert [one["index"] for one in found if one["type"] == "content_block_stop"] == [0, 1]
    deltas = [(one["index"], one["delta"]) for one in found if one["type"] == "content_block_delta"]
    assert "".join(delta.get("thinking", "") for _, delta in deltas) == thinker.thought
    assert "".join(delta.get("text", "") for _, delta in deltas) == thinker.said
    assert {delta["type"] for index, delta in deltas if index == 0} == {"thinking_delta", "signature_delta"}


def test_ollama(thinker: Thinker) -> None:
    chat = {**OLLAMA, "messages": HELLO, "think": True}
    message = thinker.post("/api/chat", {**chat, "stream": False})["message"]
    assert (message["thinking"], message["content"]) == (thinker.thought, thinker.said)
    lines = thinker.events("/api/chat", chat)
    assert "".join(one["message"].get("thinking", "") for one in lines) == thinker.thought
    assert "".join(one["message"]["content"] for one in lines) == thinker.said
    assert not any(one["message"].get("thinking") and one["message"]["content"] for one in lines)
    found = thinker.post("/api/generate", {**OLLAMA, "prompt": "hello", "stream": False})
    assert (found["thinking"], found["response"]) == (thinker.thought, thinker.said)
    raw = thinker.post("/api/generate", {**OLLAMA, "prompt": "hello", "raw": True, "stream": False})
    assert "thinking" not in raw


@pytest.mark.parametrize(
    ("route", "more", "end"),
    [
        ("/v1/chat/completions", {}, OPENED),
        ("/v1/chat/completions", {"reasoning_effort": "none"}, "quick"),
        ("/v1/chat/completions", {"chat_template_kwargs": {"enable_thinking": False}}, "quick"),
        ("/v1/messages", {}, "quick"),  # the API thinks only where it is asked to
        ("/v1/messages", {"thinking": {"type": "disabled"}}, "quick"),
        ("/v1/messages", {"thinking": {"type": "enabled", "budget_tokens": 1024}}, OPENED),
        ("/v1/messages", {"thinking": {"type": "adaptive"}}, OPENED),
        ("/api/chat", {}, OPENED),
        ("/api/chat", {"think": False}, "quick"),
        ("/api/chat", {"think": "high"}, OPENED),
    ],
)
def test_it_is_asked_for_in_the_words_of_each_api(thinker: Thinker, route: str, more: dict[str, Any], end: str) -> None:
    assert thinker.prompt(route, {"messages": HELLO, "max_tokens": 1, "stream": False, **more}).endswith(end)
