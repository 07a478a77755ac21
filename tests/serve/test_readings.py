"""Readings: the logits of a text, each position's once, whoever else the engine has."""

import threading

import pytest

from llamay.serve.events import Logprobs, Rows
from llamay.serve.request import Reading


def test_logits_at_every_position(lab) -> None:
    model = lab.model(slots=4)
    engine = lab.start(model, chunk=16)
    text = lab.prompt_of(1, 50)
    other = engine.submit(lab.request(lab.prompt_of(2, 5), 60))
    for first in (0, 20):
        ticket = engine.submit(Reading(tuple(text), first))
        found = lab.listen(ticket)
        rows = [event for event in found.events if isinstance(event, Rows)]
        at = first
        for block in rows:
            assert block.first == at
            for row in block.logits:
                assert (row == lab.logits_of(text[: at + 1])).all()
                at += 1
        assert at == len(text)
    assert lab.listen(other).tokens() == lab.expected(lab.prompt_of(2, 5), 60)


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("first", [0, 20])
def test_lost_pages_tell_no_position_twice(lab, first: int, known: bool) -> None:
    """A reading of 60 steps, which pays in the middle for an answer that is older: it goes on where it was."""
    model = lab.model(pages=8)
    engine = lab.start(model, chunk=1)
    model.executor.gate = threading.Event()
    text, older = lab.prompt_of(1, 60), lab.prompt_of(2, 17)
    answer = engine.submit(lab.request(older, 100))
    readings = [
        engine.submit(Reading(tuple(text), first, prefix_cache=known, logprobs=logprobs)) for logprobs in (None, 0)
    ]
    model.executor.gate.set()
    rows, scored = [lab.listen(ticket) for ticket in readings]
    assert rows.done.timings.preempted > 0
    told = [event for event in rows.events if isinstance(event, Rows)]
    assert [block.first + at for block in told for at in range(len(block.logits))] == list(range(first, 60))
    for block in told:
        for at, row in enumerate(block.logits, block.first):
            assert (row == lab.logits_of(text[: at + 1])).all()
    tokens = [one.token for event in scored.events if isinstance(event, Logprobs) for one in event.tokens]
    assert tokens == text[first + 1 :]
    assert lab.listen(answer).tokens() == lab.expected(older, 100)
