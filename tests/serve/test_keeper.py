"""Requests whose pages somebody keeps: taken when they are admitted, kept when they end, given up where others need them."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from llamay.errors import Closed, OutOfMemory, UsageError
from llamay.serve.contexts.pages import Pages, common
from llamay.serve.events import Done, Failed


@dataclass(eq=False)
class Keeping:
    """A keeper that goes on from one context and keeps another."""

    pages: Pages = field(default_factory=lambda: Pages(lent=True))
    source: Pages = field(default_factory=Pages)
    finals: list[Done | Failed] = field(default_factory=list)
    begun: int = 0

    def begin(self, admission: Any, tokens: Sequence[int]) -> Any:
        self.begun += 1
        return self.source.begun(admission, tokens)

    def keep(self, admission: Any, context: Any) -> None:
        self.pages.replace(admission, context)

    def ended(self, final: Done | Failed) -> None:
        self.finals.append(final)


def made(lab: Any, engine: Any, prompt: list[int], count: int = 0, **more: Any) -> Keeping:
    """A context that holds a prompt and what follows."""
    keeper = Keeping(Pages(lent=True, pinned=more.pop("pinned", False)), more.pop("source", Pages()))
    lab.answer(engine, prompt, count, keeper=keeper, **more)
    return keeper


def held(engine: Any, keeper: Keeping) -> list[int] | None:
    """The tokens it has pages for, None where they are gone."""

    def look(scheduler: Any) -> list[int] | None:
        context = keeper.pages.held(scheduler.admission)
        return None if context is None else list(context.tokens)

    return engine.call(look)


def drop(engine: Any, *keepers: Keeping) -> None:
    for keeper in keepers:
        engine.call(lambda scheduler, keeper=keeper: keeper.pages.drop())


def test_a_child_holds_the_answer_and_its_parent_stays(lab) -> None:
    engine = lab.start(lab.model())
    prompt = lab.prompt_of(1, 30)
    parent = made(lab, engine, prompt)
    before = held(engine, parent)
    assert before == prompt[:-1]
    more = [*prompt, *lab.prompt_of(2, 5)]
    child = Keeping(source=parent.pages)
    found = lab.answer(engine, more, 10, keeper=child)
    assert found.tokens() == lab.expected(more, 10)
    assert found.done.timings.cached_tokens == 29
    assert held(engine, child) == [*more, *found.tokens()][:-1]
    assert held(engine, parent) == before
    assert [final.reason for final in child.finals if isinstance(final, Done)] == ["length"]
    drop(engine, parent, child)


def test_what_differs_from_the_parent_goes_on_from_the_common_part(lab) -> None:
    engine = lab.start(lab.model())
    prompt = lab.prompt_of(1, 40)
    parent = made(lab, engine, prompt)
    other = [*prompt[:21], *lab.prompt_of(3, 20)]
    child = Keeping(source=parent.pages)
    found = lab.answer(engine, other, 6, keeper=child)
    assert found.tokens() == lab.expected(other, 6)
    assert found.done.timings.cached_tokens == 21
    assert held(engine, parent) == prompt[:-1]
    drop(engine, parent, child)


@pytest.mark.parametrize("at", [0, 9, 16, 39, 60, 69])
def test_windows_that_passed_are_computed_again(lab, at: int) -> None:
    engine = lab.start(lab.model(pages=64, window=24, span=20))
    prompt = lab.prompt_of(1, 70)
    parent = made(lab, engine, prompt)
    other = [*prompt[:at], *lab.prompt_of(3, 20)]
    child = Keeping(source=parent.pages)
    assert lab.answer(engine, other, 6, keeper=child).tokens() == lab.expected(other, 6)
    assert lab.answer(engine, prompt, 6).tokens() == lab.expected(prompt, 6)
    drop(engine, parent, child)


def test_who_waits_holds_no_page(lab) -> None:
    model = lab.model(pages=32, slots=1)
    engine = lab.start(model)
    parent = made(lab, engine, lab.prompt_of(1, 33))
    model.executor.gate = threading.Event()
    running = engine.submit(lab.request(lab.prompt_of(2, 20), 20))
    children = [Keeping(source=parent.pages) for _ in range(6)]
    prompts = [[*lab.prompt_of(1, 33), *lab.prompt_of(10 + n, 40)] for n in range(6)]
    tickets = [engine.submit(lab.request(p, 4, keeper=c)) for p, c in zip(prompts, children, strict=True)]
    model.executor.gate.set()
    assert engine.call(lambda scheduler: len(scheduler.cache.contexts)) <= 3
    lab.listen(running)
    for prompt, ticket in zip(prompts, tickets, strict=True):
        assert lab.listen(ticket).tokens() == lab.expected(prompt, 4)
    drop(engine, parent, *children)


def test_idle_contexts_give_their_pages_up_the_least_recently_used_first(lab) -> None:
    engine = lab.start(lab.model(pages=12, slots=2))
    kept = [made(lab, engine, lab.prompt_of(n, 40)) for n in range(4)]  # 3 pages each: all there are
    assert all(held(engine, one) is not None for one in kept)
    again = Keeping(source=kept[0].pages)  # a use
    assert lab.answer(engine, [*lab.prompt_of(0, 40), 5], 1, keeper=again).tokens()
    assert held(engine, kept[0]) is not None
    assert held(engine, kept[1]) is None
    assert lab.answer(engine, lab.prompt_of(9, 90), 3).tokens() == lab.expected(lab.prompt_of(9, 90), 3)
    assert held(engine, kept[2]) is None and held(engine, kept[3]) is None
    for n, one in enumerate(kept):  # their owners have the tokens
        prompt = [*lab.prompt_of(n, 40), 7]
        child = Keeping(source=one.pages)
        assert lab.answer(engine, prompt, 5, keeper=child).tokens() == lab.expected(prompt, 5)
        engine.call(lambda scheduler: scheduler.cache.check_integrity())
        drop(engine, child)
    drop(engine, again, *kept)


def test_pinned_contexts_keep_their_pages(lab) -> None:
    engine = lab.start(lab.model(pages=8, slots=2))
    kept = made(lab, engine, lab.prompt_of(1, 70), pinned=True)
    with pytest.raises(OutOfMemory, match="of 8 only 3 are free"):
        engine.submit(lab.request(lab.prompt_of(2, 70), 3)).result()
    assert held(engine, kept) == lab.prompt_of(1, 70)[:-1]
    drop(engine, kept)
    assert lab.answer(engine, lab.prompt_of(2, 70), 3).tokens() == lab.expected(lab.prompt_of(2, 70), 3)


def test_who_decodes_takes_idle_contexts_before_others_pay(lab) -> None:
    engine = lab.start(lab.model(pages=12, slots=4))
    kept = made(lab, engine, lab.prompt_of(1, 60))
    prompts = [lab.prompt_of(2, 20), lab.prompt_of(3, 20)]
    tickets = [engine.submit(lab.request(prompt, 60)) for prompt in prompts]
    for prompt, ticket in zip(prompts, tickets, strict=True):
        found = lab.listen(ticket)
        assert found.tokens() == lab.expected(prompt, 60)
        assert found.done.timings.preempted == 0
    assert held(engine, kept) is None
    drop(engine, kept)


@pytest.mark.parametrize("windows", [{}, {"window": 6, "span": 20}], ids=["full", "windowed"])
def test_many_contexts_on_a_tiny_pool_refuse_nobody(lab, windows: dict[str, int]) -> None:
    engine = lab.start(lab.model(pages=10, slots=3, **windows), chunk=16)
    kept: list[Keeping] = []
    for n in range(30):
        source = kept[n // 2].pages if kept and n % 3 else Pages()
        prompt = lab.prompt_of(n // 2 if kept and n % 3 else n, 20 + n)
        keeper = Keeping(source=source)
        assert lab.answer(engine, prompt, 5, keeper=keeper).tokens() == lab.expected(prompt, 5)
        engine.call(lambda scheduler: scheduler.cache.check_integrity())
        kept.append(keeper)
    drop(engine, *kept)


def test_a_request_that_pays_for_others_goes_on_and_is_kept_whole(lab) -> None:
    model = lab.model(pages=12, slots=4)
    engine = lab.start(model)
    model.executor.gate = threading.Event()
    older = engine.submit(lab.request(lab.prompt_of(1, 20), 150))
    keeper = Keeping()
    mine = engine.submit(lab.request(lab.prompt_of(2, 20), 100, keeper=keeper))
    model.executor.gate.set()
    assert lab.listen(older).tokens() == lab.expected(lab.prompt_of(1, 20), 150)
    found = lab.listen(mine)
    assert found.done.timings.preempted > 0
    assert found.tokens() == lab.expected(lab.prompt_of(2, 20), 100)
    assert held(engine, keeper) == [*lab.prompt_of(2, 20), *found.tokens()][:-1]
    drop(engine, keeper)


def test_a_cancelled_request_leaves_what_it_came_to(lab, halt) -> None:
    model = lab.model()
    held_back = halt(model.executor)
    engine = lab.start(model)
    keeper = Keeping()
    ticket = engine.submit(lab.request(lab.prompt_of(1, 20), 200, keeper=keeper))
    lab.until(lambda: ticket.clock.generated)
    ticket.cancel()
    held_back.go_on.set()
    found = lab.listen(ticket)
    assert found.done.reason == "cancel"
    assert keeper.finals == [found.done]
    whole = [*lab.prompt_of(1, 20), *found.tokens()]
    assert held(engine, keeper) in (whole[:-1], whole)  # the newest too, where it was fed back already
    drop(engine, keeper)


def test_the_end_is_heard_once_whatever_it_is(lab) -> None:
    model = lab.model(pages=8)
    engine = lab.start(model)
    too_long, outside, waiting = Keeping(), Keeping(), Keeping()
    with pytest.raises(Exception, match="200 tokens"):
        engine.submit(lab.request(lab.prompt_of(1, 200), 5, keeper=too_long)).result()
    with pytest.raises(UsageError, match="vocabulary ends"):
        engine.submit(lab.request([5000], 5, keeper=outside)).result()
    model.executor.gate = threading.Event()
    engine.submit(lab.request(lab.prompt_of(1, 20), 5, keeper=waiting))
    lab.close_held(engine, model.executor.gate)
    for keeper in (too_long, outside, waiting):
        assert len(keeper.finals) == 1 and isinstance(keeper.finals[0], Failed)
    assert isinstance(waiting.finals[0], Failed) and isinstance(waiting.finals[0].error, Closed)


def test_several_choices_are_refused_by_name(lab) -> None:
    with pytest.raises(UsageError, match="n is 2; a context is continued by one choice"):
        lab.request([1, 2], 3, keeper=Keeping(), choices=2)


def test_common_beginnings() -> None:
    assert common([1, 2, 3], [1, 2, 4, 5]) == 2
    assert common([1, 2], [1, 2, 4]) == 2
    assert common([], [1]) == 0
    assert common([3], [1]) == 0
