"""The official SDK of Anthropic and langchain-anthropic on a real socket; what a real model says is in test_real_model.py."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France? Answer in one sentence."}]
GREEDY: dict[str, Any] = {"temperature": 0}


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> None:
    """No proxy, and no key of this machine's."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)


@pytest.fixture
def sent() -> list[str]:
    """The paths of all requests that were made, retries included."""
    return []


@pytest.fixture
def sdk(anthropic: Any, sent: list[str]) -> Iterator[Callable[..., Any]]:
    """Makes a client of a running server."""
    made = []

    def make(running: Any) -> Any:
        def note(request: httpx.Request) -> None:
            sent.append(request.url.path)

        plain = anthropic.DefaultHttpxClient(event_hooks={"request": [note]}, verify=False)
        made.append(anthropic.Anthropic(base_url=running.url, api_key="any", http_client=plain))
        return made[-1]

    yield make
    for client in made:
        client.close()


def test_a_message(tiny: Any, anthropic: Any, sdk: Any) -> None:
    found = sdk(tiny).messages.create(
        model=tiny.model, max_tokens=24, messages=QUESTION, system="You are a helpful assistant.", extra_body=GREEDY
    )
    assert isinstance(found.content[0], anthropic.types.TextBlock) and found.content[0].text
    assert found.stop_reason in ("end_turn", "max_tokens") and found.usage.output_tokens > 3
    assert found._request_id


def test_a_stream_gives_the_same_message(tiny: Any, sdk: Any) -> None:
    asked = {"model": tiny.model, "max_tokens": 24, "messages": QUESTION, "extra_body": GREEDY}
    client = sdk(tiny)
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        kinds, text = [], ""
        for event in stream:
            kinds.append(event.type)
            text += event.text if event.type == "text" else ""
        final = stream.get_final_message()
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
    assert text == final.content[0].text == whole.content[0].text
    assert final.stop_reason == whole.stop_reason and final.usage.output_tokens == whole.usage.output_tokens
    total = final.usage.input_tokens + (final.usage.cache_read_input_tokens or 0)
    assert total == client.messages.count_tokens(model=tiny.model, messages=QUESTION).input_tokens


def test_a_stop_sequence(tiny: Any, sdk: Any) -> None:
    asked = {"model": tiny.model, "max_tokens": 40, "messages": QUESTION, "extra_body": GREEDY}
    text = sdk(tiny).messages.create(**asked).content[0].text
    stop = text[4:6]
    found = sdk(tiny).messages.create(**asked, stop_sequences=[stop])
    assert found.stop_reason == "stop_sequence" and found.stop_sequence == stop
    assert found.content[0].text == text[: text.index(stop)]


def test_errors_are_the_sdks_own_and_provoke_no_retry(tiny: Any, anthropic: Any, sdk: Any, sent: list[str]) -> None:
    client = sdk(tiny)
    asked = {"model": tiny.model, "max_tokens": 4, "messages": QUESTION}
    with pytest.raises(anthropic.NotFoundError, match="no-such-model"):
        client.messages.create(**{**asked, "model": "no-such-model"})
    with pytest.raises(anthropic.BadRequestError, match="tools"):
        client.messages.create(**asked, tools=[{"name": "f", "input_schema": {"type": "object"}}])
    for stream in (False, True):
        with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > \d+ maximum"):
            client.messages.create(**{**asked, "messages": [{"role": "user", "content": "word " * 300}]}, stream=stream)
    assert len(sent) == 4, "a retry would be one more"


def test_an_error_in_the_middle_of_a_stream_is_raised(tiny: Any, anthropic: Any, sdk: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from llamay.errors import DeviceLost
    from llamay.server.turn import Turn

    whole = Turn.__iter__

    def failing(self: Turn) -> Any:
        for number, event in enumerate(whole(self)):
            if number == 1:
                raise DeviceLost("the device went away")
            yield event

    monkeypatch.setattr(Turn, "__iter__", failing)
    with pytest.raises(anthropic.APIStatusError, match="the device went away"):
        for _ in sdk(tiny).messages.create(model=tiny.model, max_tokens=8, messages=QUESTION, stream=True):
            pass


def test_models_are_listed(tiny: Any, sdk: Any) -> None:
    assert tiny.model in [one.id for one in sdk(tiny).models.list()]


def test_langchain(tiny: Any) -> None:
    from langchain_anthropic import ChatAnthropic

    chat = ChatAnthropic(model=tiny.model, base_url=tiny.url, api_key="any", max_tokens=24, temperature=0)  # type: ignore[call-arg, arg-type]
    whole = chat.invoke([("system", "You are a helpful assistant."), ("human", QUESTION[0]["content"])])
    assert whole.content
    assert whole.usage_metadata is not None and whole.usage_metadata["output_tokens"] > 3
    pieces = list(chat.stream([("system", "You are a helpful assistant."), ("human", QUESTION[0]["content"])]))
    assert len(pieces) > 2
    assert "".join(piece.content if isinstance(piece.content, str) else "".join(str(part.get("text", "")) for part in piece.content if isinstance(part, dict)) for piece in pieces) == whole.content
