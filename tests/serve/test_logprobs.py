"""Logprobs are the model's own, whatever the sampling, the batch, the device or a preemption does, and line up with the text."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from llamay import Llama
from llamay.errors import UsageError
from llamay.serve.events import Logprobs, Text
from llamay.serve.logprobs import Alignment, Scored, score
from llamay.serve.request import Reading, Request

DATA = Path(__file__).parents[1] / "data" / "models"
TEXT = "The ferry leaves at seven, whatever the weather does."


def told(answer, index: int = 0) -> list[Scored]:
    return [one for event in answer.events if isinstance(event, Logprobs) and event.index == index for one in event.tokens]


def by_hand(row, token: int) -> float:
    row = np.asarray(row, np.float64)
    return float(row[token] - row.max() - np.log(np.exp(row - row.max()).sum()))


def check(scored: list[Scored], rows, count: int) -> None:
    """Each against the row of logits it was chosen from."""
    for one, row in zip(scored, rows, strict=True):
        assert one.logprob == pytest.approx(by_hand(row, one.token), abs=1e-9)
        best = sorted(range(len(row)), key=lambda id: (-row[id], id))[:count]
        assert [other.token for other in one.likeliest] == best
        assert [other.logprob for other in one.likeliest] == pytest.approx([by_hand(row, id) for id in best], abs=1e-9)


def test_equal_logits_are_told_by_id() -> None:
    row = np.array([1, 3, 3, 0, 3], np.float32)
    assert [one.token for one in score(row, 0, 2).likeliest] == [1, 2]
    assert [one.token for one in score(row, 0, 9).likeliest] == [1, 2, 4, 0, 3]
    assert score(row, 0, 0).likeliest == ()


@pytest.mark.parametrize("count", [-1, 21])
def test_how_many_can_be_told(count: int) -> None:
    with pytest.raises(UsageError, match="0 to 20"):
        Request((1,), logprobs=count)
    with pytest.raises(UsageError, match="0 to 20"):
        Reading((1,), logprobs=count)


def test_a_token_is_told_with_the_text_it_begins() -> None:
    """Stop string `SST`: the third token takes back a part of what the second began."""
    line, made = Alignment(), [Scored(id, 0.0) for id in range(4)]
    line.push(made[0], 0)
    line.certain += 1  # `aS` was pushed, and S is held back
    assert line.due() == (made[0],)
    line.push(made[1], 1)  # `S`, held back too
    line.push(made[2], 2)  # `S`: the first S is certain now, which the first token began
    line.certain += 1
    assert line.due() == ()
    line.certain += 1
    assert line.due() == (made[1],)
    assert line.rest() == (made[2],)


@pytest.mark.parametrize("window", [0, 20])
def test_every_token_of_a_batch(lab, window: int) -> None:
    """Several that want them and one that does not, of different lengths, through windows that pass."""
    model = lab.model(96, context=256, window=64 if window else 0, span=window)
    engine = lab.start(model, chunk=16)
    prompts = [lab.prompt_of(number, length) for number, length in ((1, 5), (2, 47), (3, 16), (4, 33))]
    wanted = [3, None, 0, 5]
    asked = [lab.request(prompt, 40, logprobs=count) for prompt, count in zip(prompts, wanted, strict=True)]
    answers = [lab.listen(ticket) for ticket in [engine.submit(one) for one in asked]]
    for prompt, count, answer in zip(prompts, wanted, answers, strict=True):
        tokens = answer.tokens()
        assert tokens == lab.expected(prompt, 40)
        if count is None:
            assert told(answer) == []
            continue
        assert [one.token for one in told(answer)] == tokens
        check(told(answer), [lab.logits_of([*prompt, *tokens[:at]]) for at in range(40)], count)


def test_choices_and_preemption(lab) -> None:
    model = lab.model(9, context=128)
    model.executor.gate = threading.Event()
    engine = lab.start(model, chunk=16)
    prompts = [lab.prompt_of(number, 30) for number in range(3)]
    tickets = [engine.submit(lab.request(prompt, 30, logprobs=2, choices=2)) for prompt in prompts]
    model.executor.gate.set()
    answers = [lab.listen(ticket) for ticket in tickets]
    assert sum(answer.done.timings.preempted for answer in answers) > 0
    for prompt, answer in zip(prompts, answers, strict=True):
        for index in range(2):
            tokens = answer.tokens(index)
            assert [one.token for one in told(answer, index)] == tokens
            check(told(answer, index), [lab.logits_of([*prompt, *tokens[:at]]) for at in range(30)], 2)


def test_who_asks_for_nothing_is_not_computed_twice(lab) -> None:
    model = lab.model()
    engine = lab.start(model)
    lab.answer(engine, lab.prompt_of(1, 20), 20)
    assert all(entry[0] != "forward" for entry in model.executor.log)
    lab.answer(engine, lab.prompt_of(2, 20), 20, logprobs=1)
    assert any(entry[0] == "forward" for entry in model.executor.log)


def test_an_end_token_and_a_stop_string_are_not_told(lab) -> None:
    model = lab.model()
    engine = lab.start(model)
    prompt = lab.prompt_of(9, 10)
    tokens = lab.expected(prompt, 30)
    ended = lab.answer(engine, prompt, 30, logprobs=0, ends=frozenset([tokens[12]]))
    known = tokens.index(tokens[12])
    assert ended.tokens() == tokens[: known + 1]
    assert [one.token for one in told(ended)] == tokens[:known]
    text = lab.letters(tokens)
    stopped = lab.answer(engine, prompt, 30, logprobs=0, stops=(text[8:9],))
    found = "".join(event.text for event in stopped.events if isinstance(event, Text))
    assert found == text[: text.index(text[8:9])]
    assert [one.token for one in told(stopped)] == tokens[: len(found)]


@pytest.mark.parametrize("first", [0, 17])
def test_a_reading(lab, first: int) -> None:
    engine = lab.start(lab.model(), chunk=16)
    tokens = lab.prompt_of(5, 50)
    answer = lab.listen(engine.submit(Reading(tuple(tokens), first, logprobs=2)))
    assert [one.token for one in told(answer)] == tokens[first + 1 :]
    check(told(answer), [lab.logits_of(tokens[:at]) for at in range(first + 1, 50)], 2)


@pytest.fixture(params=["llama-gqa.f16", "gemma3.f16"])
def path(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    return DATA / f"{request.param}.gguf"


def against_the_logits(llama: Llama) -> None:
    """Lively sampling, which logprobs must not show; and each alone and with others."""
    how = {"temperature": 1.3, "repeat_penalty": 1.4, "logit_bias": {7: 3.0}, "max_tokens": 40, "seed": 5, "ignore_end": True}
    prompt = llama.tokenizer.encode(TEXT)
    alone = llama.ask(tuple(prompt), {**how, "logprobs": 4}).completion.choices[0]
    plain = llama.ask(tuple(prompt), how).completion.choices[0]
    assert alone.tokens == plain.tokens and alone.text == plain.text and plain.logprobs == ()
    assert [one.token for one in alone.logprobs] == list(alone.tokens)
    context = llama.context(tokens=[*prompt, *alone.tokens])
    rows = context.logits()[len(prompt) - 1 : -1]
    context.close()
    assert list(alone.logprobs) == [score(row, token, 4) for row, token in zip(rows, alone.tokens, strict=True)]
    both = llama.ask(tuple(prompt), {**how, "logprobs": 4, "n": 3}).completion.choices
    assert both[0].logprobs == alone.logprobs and both[1].logprobs != alone.logprobs


def test_they_are_those_of_the_logits_in_numpy(path: Path) -> None:
    with Llama(path, device="numpy") as llama:
        against_the_logits(llama)


def test_they_are_those_of_the_logits_in_wgsl(adapter, path: Path) -> None:
    with Llama(path, device="webgpu") as llama:
        against_the_logits(llama)


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Llama]:
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    with Llama(DATA / "llama-gqa.f16.gguf", device="numpy") as made:
        yield made


def test_bytes_of_the_told_tokens_are_the_text(plain: Llama) -> None:
    for seed in range(6):
        prompt = plain.tokenizer.encode(TEXT)
        options = {"max_tokens": 40, "seed": seed, "temperature": 2.0, "top_k": 0, "logprobs": 0, "ignore_end": True}
        found = plain.ask(tuple(prompt), options).completion.choices[0]
        raw = b"".join(plain.tokenizer.token_bytes(one.token, special=False) for one in found.logprobs)
        assert raw.decode("utf-8", "replace") == found.text


