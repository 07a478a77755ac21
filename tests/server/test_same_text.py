"""A stream put together is the text of the whole answer, and both are the generated text up to the first stop string.

Over random prompts, stop strings, numbers of steps a submission and sampling, in every family.
`LLAMAY_SOAK` scales the count of the soak test (1 is 500 cases a family).  Case n is always the same.
"""

import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from llamay.serve.scheduling import flights

PLAIN = 6  # cases a family
CHUNKS = 10
EACH = max(1, round(50 * float(os.environ.get("LLAMAY_SOAK", "1"))))
LETTERS = "abc XYZ\n\t.äéßЖ中文字🌊👩‍👩‍👧\u0301\u200d<|im_end|>"

Body = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """What every family can say in its own words."""

    prompt: str
    tokens: int
    seed: int
    temperature: float
    stops: tuple[str, ...] = ()


@dataclass(frozen=True)
class Family:
    """Where and how one API is asked, and where the text is."""

    path: str
    body: Callable[[Asked], Body]
    whole: Callable[[Body], str]
    piece: Callable[[Body], str]


def openai(asked: Asked) -> Body:
    return {
        "seed": asked.seed, "temperature": asked.temperature, "stop": list(asked.stops), "ignore_eos": True, "max_tokens": asked.tokens,
    }  # fmt: skip


def ollama(asked: Asked) -> Body:
    told = {"seed": asked.seed, "temperature": asked.temperature, "stop": list(asked.stops), "num_predict": asked.tokens}
    return {"options": told}


def message(asked: Asked) -> list[Body]:
    return [{"role": "user", "content": asked.prompt}]


def delta(event: Body) -> str:
    return "".join(choice["delta"].get("content") or "" for choice in event["choices"])


FAMILIES = {
    "chat": Family(
        "/v1/chat/completions",
        lambda asked: {**openai(asked), "messages": message(asked)},
        lambda reply: reply["choices"][0]["message"]["content"],
        delta,
    ),
    "completions": Family(
        "/v1/completions",
        lambda asked: {**openai(asked), "prompt": asked.prompt},
        lambda reply: reply["choices"][0]["text"],
        lambda event: "".join(choice["text"] for choice in event["choices"]),
    ),
    "responses": Family(
        "/v1/responses",
        lambda asked: {**openai(asked), "input": asked.prompt, "max_output_tokens": asked.tokens, "store": False},
        lambda reply: reply["output"][0]["content"][0]["text"],
        lambda event: event["delta"] if event["type"] == "response.output_text.delta" else "",
    ),
    "native": Family(
        "/completion",
        lambda asked: {**openai(asked), "prompt": asked.prompt, "n_predict": asked.tokens},
        lambda reply: reply["content"],
        lambda event: event["content"],
    ),
    "messages": Family(
        "/v1/messages",
        lambda asked: {
            "messages": message(asked), "max_tokens": asked.tokens, "temperature": 0, "stop_sequences": [one for one in asked.stops if one.strip()],
        },
        lambda reply: "".join(block["text"] for block in reply["content"]),
        lambda event: event["delta"]["text"] if event["type"] == "content_block_delta" else "",
    ),
    "generate": Family(
        "/api/generate",
        lambda asked: {**ollama(asked), "prompt": asked.prompt, "raw": True},
        lambda reply: reply["response"],
        lambda event: event["response"],
    ),
    "ollama chat": Family(
        "/api/chat",
        lambda asked: {**ollama(asked), "messages": message(asked)},
        lambda reply: reply["message"]["content"],
        lambda event: event["message"]["content"],
    ),
}  # fmt: skip


def streamed(family: Family, text: str) -> str:
    """The text of a stream, of events or of lines."""
    pieces = []
    for line in text.split("\n"):
        data = line.removeprefix("data: ")
        if data.startswith("{"):
            pieces.append(family.piece(json.loads(data)))
    return "".join(pieces)


def cut(text: str, stops: tuple[str, ...]) -> str:
    """Up to the first stop string that is complete; of those that end together, the longest."""
    for end in range(1, len(text) + 1):
        complete = [stop for stop in stops if stop and text[:end].endswith(stop)]
        if complete:
            return text[: end - max(map(len, complete))]
    return text


def words(chance: random.Random, most: int) -> str:
    return "".join(chance.choices(LETTERS, k=chance.randint(1, most)))


def case(name: str, index: int) -> tuple[random.Random, Asked]:
    chance = random.Random(f"{name} {index}")
    prompt = words(chance, 30)
    return chance, Asked(prompt, chance.randint(4, 30), chance.getrandbits(32), chance.choice([0, 0.7, 1.5, 3.0]))


def chosen(chance: random.Random, text: str) -> Iterator[str]:
    """Stop strings, most of them out of the text."""
    for _ in range(chance.choice([0, 1, 1, 2, 4])):
        if text and chance.random() < 0.8:
            at = chance.randrange(len(text))
            piece = text[at : at + chance.choice([1, 1, 2, 3, 8])]
            yield piece + chance.choice(["", "", "", "x"])
        else:
            yield words(chance, 3)


def check(client: httpx.Client, name: str, index: int, monkeypatch: pytest.MonkeyPatch) -> bool:
    """One case; whether a stop string was found."""
    chance, asked = case(name, index)
    family = FAMILIES[name]
    monkeypatch.setattr(flights, "MOST_STEPS", chance.choice([1, 2, 3, 8]))
    monkeypatch.setattr(flights, "BURST", 60.0)

    def post(asked: Asked, **more: Any) -> httpx.Response:
        reply = client.post(family.path, json={**family.body(asked), **more})
        assert reply.status_code == 200, f"{name} {index}: {reply.text}"
        return reply

    text = family.whole(post(asked, stream=False).json())
    stops = tuple([one for one in chosen(chance, text) if name != "messages" or one.strip()])
    asked = Asked(asked.prompt, asked.tokens, asked.seed, asked.temperature, stops)
    whole = family.whole(post(asked, stream=False).json())
    assert whole == cut(text, stops), f"{name} {index}"
    assert streamed(family, post(asked, stream=True).text) == whole, f"{name} {index}"
    return whole != text


@pytest.mark.parametrize("name", FAMILIES)
def test_a_stream_is_the_whole(client: httpx.Client, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [check(client, name, index, monkeypatch) for index in range(PLAIN)]
    assert any(found) and not all(found)


@pytest.mark.soak
@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("name", FAMILIES)
def test_many_streams_are_the_whole(client: httpx.Client, name: str, chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    first = PLAIN + chunk * EACH
    for index in range(first, first + EACH):
        check(client, name, index, monkeypatch)
