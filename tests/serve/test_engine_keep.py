"""Engine.keep: a model stays loaded for a time of its own."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from llamay.serve.engine import Bounds, Engine


def until(true: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture
def made(lab) -> Any:
    """Models by name as an engine opens them."""
    found: dict[str, list[Any]] = {}

    def open(name: str) -> Any:
        model = lab.model()
        found.setdefault(name, []).append(model)
        return model

    return found, open


def test_it_goes_at_once_when_idle(lab, made) -> None:
    found, open = made
    with Engine(open, Bounds(keep_alive=None)) as engine:
        lab.answer(engine, [1], 2, model="a")
        assert [one.name for one in engine.stats().models] == ["a"]
        engine.keep("a", 0.0)
        until(lambda: found["a"][0].closed and engine.stats().models == ())
        lab.answer(engine, [1], 2, model="a")  # and comes again, to stay as others do
        assert len(found["a"]) == 2
        until(lambda: [one.expires for one in engine.stats().models] == [None])


def test_it_goes_after_its_requests(lab, made) -> None:
    found, open = made
    with Engine(open, Bounds(keep_alive=None)) as engine:
        ticket = engine.submit(lab.request([1], 40, model="a"))
        engine.keep("a", 0.0)
        assert len(lab.listen(ticket).tokens()) == 40
        until(lambda: found["a"][0].closed)


def test_it_goes_whoever_has_a_context(lab, made) -> None:
    found, open = made
    with Engine(open, Bounds(keep_alive=0.01)) as engine:
        engine.hold(1, "a")
        lab.answer(engine, [1], 2, model="a")
        time.sleep(0.1)
        assert not found["a"][0].closed
        engine.keep("a", 0.0)
        until(lambda: found["a"][0].closed)
        engine.hold(-1, "a")


def test_a_time_of_its_own_is_told_and_kept(lab, made) -> None:
    found, open = made
    with Engine(open, Bounds(keep_alive=None, loaded=2)) as engine:
        lab.answer(engine, [1], 2, model="a")
        lab.answer(engine, [1], 2, model="b")
        engine.keep("a", 500.0)
        expires = {one.name: one.expires for one in engine.stats().models}
        assert expires["b"] is None and 400.0 < expires["a"] <= 500.0
        engine.keep("a", 0.05)
        until(lambda: found["a"][0].closed)
        assert not found["b"][0].closed


def test_a_name_that_means_nothing_is_forgotten(lab, made) -> None:
    found, open = made
    with Engine(open) as engine:
        engine.keep("nothing", 0.0)
        engine.stats()
        assert found == {} and engine._residents == {}
