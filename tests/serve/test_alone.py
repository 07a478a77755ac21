"""One request at a time without an engine, over the hash."""

import pytest

from llamay.errors import ContextFull, DeviceLost, UsageError
from llamay.serve.events import Done, Ended
from llamay.serve.scheduling.alone import Alone


@pytest.mark.parametrize("chunk", [1, 16, 200])
def test_answers_and_what_is_kept(lab, chunk: int) -> None:
    executor = lab.model().executor
    alone = Alone(executor, 512, chunk)
    prompt = lab.prompt_of(1, 100)
    first = alone.run(lab.request(prompt, 20))
    again = alone.run(lab.request(prompt, 20))
    alone.forget()
    fresh = alone.run(lab.request(prompt, 20))
    assert [one.choices[0].tokens for one in (first, again, fresh)] == [tuple(lab.expected(prompt, 20))] * 3
    assert [one.timings.cached_tokens for one in (first, again, fresh)] == [0, 96, 0]
    alone.cache.check_integrity()
    assert alone.cache.contexts == {} and not executor.queue


def test_who_stops_early_leaves_it_usable(lab) -> None:
    executor = lab.model().executor
    alone = Alone(executor, 512)
    events = alone.events(lab.request([1, 2], 3, choices=2))
    assert isinstance(next(events), Ended)
    events.close()
    assert alone.cache.contexts == {} and not executor.queue
    assert [type(event) for event in alone.events(lab.request([1, 2], 3))] == [Ended, Done]


def test_what_is_wrong_is_raised(lab) -> None:
    alone = Alone(lab.model(pages=2).executor, 32)
    with pytest.raises(ContextFull, match="40 tokens and the context 32; -c 45"):
        alone.run(lab.request(lab.prompt_of(1, 40), 5))
    with pytest.raises(UsageError, match="97"):
        alone.run(lab.request([97], 5))
    assert alone.run(lab.request([1], 2)).choices[0].tokens == tuple(lab.expected([1], 2))
    with pytest.raises(ContextFull, match="1 to 32"):
        Alone(alone.executor, 33)
    alone.executor.fault = DeviceLost("gone")
    with pytest.raises(DeviceLost):
        alone.run(lab.request([1], 2))
