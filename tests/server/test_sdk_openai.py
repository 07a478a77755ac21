"""OpenAI's own SDK and LangChain's client on a real socket; what a real model says is in test_real_model.py."""

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

ASKED: Any = [{"role": "user", "content": "What is the capital of France?"}]
HOW: Any = {"model": "default", "temperature": 0, "max_tokens": 12}
ON: Any = {"ignore_eos": True}


class Counted:
    """A client of a server, and the paths it was asked for."""

    def __init__(self, openai: Any, url: str, model: str) -> None:
        self.paths: list[str] = []
        self.model = model
        http = httpx.Client(event_hooks={"request": [lambda request: self.paths.append(request.url.path)]}, trust_env=False, verify=False)
        self.openai = openai.OpenAI(base_url=f"{url}/v1", api_key="any", http_client=http)

    def chat(self, **more: Any) -> Any:
        return self.openai.chat.completions.create(messages=ASKED, **{**HOW, "model": self.model, **more})


@pytest.fixture
def sdk(openai: Any, tiny) -> Iterator[Counted]:
    made = Counted(openai, tiny.url, tiny.model)
    yield made
    made.openai.close()


def test_an_answer(sdk: Counted) -> None:
    found = sdk.chat()
    assert found.choices[0].message.content
    assert found.usage.total_tokens == found.usage.prompt_tokens + found.usage.completion_tokens
    assert found.usage.prompt_tokens_details.cached_tokens >= 0 and found.usage.llamay_prefill_ms > 0
    assert found.system_fingerprint
    again = sdk.chat()
    assert again.choices[0].message.content == found.choices[0].message.content
    assert again.usage.prompt_tokens_details.cached_tokens >= 16


def test_a_stream(sdk: Counted) -> None:
    whole = sdk.chat()
    chunks = list(sdk.chat(stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens
    assert [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices][-1] == whole.choices[0].finish_reason


def test_the_helper_that_puts_streams_together(sdk: Counted) -> None:
    stop = sdk.chat().choices[0].message.content[6:8]  # the helper takes no answer that was cut for its length
    with sdk.openai.chat.completions.stream(
        model=sdk.model, messages=ASKED, temperature=0, max_tokens=12, n=2, logprobs=True, top_logprobs=2, stop=[stop]
    ) as stream:
        kinds = {event.type for event in stream}
        found = stream.get_final_completion()
    whole = sdk.chat(n=2, logprobs=True, top_logprobs=2, stop=[stop])
    assert "content.delta" in kinds and "logprobs.content.delta" in kinds
    assert [one.message.content for one in found.choices] == [one.message.content for one in whole.choices]
    for ours, theirs in zip(found.choices, whole.choices, strict=True):
        assert [entry.logprob for entry in ours.logprobs.content] == [entry.logprob for entry in theirs.logprobs.content]


def test_choices_and_seeds(sdk: Counted) -> None:
    found = sdk.chat(n=3, temperature=1.2, seed=5)
    assert [one.index for one in found.choices] == [0, 1, 2]
    second = sdk.chat(temperature=1.2, seed=6)
    assert second.choices[0].message.content == found.choices[1].message.content


def test_logprobs(sdk: Counted) -> None:
    entries = sdk.chat(logprobs=True, top_logprobs=4).choices[0].logprobs.content
    for entry in entries:
        assert entry.logprob == entry.top_logprobs[0].logprob, "the greedy token is the likeliest"
        assert entry.token == entry.top_logprobs[0].token and len(entry.top_logprobs) == 4


def test_stop(sdk: Counted) -> None:
    text = sdk.chat().choices[0].message.content
    stop = text[4:6]
    found = sdk.chat(stop=[stop])
    assert found.choices[0].message.content == text[: text.index(stop)]
    assert found.choices[0].finish_reason == "stop"


def test_errors_have_their_class_and_are_not_tried_again(sdk: Counted, openai: Any) -> None:
    with pytest.raises(openai.BadRequestError) as found:
        sdk.chat(tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}])
    assert "tools" in found.value.message and found.value.type == "invalid_request_error"
    with pytest.raises(openai.NotFoundError) as missing:
        sdk.chat(model="no-such-model")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as long:
        sdk.openai.chat.completions.create(model=sdk.model, messages=[{"role": "user", "content": "sea " * 300}])
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.InternalServerError) as unsupported:
        sdk.openai.embeddings.create(model=sdk.model, input="a")
    assert unsupported.value.status_code == 501 and unsupported.value.type == "not_supported_error"
    assert len(sdk.paths) == 4, f"something was tried again: {sdk.paths}"


def test_completions(sdk: Counted) -> None:
    found = sdk.openai.completions.create(
        model=sdk.model, prompt=["The capital of France is", "One, two,"], temperature=0, max_tokens=5, logprobs=2, extra_body=ON
    )
    assert found.choices[0].text and found.choices[1].text and found.choices[0].text != found.choices[1].text
    assert len(found.choices[0].logprobs.tokens) == 5
    chunks = sdk.openai.completions.create(
        model=sdk.model, prompt="The capital of France is", temperature=0, max_tokens=5, stream=True, extra_body=ON
    )
    assert "".join(chunk.choices[0].text for chunk in chunks) == found.choices[0].text


def test_responses(sdk: Counted, openai: Any) -> None:
    asked: Any = {"model": sdk.model, "temperature": 0, "max_output_tokens": 24}
    first = sdk.openai.responses.create(input=ASKED[0]["content"], instructions="Answer briefly.", **asked)
    assert first.output_text and first.usage.output_tokens > 0
    assert sdk.openai.responses.retrieve(first.id).output_text == first.output_text
    second = sdk.openai.responses.create(input="And of Italy?", previous_response_id=first.id, **asked)
    assert second.previous_response_id == first.id and second.output_text
    assert second.usage.input_tokens_details.cached_tokens > 0
    counted = sdk.openai.responses.input_tokens.count(model=sdk.model, input="hello")
    assert counted.input_tokens > 0
    sdk.openai.responses.delete(first.id)
    with pytest.raises(openai.NotFoundError):
        sdk.openai.responses.retrieve(first.id)


def test_the_helper_of_responses(sdk: Counted) -> None:
    asked: Any = {"model": sdk.model, "temperature": 0, "max_output_tokens": 24, "input": ASKED[0]["content"]}
    with sdk.openai.responses.stream(**asked) as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
    with sdk.openai.responses.stream(**asked, include=["message.output_text.logprobs"]) as stream:
        found = stream.get_final_response() if [event.type for event in stream][-1] == "response.completed" else None
    whole = sdk.openai.responses.create(**asked)
    assert "".join(deltas) == whole.output_text
    assert found is None or found.output_text == whole.output_text


def test_models(sdk: Counted) -> None:
    found = [one.id for one in sdk.openai.models.list()]
    assert sdk.model in found
    assert sdk.openai.models.retrieve(sdk.model).owned_by == "llamay"


def test_langchain(tiny, openai: Any) -> None:
    from langchain_openai import ChatOpenAI

    http = httpx.Client(trust_env=False, verify=False)
    llm = ChatOpenAI(
        base_url=f"{tiny.url}/v1", api_key="any", model=tiny.model, temperature=0, max_tokens=12, http_client=http,
        stream_usage=True,
    )  # fmt: skip
    found = llm.invoke(ASKED[0]["content"])
    assert found.content and found.usage_metadata["output_tokens"] > 0
    chunks = list(llm.stream(ASKED[0]["content"]))
    assert "".join(chunk.content for chunk in chunks) == found.content
    assert sum((chunk.usage_metadata or {}).get("output_tokens", 0) for chunk in chunks) == found.usage_metadata["output_tokens"]
    scored = llm.bind(logprobs=True, top_logprobs=2).invoke(ASKED[0]["content"])
    assert len(scored.response_metadata["logprobs"]["content"][0]["top_logprobs"]) == 2
    with pytest.raises(openai.BadRequestError, match="response_format"):
        llm.bind(response_format={"type": "json_object"}).invoke(ASKED[0]["content"])
