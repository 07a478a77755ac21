"""The engine over a hash of what each row sees: whoever else asks, the answer is the same, and there is just one."""

import threading
import time

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llamay.errors import Closed, ContextFull, LlamayError, QueueFull, UsageError
from llamay.sample import Sampling
from llamay.serve.events import Ended, Text
from llamay.serve.request import Reading, Request


@pytest.mark.parametrize("chunk", [1, 7, 16, 128])
@pytest.mark.parametrize("length", [1, 15, 16, 17, 40])
def test_one_request_alone(lab, chunk: int, length: int) -> None:
    engine = lab.start(lab.model(), chunk=chunk)
    prompt = lab.prompt_of(1, length)
    found = lab.answer(engine, prompt, 30)
    assert found.tokens() == lab.expected(prompt, 30)
    assert found.text() == lab.letters(lab.expected(prompt, 30))
    times = found.done.timings
    assert (times.prompt_tokens, times.cached_tokens, times.generated_tokens) == (length, 0, 30)
    assert found.done.reason == "length"


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_company_changes_nothing(lab, data: st.DataObject) -> None:
    """Many requests, joining when they like, on any budget, with and without windows, and any bounds."""
    windowed = data.draw(st.booleans())
    span = data.draw(st.integers(1, 40)) if windowed else 0
    pages = data.draw(st.integers(10, 40))
    model = lab.model(pages, window=pages if windowed else 0, span=span, slots=data.draw(st.integers(1, 6)))
    engine = lab.start(model, chunk=data.draw(st.integers(1, 40)))
    stems = [lab.prompt_of(number, 60) for number in range(2)]
    asked = []
    for number in range(data.draw(st.integers(1, 12))):
        stem = stems[data.draw(st.integers(0, 1))][: data.draw(st.integers(1, 60))]
        prompt = [*stem, *lab.prompt_of(100 + number, data.draw(st.integers(0, 10)))]
        sampling = Sampling(temperature=0.0, seed=number, presence_penalty=data.draw(st.sampled_from([0.0, 1.0])))
        count = data.draw(st.integers(1, 60))
        choices = data.draw(st.sampled_from([1, 1, 1, 3]))
        made = lab.request(
            prompt, count, sampling=sampling, choices=choices, client=str(number % 3), prefix_cache=data.draw(st.booleans())
        )
        asked.append((made, engine.submit(made)))
        if data.draw(st.booleans()):
            time.sleep(0.0005)
    for made, ticket in asked:
        found = lab.listen(ticket)
        for index in range(made.choices):
            how = made.sampling_of(index)
            want = lab.expected(made.tokens, made.limits.tokens, how.seed, penalises=how.penalises)
            want = want[: model.context - len(made.tokens)]
            assert found.tokens(index) == want
            assert found.text(index) == lab.letters(want)
        assert len(found.done.choices) == made.choices
    lab.settle(engine)


def test_batched_decode_is_one_step_for_all(lab) -> None:
    model = lab.model(slots=8)
    model.executor.gate = threading.Event()
    engine = lab.start(model)
    tickets = [engine.submit(lab.request(lab.prompt_of(n, 5), 20)) for n in range(8)]
    model.executor.gate.set()
    for n, ticket in enumerate(tickets):
        assert lab.listen(ticket).tokens() == lab.expected(lab.prompt_of(n, 5), 20)
    outputs = [entry[3] for entry in model.executor.log if entry[0] == "submit" and entry[1]]
    assert max(outputs) == 8
    steps = sum(entry[2] for entry in model.executor.log if entry[0] == "submit")
    assert steps < 40  # 160 tokens, 8 a step


def test_nothing_is_submitted_ahead_of_an_executor_that_computes_at_once(lab) -> None:
    model = lab.model()
    model.executor.ahead = 0
    engine = lab.start(model)
    running = [engine.submit(lab.request(lab.prompt_of(n, 30), 40)) for n in range(3)]
    for n, ticket in enumerate(running):
        assert lab.listen(ticket).tokens() == lab.expected(lab.prompt_of(n, 30), 40)
    kinds = [entry[0] for entry in model.executor.log if entry[0] in ("submit", "collect")]
    assert kinds == ["submit", "collect"] * (len(kinds) // 2)


def test_a_long_prompt_delays_a_token_by_one_chunk(lab, halt) -> None:
    """While a prompt of 20 chunks is computed, every step has a row for each of those that decode."""
    model = lab.model(pages=256, slots=8)
    held = halt(model.executor, after=8)  # all four decode by then, and none is at its end
    engine = lab.start(model, chunk=32)
    together = threading.Event()
    engine.post(lambda: together.wait(60))  # else the first could come to the step that is held before the last is there
    running = [engine.submit(lab.request(lab.prompt_of(n, 5), 200)) for n in range(4)]
    together.set()
    for ticket in running:
        assert ticket.get(timeout=60) is not None
    assert held.reached.wait(60)
    before = len(model.executor.log)
    coming = engine.submit(lab.request(lab.prompt_of(9, 640), 3))
    held.go_on.set()
    late = lab.listen(coming)
    log = [entry for entry in model.executor.log[before:] if entry[0] in ("submit", "forward") and entry[1] > 8]
    assert late.tokens() == lab.expected(lab.prompt_of(9, 640), 3)
    assert len(log) == 20
    assert {entry[:3] for entry in log[:-1]} == {("submit", 32 + 4, 1)} and log[-1][:2] == ("submit", 36)
    for n, ticket in enumerate(running):
        ticket.cancel()
        found = lab.listen(ticket)
        assert found.tokens() == lab.expected(lab.prompt_of(n, 5), 200)[: len(found.tokens())]


def test_one_submission_runs_while_the_one_before_is_read(lab) -> None:
    model = lab.model()
    lab.answer(lab.start(model), lab.prompt_of(1, 20), 60)
    ahead, deepest = 0, 0
    for entry in model.executor.log:
        ahead += {"submit": 1, "collect": -1}.get(entry[0], 0)
        deepest = max(deepest, ahead)
    assert (ahead, deepest) == (0, 2)
    assert sum(entry[2] for entry in model.executor.log if entry[0] == "submit") == 60
    assert sum(entry[0] == "begin" for entry in model.executor.log) == 1


def test_the_next_turn_of_a_conversation_computes_only_what_is_new(lab) -> None:
    model = lab.model()
    engine = lab.start(model)
    prompt = lab.prompt_of(1, 50)
    first = lab.answer(engine, prompt, 10)
    turn = [*prompt, *first.tokens(), 5, 6, 7]
    second = lab.answer(engine, turn, 5)
    assert second.done.timings.cached_tokens == 48  # 59 were computed: whole pages of them are known
    assert second.tokens() == lab.expected(turn, 5)
    alone = lab.answer(engine, turn, 5, prefix_cache=False)
    assert (alone.done.timings.cached_tokens, alone.tokens()) == (0, second.tokens())


def test_a_prompt_that_is_known_entirely_computes_its_last_token(lab) -> None:
    engine = lab.start(lab.model())
    prompt = lab.prompt_of(1, 48)
    first = lab.answer(engine, prompt, 20)
    again = lab.answer(engine, prompt, 20)
    assert again.tokens() == first.tokens()
    assert again.done.timings.cached_tokens == 32


def test_preemption_keeps_tokens_and_changes_none(lab) -> None:
    """Four answers that need 28 pages on 12: the youngest pay, and all come out as if alone."""
    model = lab.model(pages=12, slots=4)
    engine = lab.start(model)
    model.executor.gate = threading.Event()
    prompts = [lab.prompt_of(n, 20) for n in range(4)]
    tickets = [
        engine.submit(lab.request(p, 90, sampling=Sampling(temperature=0.0, seed=n, presence_penalty=1.0)))
        for n, p in enumerate(prompts)
    ]
    model.executor.gate.set()
    found = [lab.listen(ticket) for ticket in tickets]
    for n, (prompt, one) in enumerate(zip(prompts, found, strict=True)):
        assert one.tokens() == lab.expected(prompt, 90, n, penalises=True)
    preempted = [one.done.timings.preempted for one in found]
    assert preempted[0] == 0 and sum(preempted) > 0


def test_choices_are_forks_of_one_prefill(lab) -> None:
    model = lab.model(slots=8)
    engine = lab.start(model)
    prompt = lab.prompt_of(1, 100)
    found = lab.answer(engine, prompt, 12, choices=6, seed=40)
    for index in range(6):
        assert found.tokens(index) == lab.expected(prompt, 12, 40 + index)
    assert [choice.seed for choice in found.done.choices] == [40, 41, 42, 43, 44, 45]
    rows = sum(entry[1] for entry in model.executor.log if entry[0] in ("submit", "forward"))
    assert rows <= 99 + 6 * 12  # the prompt but for its last token once, and nothing of it six times


def test_a_prompt_alone_warms_the_cache(lab) -> None:
    engine = lab.start(lab.model())
    prompt = lab.prompt_of(1, 65)
    nothing = lab.answer(engine, prompt, 0)
    assert (nothing.text(), nothing.done.reason, nothing.done.choices) == ("", "length", ())
    assert lab.answer(engine, prompt, 1).done.timings.cached_tokens == 64


def test_a_context_goes_on_with_its_answer(lab) -> None:
    engine = lab.start(lab.model())
    prompt = lab.prompt_of(1, 30)
    context = engine.call(lambda scheduler: scheduler.cache.match(())[0])
    first = lab.answer(engine, prompt, 10, context=context.id)
    assert context.tokens.tolist() == [*prompt, *first.tokens()][:-1]
    more = [*prompt, *first.tokens(), 3, 4]
    second = lab.answer(engine, more, 10, context=context.id)
    assert second.done.timings.cached_tokens == 39
    assert second.tokens() == lab.expected(more, 10)
    several = lab.answer(engine, [*more, *second.tokens()], 5, context=context.id, choices=3)
    assert several.tokens(2) == lab.expected([*more, *second.tokens()], 5, 2)
    assert context.tokens.tolist() == [*more, *second.tokens()][:-1]
    with pytest.raises(UsageError, match="does not begin with them"):
        engine.submit(lab.request([1, 2, 3], 5, context=context.id)).result()
    engine.call(lambda scheduler: scheduler.cache.drop(context))
    with pytest.raises(UsageError, match="no context"):
        engine.submit(lab.request(prompt, 5, context=context.id)).result()


def test_a_context_that_pays_for_others_is_computed_again(lab) -> None:
    """Its pages go, its identity stays."""
    model = lab.model(pages=12, slots=4)
    engine = lab.start(model)
    context = engine.call(lambda scheduler: scheduler.cache.match(())[0])
    model.executor.gate = threading.Event()
    older = engine.submit(lab.request(lab.prompt_of(1, 20), 150))
    mine = engine.submit(lab.request(lab.prompt_of(2, 20), 100, context=context.id))
    model.executor.gate.set()
    assert lab.listen(older).tokens() == lab.expected(lab.prompt_of(1, 20), 150)
    found = lab.listen(mine)
    assert found.tokens() == lab.expected(lab.prompt_of(2, 20), 100)
    assert found.done.timings.preempted > 0
    assert context.tokens.tolist() == [*lab.prompt_of(2, 20), *found.tokens()][:-1]
    engine.call(lambda scheduler: scheduler.cache.drop(context))


def test_an_end_token_and_a_stop_string_end_an_answer(lab) -> None:
    engine = lab.start(lab.model())
    prompt = [1, 2, 3]
    tokens = lab.expected(prompt, 30)
    at = next(at for at in range(9, 30) if tokens[at] not in tokens[:at])
    found = lab.answer(engine, prompt, 30, ends=frozenset({tokens[at]}))
    assert (found.done.reason, found.tokens(), found.text()) == ("end", tokens[: at + 1], lab.letters(tokens[:at]))
    text = lab.letters(tokens)
    at = next(at for at in range(9, 30) if text[at] not in text[:at])
    found = lab.answer(engine, prompt, 30, stops=(text[at],))
    assert (found.done.reason, found.text(), found.done.choices[0].stop) == ("stop", text[:at], text[at])


def test_the_end_of_the_context(lab) -> None:
    engine = lab.start(lab.model(pages=2))
    prompt = lab.prompt_of(1, 20)
    found = lab.answer(engine, prompt, None)
    assert (found.done.reason, found.tokens()) == ("context", lab.expected(prompt, 12))
    found = lab.answer(engine, prompt, 50)
    assert (found.done.reason, found.tokens()) == ("context", lab.expected(prompt, 12))
    with pytest.raises(ContextFull, match="32 tokens and the context 32"):
        engine.submit(lab.request(lab.prompt_of(1, 32), 5)).result()


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (lambda: Request(()), "no tokens"),
        (lambda: Request((1,), choices=0), "0 choices"),
        (lambda: Reading((1, 2), 2), "position 2"),
    ],
)
def test_what_cannot_be_asked(made, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        made()


def test_a_wrong_request_fails_alone(lab) -> None:
    model = lab.model()
    engine = lab.start(model)
    good = engine.submit(lab.request([1, 2], 20))
    for wrong in (lab.request([1, 97], 5), lab.request([1], 5, sampling=Sampling(logit_bias=((97, 1.0),)))):
        error = lab.listen(engine.submit(wrong)).error
        assert isinstance(error, UsageError) and "97" in str(error) and "ends at 96" in str(error)
    assert lab.listen(good).tokens() == lab.expected([1, 2], 20)


def test_a_full_queue_refuses_by_name(lab) -> None:
    model = lab.model(slots=1)
    model.executor.gate = threading.Event()
    engine = lab.start(model, waiting=4)
    running = engine.submit(lab.request([1], 3))
    assert model.executor.reached.wait(60)  # its prompt is being computed
    tickets = [engine.submit(lab.request([2, n], 3)) for n in range(4)]
    with pytest.raises(QueueFull, match="4 requests are waiting, and the queue holds 4"):
        engine.submit(lab.request([1], 3))
    tickets.pop(1).cancel()
    model.executor.gate.set()
    assert lab.listen(running).tokens() == lab.expected([1], 3)
    for ticket in tickets:
        lab.listen(ticket)
    lab.settle(engine)
    assert engine.stats().waiting == 0
    lab.answer(engine, [1], 3)


def test_clients_take_turns(lab) -> None:
    """One client with many requests delays another's by one each."""
    model = lab.model(slots=1)
    model.executor.gate = threading.Event()
    engine = lab.start(model, chunk=4)
    order: list[str] = []
    tickets = [engine.submit(lab.request(lab.prompt_of(n, 6), 2, client="many")) for n in range(10)]
    tickets += [engine.submit(lab.request(lab.prompt_of(50 + n, 6), 2, client="few")) for n in range(3)]
    model.executor.gate.set()
    for ticket in tickets:
        lab.listen(ticket)
    admitted = sorted(tickets, key=lambda ticket: ticket.clock.admitted)
    order = [ticket.asked.client for ticket in admitted]
    assert order[:7].count("few") == 3
    assert [ticket.id for ticket in admitted if ticket.asked.client == "many"] == [ticket.id for ticket in tickets[:10]]


def test_a_ticket_tells_in_order_and_ends_once(lab) -> None:
    engine = lab.start(lab.model())
    ticket = engine.submit(lab.request([1, 2], 40))
    kinds = [type(event) for event in ticket]
    assert set(kinds[:-2]) == {Text}
    assert kinds[-2] is Ended
    assert ticket.get(timeout=0.01) is ticket.result()
    ticket.cancel()
    assert ticket.get(timeout=0.01) is ticket.result()


def test_closing_ends_everyone(lab) -> None:
    model = lab.model(slots=2)
    model.executor.gate = threading.Event()
    engine = lab.start(model)
    tickets = [engine.submit(lab.request([n], 500)) for n in range(10)]
    lab.close_held(engine, model.executor.gate)
    assert model.closed
    for ticket in tickets:
        assert isinstance(lab.listen(ticket).error, Closed)
    with pytest.raises(Closed):
        engine.submit(lab.request([1], 1))
    with pytest.raises(Closed):
        engine.call(lambda scheduler: None)
    engine.close()
    assert engine.stats().models == ()


def test_a_call_returns_and_raises(lab) -> None:
    engine = lab.start(lab.model())
    assert engine.call(lambda scheduler: threading.current_thread().name) == "llamay-engine"
    with pytest.raises(ZeroDivisionError):
        engine.call(lambda scheduler: 1 // 0)
    assert lab.answer(engine, [1], 3).tokens() == lab.expected([1], 3)


def test_the_statistics(lab, halt) -> None:
    model = lab.model(slots=2)
    engine = lab.start(model)
    held = halt.by_step(engine, model.executor)
    running = [engine.submit(lab.request(lab.prompt_of(n, 30), 400, client=f"c{n}")) for n in range(3)]

    def begun() -> bool:
        """Two decode, the third waits for a slot."""
        told = engine.stats().models
        return bool(told and told[0].times.generated) and [one.state for one in told[0].requests] == ["decode", "decode", "waiting"]

    lab.until(begun)
    stats = engine.stats()
    (served,) = stats.models
    assert [one.state for one in served.requests] == ["decode", "decode", "waiting"]
    assert (stats.waiting, served.waiting, dict(served.clients), stats.limit) == (1, 1, {"c2": 1}, 1024)
    assert {one.client for one in served.requests} == {"c0", "c1", "c2"}
    first = next(one for one in served.requests if one.client == "c0")
    assert (first.prompt, first.cached) == (30, 0) and first.held >= 30 and first.context is not None
    assert served.cache.groups[0].pages == 64
    assert {context.id for context in served.cache.contexts} == {one.context for one in served.requests[:2]}
    times = served.times
    assert times.prefilled >= 60 and times.generated > 0 and times.steps > 0
    assert min(times.schedule, times.encode, times.device, times.sample, times.send) > 0
    for ticket in running:
        ticket.cancel()
    held.go_on.set()
    for ticket in running:
        assert lab.listen(ticket).done.reason == "cancel"
    lab.settle(engine)
    assert engine.stats().finished == 3


def test_a_fault_of_a_step_ends_its_requests_and_says_what_it_was(lab) -> None:
    model = lab.model()
    engine = lab.start(model)
    lab.answer(engine, [1], 1)
    model.executor.fault = ZeroDivisionError("odd")
    error = lab.listen(engine.submit(lab.request([1, 2], 5))).error
    assert type(error) is LlamayError and "ZeroDivisionError: odd" in str(error)
    assert isinstance(error.__cause__, ZeroDivisionError)
    assert isinstance(lab.listen(engine.submit(lab.request([1, 2], 5))).error, Closed)
    assert model.closed
