"""POST /v1/completions and llama.cpp's /completion: prompts of every form, echo, the arrays of logprobs, streams."""

import json
from typing import Any

import httpx
import pytest

TEXT = "The ferry leaves at seven"
GREEDY = {"prompt": TEXT, "max_tokens": 6, "temperature": 0, "ignore_eos": True}


def ask(client: httpx.Client, **body: Any) -> dict[str, Any]:
    reply = client.post("/v1/completions", json={**GREEDY, **body})
    assert reply.status_code == 200, reply.text
    return reply.json()


def streamed(client: httpx.Client, **body: Any) -> list[dict[str, Any]]:
    reply = client.post("/v1/completions", json={**GREEDY, **body, "stream": True})
    assert reply.status_code == 200, reply.text
    lines = [line.removeprefix("data: ") for line in reply.text.split("\n\n") if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    return [json.loads(line) for line in lines[:-1]]


def ids(client: httpx.Client, text: str) -> list[int]:
    return client.post("/tokenize", json={"content": text, "add_special": True}).json()["tokens"]


def test_a_whole_answer(client: httpx.Client, tiny) -> None:
    found = ask(client)
    assert (found["object"], found["model"], found["id"][:5]) == ("text_completion", tiny.model, "cmpl-")
    (choice,) = found["choices"]
    assert set(choice) == {"index", "text", "logprobs", "finish_reason"}
    assert (choice["index"], choice["logprobs"], choice["finish_reason"]) == (0, None, "length")
    assert found["usage"]["completion_tokens"] == 6
    assert found["usage"]["prompt_tokens"] == len(ids(client, TEXT))


def test_sixteen_tokens_where_no_count_is_given(client: httpx.Client) -> None:
    reply = client.post("/v1/completions", json={"prompt": TEXT, "ignore_eos": True}).json()
    assert reply["usage"]["completion_tokens"] == 16


def test_several_prompts_are_several_turns(client: httpx.Client) -> None:
    other = "Nothing is known of"
    alone = [ask(client, prompt=prompt, n=2, seed=3, temperature=1) for prompt in (TEXT, other)]
    expected = [choice["text"] for one in alone for choice in one["choices"]]
    for prompts in ([TEXT, other], [ids(client, TEXT), ids(client, other)], [TEXT, ids(client, other)]):
        found = ask(client, prompt=prompts, n=2, seed=3, temperature=1)
        assert [one["index"] for one in found["choices"]] == [0, 1, 2, 3]
        assert [one["text"] for one in found["choices"]] == expected
        assert found["usage"]["completion_tokens"] == 24
        assert found["usage"]["prompt_tokens"] == sum(one["usage"]["prompt_tokens"] for one in alone)
    assert ask(client, prompt=ids(client, TEXT))["choices"] == ask(client)["choices"]


def test_more_prompts_than_places(client: httpx.Client) -> None:
    prompts = [f"{number} is" for number in range(200)]
    found = ask(client, prompt=prompts, max_tokens=1)
    assert [one["index"] for one in found["choices"]] == list(range(200))


def test_an_echo(client: httpx.Client) -> None:
    plain = ask(client, n=2, seed=1, temperature=1)
    found = ask(client, n=2, seed=1, temperature=1, echo=True)
    assert [one["text"] for one in found["choices"]] == [TEXT + one["text"] for one in plain["choices"]]
    only = ask(client, echo=True, max_tokens=0)
    assert [(one["text"], one["finish_reason"]) for one in only["choices"]] == [(TEXT, "length")]
    assert only["usage"]["completion_tokens"] == 0


def test_arrays_of_logprobs(client: httpx.Client) -> None:
    (choice,) = ask(client, logprobs=3, temperature=1.5, seed=8)["choices"]
    told = choice["logprobs"]
    assert set(told) == {"tokens", "token_logprobs", "top_logprobs", "text_offset"}
    assert {len(values) for values in told.values()} == {6}
    assert told["text_offset"][0] == 0 and told["text_offset"] == sorted(told["text_offset"])
    assert all(len(best) == 3 for best in told["top_logprobs"])
    for token, logprob, best in zip(told["tokens"], told["token_logprobs"], told["top_logprobs"], strict=True):
        assert logprob <= max(best.values()) < 0
        assert best.get(token, logprob) == logprob


def test_an_echo_with_logprobs_tells_of_the_prompt(client: httpx.Client) -> None:
    """As evaluations read it: token ids in, one of the arrays' elements for each of them."""
    prompt = ids(client, TEXT)
    (both,) = ask(client, prompt=prompt, echo=True, logprobs=2, max_tokens=2)["choices"]
    told = both["logprobs"]
    assert {len(values) for values in told.values()} == {len(prompt) + 2}
    assert told["token_logprobs"][0] is None and told["top_logprobs"][0] is None
    assert all(logprob < 0 for logprob in told["token_logprobs"][1:])
    (alone,) = ask(client, prompt=prompt, logprobs=2, max_tokens=2)["choices"]
    assert told["token_logprobs"][len(prompt) :] == alone["logprobs"]["token_logprobs"]
    (shorter,) = ask(client, prompt=prompt[:-1], echo=True, logprobs=2, max_tokens=0)["choices"]
    assert shorter["logprobs"]["token_logprobs"] == told["token_logprobs"][: len(prompt) - 1]


@pytest.mark.parametrize("more", [{}, {"logprobs": 2}, {"echo": True}, {"echo": True, "logprobs": 1}, {"max_tokens": 0, "echo": True}])
def test_a_stream_comes_to_the_same(client: httpx.Client, more: dict[str, Any]) -> None:
    asked = {"prompt": [TEXT, "Nothing"], "n": 2, "temperature": 1.2, "seed": 2, **more}
    whole = ask(client, **asked)
    chunks = streamed(client, **asked)
    for choice in whole["choices"]:
        ours = [one["choices"][0] for one in chunks if one["choices"][0]["index"] == choice["index"]]
        assert "".join(one["text"] for one in ours) == choice["text"]
        assert [one["finish_reason"] for one in ours if one["finish_reason"]] == [choice["finish_reason"]]
        told = [one["logprobs"] for one in ours if one["logprobs"]]
        joined = {name: [value for one in told for value in one[name]] for name in told[0]} if told else None
        assert joined == choice["logprobs"]
    assert all(one["choices"] for one in chunks)


def test_usage_in_a_stream(client: httpx.Client) -> None:
    last = streamed(client, stream_options={"include_usage": True}, prompt=[TEXT, TEXT])[-1]
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 12


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"prompt": None}, "prompt is missing"),
        ({"prompt": []}, "no tokens"),
        ({"prompt": [[]]}, "no tokens"),
        ({"prompt": [True]}, "prompt[0]"),
        ({"prompt": ["a", 1]}, "prompt[1]"),
        ({"prompt": [["a"]]}, "prompt[0]"),
        ({"prompt": [1 << 40]}, "does not exist"),
        ({"prompt": [-1]}, "does not exist"),
        ({"prompt": ["a"] * 1025}, "1 to 1024"),
        ({"suffix": "end"}, "filling in the middle"),
        ({"best_of": 4}, "best_of"),
        ({"logprobs": 21}, "logprobs"),
        ({"max_tokens": -3}, "-3"),
    ],
)
def test_what_cannot_be_is_refused_by_name(client: httpx.Client, more: dict[str, Any], words: str) -> None:
    for stream in (False, True):
        reply = client.post("/v1/completions", json={**GREEDY, **more, "stream": stream})
        assert reply.status_code == 400, reply.text
        assert words in reply.json()["error"]["message"]


def test_an_error_on_the_way_ends_the_stream_with_its_name(client: httpx.Client, tiny, until) -> None:
    """The first prompt is answered when it turns out that the second does not fit."""
    size = tiny.site.models.load(tiny.site.models.default).context
    reply = client.post("/v1/completions", json={**GREEDY, "prompt": [TEXT, "sea " * size], "stream": True})
    lines = [line.removeprefix("data: ") for line in reply.text.split("\n\n") if line]
    assert json.loads(lines[-2])["error"]["code"] == "context_length_exceeded" and lines[-1] == "[DONE]"
    whole = client.post("/v1/completions", json={**GREEDY, "prompt": [TEXT, "sea " * size]})
    assert whole.status_code == 400
    until(lambda: tiny.site.inside == 0)


def test_llama_cpps_own_form(client: httpx.Client) -> None:
    asked = {"prompt": TEXT, "n_predict": 6, "temperature": 0, "ignore_eos": True}
    whole = client.post("/completion", json={**asked, "n_probs": 2}).json()
    assert whole["content"] == ask(client)["choices"][0]["text"]
    assert (whole["stop"], whole["stop_type"], whole["tokens_predicted"]) == (True, "limit", 6)
    assert whole["tokens_evaluated"] == len(ids(client, TEXT)) and len(whole["tokens"]) == 6
    assert [one["id"] for one in whole["completion_probabilities"]] == whole["tokens"]
    assert all(len(one["top_logprobs"]) == 2 for one in whole["completion_probabilities"])
    lines = client.post("/completion", json={**asked, "stream": True}).text.split("\n\n")
    pieces = [json.loads(line.removeprefix("data: ")) for line in lines if line]
    assert "".join(one["content"] for one in pieces) == whole["content"]
    assert [one["stop"] for one in pieces] == [False] * (len(pieces) - 1) + [True]
    stopped = client.post("/completion", json={**asked, "stop": [whole["content"][3:5]]}).json()
    assert (stopped["stop_type"], stopped["stopping_word"]) == ("word", whole["content"][3:5])
