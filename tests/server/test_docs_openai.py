"""Every curl line of docs/api-openai.md and of the README is answered, as the text beside it says."""

import re
import shlex
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "docs" / "api-openai.md", ROOT / "README.md")
BASE = "http://127.0.0.1:11435"


def lines() -> list[str]:
    text = "".join(page.read_text(encoding="utf-8") for page in PAGES)
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    joined = "".join(blocks).replace("\\\n", " ")
    return [line for line in joined.splitlines() if line.startswith("curl ")]


def carried_out(client: httpx.Client, line: str) -> httpx.Response:
    """What the line would send: curl posts where it has data, as a form unless told otherwise."""
    _, *words = shlex.split(line)
    url = next(word for word in words if word.startswith(BASE))
    data = words[words.index("-d") + 1] if "-d" in words else None
    assert {word for word in words if word.startswith("-")} <= {"-s", "-N", "-sN", "-d"}
    if data is None:
        return client.get(url.removeprefix(BASE))
    head = {"content-type": "application/x-www-form-urlencoded"}
    return client.post(url.removeprefix(BASE), content=data, headers=head)


def test_there_are_examples() -> None:
    assert len(lines()) >= 13


@pytest.mark.parametrize("line", lines())
def test_an_example_works(client: httpx.Client, line: str) -> None:
    reply = carried_out(client, line)
    assert reply.status_code == 200, reply.text
    streamed = '"stream": true' in line
    assert reply.headers["content-type"].startswith("text/event-stream" if streamed else "application/json")
    assert reply.text.endswith("\n\n") if streamed else reply.json()
    assert "error" not in reply.text or '"error":null' in reply.text
