"""The curl lines of docs/contexts.md, one after the other as a shell would run them."""

import re
import shlex
from pathlib import Path
from typing import Any

import httpx

PAGE = Path(__file__).parents[2] / "docs" / "contexts.md"
BASE = "http://127.0.0.1:11435"
LINE = re.compile(r"(?:(?P<name>[A-Z]+)=\$\()?curl (?P<words>.*?)(?: \| jq -r \.(?P<field>\w+))?\)?$")
HEADER = "%header{x-llamay-context}"


def lines() -> list[str]:
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return [line for block in blocks for line in block.splitlines() if "curl " in line]


def carried_out(client: httpx.Client, words: list[str]) -> httpx.Response:
    """What curl would send."""
    values: dict[str, Any] = {}
    url = ""
    rest = iter(words)
    for word in rest:
        if word in ("-d", "-H", "-X", "-o", "-w"):
            values[word] = next(rest)
        elif word != "-s":
            assert word.startswith(BASE), word
            url = word.removeprefix(BASE)
    name, _, value = values.get("-H", "").partition(": ")
    head = {"content-type": "application/x-www-form-urlencoded", **({name: value} if name else {})}
    method = values.get("-X") or ("POST" if "-d" in values else "GET")
    return client.request(method, url, content=values.get("-d"), headers=head)


def test_the_examples_work_in_their_order(serving) -> None:
    variables: dict[str, str] = {}
    replies: list[httpx.Response] = []
    with serving().client() as client:
        for line in lines():
            found = LINE.match(line)
            assert found is not None, line
            words = re.sub(r"\$([A-Z]+)", lambda at: variables[at.group(1)], found["words"])
            reply = carried_out(client, shlex.split(words))
            assert reply.status_code in (200, 201), f"{line}: {reply.text}"
            replies.append(reply)
            if found["name"]:
                told = reply.headers["x-llamay-context"] if HEADER in words else reply.json()[found["field"]]
                variables[found["name"]] = told
    assert len(replies) >= 10
    assert set(variables) == {"ID", "NEXT", "LAST", "BACK"} and len(set(variables.values())) == 4
    assert len(replies[4].json()["data"]) == 8
    held = next(one["tokens"] for one in replies[9].json()["data"] if one["id"] == variables["BACK"])
    assert held == 20
