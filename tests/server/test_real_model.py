"""What only a real model shows: the curl transcripts of docs/, and messages that are gone on with."""

import doctest
import re
import shlex
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs"
BASE = "http://127.0.0.1:11435"
FENCE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
NAME = "smollm2"  # as the pages call the model


def transcripts(page: str) -> list[tuple[str, str]]:
    """Each command of a page and what it prints."""
    found = []
    for block in FENCE.findall((DOCS / page).read_text(encoding="utf-8")):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            found.append((command, printed))
    return found


def printed(running: Any, command: str) -> str:
    """What curl would print."""
    _, *words = shlex.split(command)
    body = words[words.index("-d") + 1] if "-d" in words else None
    (url,) = [word for word in words if word.startswith(BASE)]
    body = None if body is None else body.replace(f'"{NAME}"', f'"{running.model}"')
    with running.client() as client:
        head = {"content-type": "application/x-www-form-urlencoded"}  # as curl says of what -d holds
        reply = client.request("GET" if body is None else "POST", url.removeprefix(BASE), content=body, headers=head)
    return reply.text.replace(running.model, NAME)


@pytest.mark.parametrize("page", ["server.md", "api-anthropic.md", "api-ollama.md"])
def test_the_transcripts_are_so(small: Any, page: str) -> None:
    found = transcripts(page)
    assert len(found) >= 4
    checker = doctest.OutputChecker()
    for command, expected in found:
        got = printed(small, command)
        got = got if got.endswith("\n") else got + "\n"
        expected = expected.replace("\n...\n", "\n...")  # lines that are left out may be none
        assert checker.check_output(expected, got, doctest.ELLIPSIS), f"$ {command}\n{got}"


def test_a_transcript_can_fail(small: Any) -> None:
    command, _ = transcripts("api-ollama.md")[0]
    assert not doctest.OutputChecker().check_output('{"version":"1"}\n', printed(small, command), doctest.ELLIPSIS)


ASKED = {"role": "user", "content": "What is the capital of France?"}
BEGUN = {"role": "assistant", "content": "The capital of France is"}


def test_a_last_message_of_the_assistant_is_continued(small: Any) -> None:
    with small.client() as client:
        body = {"messages": [ASKED, BEGUN], "max_tokens": 3, "temperature": 0}
        found = client.post("/v1/messages", json=body).json()["content"][0]["text"]
        assert found.startswith(" Paris")
        body = {"messages": [{**ASKED, "role": "USER"}, BEGUN], "stream": False, "options": {"temperature": 0, "num_predict": 3}}
        assert client.post("/api/chat", json=body).json()["message"]["content"] == found
        body = {"messages": [ASKED], "max_tokens": 7, "temperature": 0}
        whole = client.post("/v1/chat/completions", json=body).json()["choices"][0]["message"]["content"]
        assert whole.startswith(BEGUN["content"] + " Paris")
