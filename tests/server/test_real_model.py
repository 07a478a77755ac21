"""What only a real model shows: the curl transcripts of docs/, messages that are gone on with, one answer for all clients."""

import doctest
import json
import os
import re
import shlex
import subprocess
import sys
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


CLIENTS = """
import json, sys
url, model, asked = sys.argv[1:]
messages, found = [{"role": "user", "content": asked}], {}

from openai import OpenAI
ask = OpenAI(base_url=f"{url}/v1", api_key="any").chat.completions.create
how = dict(model=model, messages=messages, max_tokens=8, temperature=0)
found["openai"] = [ask(**how).choices[0].message.content, [chunk.choices[0].delta.content or "" for chunk in ask(**how, stream=True)]]

from anthropic import Anthropic
told = Anthropic(base_url=url, api_key="any").messages
how = dict(model=model, messages=messages, max_tokens=8, extra_body={"temperature": 0})
with told.stream(**how) as stream:
    found["anthropic"] = [told.create(**how).content[0].text, list(stream.text_stream)]

from ollama import Client
ask = Client(url).chat
how = dict(model=model, messages=messages, options={"num_predict": 8, "temperature": 0})
found["ollama"] = [ask(**how).message.content, [part.message.content for part in ask(**how, stream=True)]]

from langchain_anthropic import ChatAnthropic
from langchain_ollama import ChatOllama
from langchain_openai import ChatOpenAI
for name, chat in {
    "langchain-openai": ChatOpenAI(model=model, base_url=f"{url}/v1", api_key="any", max_tokens=8, temperature=0),
    "langchain-anthropic": ChatAnthropic(model=model, base_url=url, api_key="any", max_tokens=8, temperature=0),
    "langchain-ollama": ChatOllama(model=model, base_url=url, num_predict=8, temperature=0),
}.items():
    found[name] = [chat.invoke(asked).text, [part.text for part in chat.stream(asked)]]

import litellm
for provider, base in (("openai", f"{url}/v1"), ("anthropic", url), ("ollama_chat", url)):
    how = dict(model=f"{provider}/{model}", api_base=base, api_key="any", messages=messages, max_tokens=8, temperature=0)
    parts = [chunk.choices[0].delta.content or "" for chunk in litellm.completion(**how, stream=True)]
    found[f"litellm {provider}"] = [litellm.completion(**how).choices[0].message.content, parts]
print(json.dumps(found))
"""


def test_every_client_is_given_the_same_answer(small: Any) -> None:
    """The official SDKs, LangChain's and LiteLLM, whole and streamed; in a process of its own, for imports leave threads behind."""
    environment = {**os.environ, "LITELLM_LOCAL_MODEL_COST_MAP": "True", "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1"}
    words = [sys.executable, "-c", CLIENTS, small.url, small.model, ASKED["content"]]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=240, env=environment)
    assert ran.returncode == 0, ran.stderr
    found = json.loads(ran.stdout.splitlines()[-1])
    assert len(found) == 9
    for client, (whole, parts) in found.items():
        assert whole.startswith(BEGUN["content"] + " Paris"), client
        assert len([part for part in parts if part]) > 2 and "".join(parts) == whole, client
