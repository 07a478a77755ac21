"""The engine in trouble: bursts, cancels at any moment, lost devices, askers that go away; each is answered once."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
import tracemalloc
from pathlib import Path

import pytest

from llamay.errors import Closed, DeviceLost, OutOfMemory
from llamay.serve.engine import Bounds, Engine
from llamay.serve.events import Done, Failed, Text
from llamay.serve.request import Reading

SOAK = float(os.environ.get("LLAMAY_SOAK", "1"))


def burst(lab, count: int) -> None:
    """`count` requests of ten clients at once on 64 pages: all answered as if alone, in order within each client."""
    model = lab.model(pages=64, slots=8)
    model.executor.gate = threading.Event()
    engine = lab.start(model, chunk=32, waiting=count)
    prompts = [lab.prompt_of(n, 5 + n * 7 % 90) for n in range(count)]
    tickets = [
        engine.submit(lab.request(prompt, 1 + n * 5 % 40, client=f"c{n % 10}", seed=n)) for n, prompt in enumerate(prompts)
    ]
    model.executor.gate.set()
    for n, (prompt, ticket) in enumerate(zip(prompts, tickets, strict=True)):
        assert lab.listen(ticket).tokens() == lab.expected(prompt, 1 + n * 5 % 40, n)
    admitted = sorted(tickets, key=lambda ticket: ticket.clock.admitted)
    for client in range(10):
        assert [t.id for t in admitted if t.asked.client == f"c{client}"] == [t.id for t in tickets[client::10]]
    places = {ticket.id: place for place, ticket in enumerate(admitted)}
    for first in range(0, count - 10, 10):  # one of each client, before the second of any
        assert {places[t.id] // 10 for t in tickets[first : first + 10]} == {first // 10}
    lab.settle(engine)


def test_a_burst_is_answered_in_fair_order(lab) -> None:
    burst(lab, 120)


@pytest.mark.soak
def test_a_burst_of_a_thousand(lab) -> None:
    """Memory stays flat: the second thousand leaves what the first did."""
    count = max(50, round(1000 * SOAK))
    burst(lab, count)
    tracemalloc.start()
    burst(lab, count)
    first, _ = tracemalloc.get_traced_memory()
    burst(lab, count)
    second, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert second - first < 1 << 20


def cancels(lab, count: int, seed: int) -> None:
    """Cancels at random moments, some at once, some late; what is not cancelled is as if alone."""
    luck = random.Random(seed)
    windowed = seed % 2
    model = lab.model(pages=24, window=24 * windowed, span=20 * windowed, slots=4)
    engine = lab.start(model, chunk=luck.choice([5, 16, 64]))
    asked = []
    for n in range(count):
        prompt = lab.prompt_of(n % 7, 1 + luck.randrange(60))
        asked.append((prompt, engine.submit(lab.request(prompt, 60, seed=n, choices=luck.choice([1, 1, 2]), client=str(n % 3)))))
        for _ in range(luck.randrange(3)):
            luck.choice(asked)[1].cancel()
        if luck.random() < 0.5:
            time.sleep(luck.random() * 0.003)
    for n, (prompt, ticket) in enumerate(asked):
        found = lab.listen(ticket)
        assert found.done.reason in ("cancel", "length")
        for choice in found.done.choices:
            want = lab.expected(prompt, 60, n + choice.index)
            assert list(choice.tokens) == want[: len(choice.tokens)]
            assert found.text(choice.index) == lab.letters(choice.tokens)
            assert choice.reason == "cancel" or len(choice.tokens) == 60
    lab.settle(engine)
    stats = engine.stats()
    assert (stats.waiting, stats.finished) == (0, count)
    free = engine.call(lambda scheduler: (scheduler.cache.evict(24), scheduler.cache.groups[0].pages.free)[1])
    assert free == 24  # every page is back, but for what the tree knows, and that gives all up


@pytest.mark.parametrize("seed", range(6))
def test_cancels_return_every_page(lab, seed: int) -> None:
    cancels(lab, 40, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 100 + max(1, round(40 * SOAK))))
def test_many_cancels_return_every_page(lab, seed: int) -> None:
    cancels(lab, 200, seed)


def test_a_cancel_is_heard_within_a_step(lab, halt) -> None:
    model = lab.model()
    held = halt(model.executor)
    engine = lab.start(model)
    ticket = engine.submit(lab.request([1, 2], 900))
    assert isinstance(ticket.get(timeout=60), Text)
    assert held.reached.wait(60)  # in a step
    steps = sum(entry[2] for entry in model.executor.log if entry[0] == "submit")
    ticket.cancel()
    held.go_on.set()
    found = lab.listen(ticket)
    later = sum(entry[2] for entry in model.executor.log if entry[0] == "submit") - steps
    assert found.done.reason == "cancel" and later <= 24  # what was under way, and no more than two submissions
    lab.settle(engine)
    assert sum(entry[2] for entry in model.executor.log if entry[0] == "submit") - steps == later


def test_who_stops_listening_cancels(lab) -> None:
    engine = lab.start(lab.model())
    ticket = engine.submit(lab.request([1, 2], 900))
    for event in ticket:
        assert isinstance(event, Text)
        break
    lab.settle(engine)
    with pytest.raises(RuntimeError):
        for _ in engine.submit(lab.request([1, 2], 900)):
            raise RuntimeError
    lab.settle(engine)


@pytest.mark.parametrize("moment", ["prefill", "decode"])
def test_a_lost_device_ends_those_under_way_and_is_loaded_anew_for_those_who_wait(lab, halt, moment: str) -> None:
    models = [lab.model(slots=2), lab.model(slots=2)]
    opened = iter(models)
    models[0].executor.gate = threading.Event()
    engine = Engine(lambda name: next(opened))
    tickets = [engine.submit(lab.request(lab.prompt_of(n, 40), 30)) for n in range(5)]
    if moment == "prefill":
        models[0].executor.fault = DeviceLost("the driver reset")
        models[0].executor.gate.set()
    else:
        held = halt(models[0].executor)  # before the first two have all their tokens
        models[0].executor.gate.set()
        assert isinstance(tickets[0].get(timeout=60), Text) and held.reached.wait(60)
        models[0].executor.fault = DeviceLost("the driver reset")
        held.go_on.set()
    found = [lab.listen(ticket) for ticket in tickets]
    lost = [n for n, one in enumerate(found) if isinstance(one.final, Failed)]
    assert lost and lost == list(range(len(lost))) and len(lost) <= 2
    for n, one in enumerate(found):
        if n in lost:
            assert isinstance(one.error, DeviceLost)
        else:
            assert one.tokens() == lab.expected(lab.prompt_of(n, 40), 30)
    assert models[0].closed and not models[1].closed
    lab.settle(engine)
    engine.close()
    assert models[1].closed


@pytest.mark.parametrize("call", ["begin", "forward"])
def test_a_device_that_is_lost_in_the_first_step_of_a_request_ends_it_too(lab, halt, call: str) -> None:
    """It waits no more by then, and does not run yet."""
    model = lab.model(slots=2)
    engine = lab.start(model)
    held = halt.by_step(engine, model.executor)
    running = engine.submit(lab.request([1, 2], 900))
    assert isinstance(running.get(timeout=60), Text)

    def lost(*given: object) -> None:
        raise DeviceLost("the driver reset")

    engine.call(lambda scheduler: setattr(model.executor, call, lost))
    joining = engine.submit(Reading((1, 2, 3)) if call == "forward" else lab.request([3, 4], 5))
    held.go_on.set()
    for ticket in (running, joining):
        assert isinstance(lab.listen(ticket).error, DeviceLost)


def test_pages_held_by_contexts_are_never_taken(lab) -> None:
    """What cannot fit beside them fails by numbers; what can goes on."""
    model = lab.model(pages=8, slots=2)
    engine = lab.start(model)
    prompt = lab.prompt_of(1, 70)
    context = engine.call(lambda scheduler: scheduler.cache.match(())[0])
    lab.answer(engine, prompt, 3, context=context.id)
    with pytest.raises(OutOfMemory, match=r"of 8 only 3 are free|of 8 in group 0 3 are free"):
        engine.submit(lab.request(lab.prompt_of(2, 70), 3)).result()
    assert lab.answer(engine, lab.prompt_of(2, 40), 3).tokens() == lab.expected(lab.prompt_of(2, 40), 3)
    failing = lab.listen(engine.submit(lab.request(lab.prompt_of(3, 20), 80)))
    assert isinstance(failing.error, OutOfMemory)
    assert failing.text() == lab.letters(lab.expected(lab.prompt_of(3, 20), 80))[: len(failing.text())] != ""
    assert context.position == 72
    engine.call(lambda scheduler: scheduler.cache.drop(context))
    assert lab.answer(engine, lab.prompt_of(2, 70), 3).tokens() == lab.expected(lab.prompt_of(2, 70), 3)


def test_forks_that_do_not_fit_together_take_turns(lab) -> None:
    model = lab.model(pages=8, slots=8)
    engine = lab.start(model)
    prompt = lab.prompt_of(1, 40)
    found = lab.answer(engine, prompt, 60, choices=8)
    for index in range(8):
        assert found.tokens(index) == lab.expected(prompt, 60, index)


def test_windows_need_fewer_pages_than_the_prompt(lab) -> None:
    model = lab.model(pages=64, window=8, span=32, slots=2)
    engine = lab.start(model, chunk=32)
    tickets = [engine.submit(lab.request(lab.prompt_of(n, 400), 30)) for n in range(3)]
    for n, ticket in enumerate(tickets):
        assert lab.listen(ticket).tokens() == lab.expected(lab.prompt_of(n, 400), 30)


def test_few_rows_a_step(lab) -> None:
    """Rows that a step has no place for wait for the next."""
    model = lab.model(slots=8, rows=5)
    engine = lab.start(model)
    tickets = [engine.submit(lab.request(lab.prompt_of(n, 20), 20)) for n in range(8)]
    for n, ticket in enumerate(tickets):
        assert lab.listen(ticket).tokens() == lab.expected(lab.prompt_of(n, 20), 20)
    assert max(entry[1] for entry in model.executor.log if entry[0] in ("submit", "forward")) == 5


INTERRUPTED = """
import signal, sys, threading, time
from pathlib import Path
sys.path.insert(0, str(Path(sys.argv[1])))
import conftest
signal.signal(signal.SIGINT, signal.default_int_handler)
model = conftest.HashModel.of(64)
model.executor.seconds = 0.01
engine = conftest.Engine.of(model)
ticket = engine.submit(conftest.request([1, 2], 900))
try:
    for event in ticket:
        print("hearing", flush=True)
except KeyboardInterrupt:
    pass
found = conftest.listen(ticket)
print(found.done.reason, flush=True)
conftest.Lab().settle(engine)
if sys.argv[2] == "close":
    engine.close()
else:
    engine.submit(conftest.request([1, 2], 900))
print("left", flush=True)
"""


@pytest.mark.parametrize("how", ["close", "leave"])
def test_ctrl_c_ends_a_request_and_the_program_can_leave(how: str) -> None:
    """Even one that never closes its engine, in the middle of an answer."""
    child = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTED, str(Path(__file__).parent), how], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "hearing\n"
    child.send_signal(signal.SIGINT)
    said, _ = child.communicate(timeout=60)
    assert said.replace("hearing\n", "") == "cancel\nleft\n"
    assert child.returncode == 0


class Models:
    """Loads models by name, and knows which are loaded."""

    def __init__(self, lab) -> None:
        self.lab, self.loads, self.made = lab, [], {}
        self.asked = threading.Event()  # one is to be loaded
        self.gate: threading.Event | None = None  # what has to be set before one is loaded

    def open(self, name: str):
        self.asked.set()
        assert self.gate is None or self.gate.wait(60)
        if name == "none":
            raise OutOfMemory("it does not fit")
        self.loads.append(name)
        self.made[name] = self.lab.model(slots=2)
        assert sum(not model.closed for model in self.made.values()) <= 2
        return self.made[name]


def test_models_are_loaded_as_they_are_asked_for(lab) -> None:
    models = Models(lab)
    with Engine(models.open, Bounds(loaded=2)) as engine:
        for name in "abaca":
            assert lab.answer(engine, [1, 2], 20, model=name).tokens() == lab.expected([1, 2], 20)
        assert models.loads == ["a", "b", "c"]  # c took b's place: a was used later
        assert models.made["b"].closed and not models.made["a"].closed
        assert isinstance(lab.listen(engine.submit(lab.request([1], 1, model="none"))).error, OutOfMemory)
        with pytest.raises(OutOfMemory):
            engine.call(lambda scheduler: None, "none")
        assert {model.name for model in engine.stats().models} <= {"a", "c"}
    assert all(model.closed for model in models.made.values())


def test_models_that_have_no_place_take_turns(lab) -> None:
    """Requests of three models on one place: all are answered, and nobody waits for ever."""
    models = Models(lab)
    with Engine(models.open, Bounds(loaded=1)) as engine:
        tickets = [engine.submit(lab.request(lab.prompt_of(n, 9), 50, model="abc"[n % 3])) for n in range(24)]
        for n, ticket in enumerate(tickets):
            assert lab.listen(ticket).tokens() == lab.expected(lab.prompt_of(n, 9), 50)
    assert set(models.loads) == set("abc")


def test_a_place_that_nobody_wants_any_more_is_not_waited_for(lab, halt) -> None:
    """A request for another model holds later ones back, until it is cancelled."""
    models = Models(lab)
    with Engine(models.open, Bounds(loaded=1)) as engine:
        lab.answer(engine, [1], 1, model="a")
        held = halt.by_step(engine, models.made["a"].executor)
        running = engine.submit(lab.request([1, 2], 400, model="a"))
        assert running.get(timeout=60) is not None
        other = engine.submit(lab.request([1], 1, model="b"))
        later = engine.submit(lab.request([3], 5, model="a"))
        for _ in range(5):  # steps in which it might have been taken up
            engine.visit(lambda scheduler: None)
        assert later.get(timeout=0) is None
        other.cancel()
        held.go_on.set()
        assert lab.listen(later).tokens() == lab.expected([3], 5)
        assert lab.listen(other).done.reason == "cancel"
        running.cancel()
        lab.listen(running)
    assert models.loads == ["a"]


def test_names_that_mean_nothing_are_forgotten(lab) -> None:
    models = Models(lab)
    with Engine(models.open) as engine:
        for _ in range(50):
            lab.listen(engine.submit(lab.request([1], 1, model="none")))
            lab.listen(engine.submit(lab.request([1], 1, model="a")))
        engine.call(lambda scheduler: None, "a")
        assert set(engine._residents) <= {"a", "none"}
        engine.call(lambda scheduler: None, "a")
        assert set(engine._residents) == {"a"}


def test_a_fault_of_the_engine_itself_leaves_nobody_waiting(lab, halt, monkeypatch: pytest.MonkeyPatch) -> None:
    model = lab.model()
    held = halt(model.executor)
    engine = lab.start(model)
    ticket = engine.submit(lab.request([1, 2], 900))
    assert isinstance(ticket.get(timeout=60), Text)
    monkeypatch.setattr(threading, "excepthook", lambda told: None)
    engine.post(lambda: 1 // 0)
    held.go_on.set()
    error = lab.listen(ticket).error
    assert isinstance(error, Closed) and "ZeroDivisionError" in str(error)
    assert isinstance(error.__cause__, ZeroDivisionError)
    engine._thread.join(60)
    with pytest.raises(Closed):
        engine.submit(lab.request([1], 1))
    assert model.closed


def test_an_idle_model_is_given_back(lab) -> None:
    models = Models(lab)
    with Engine(models.open, Bounds(keep_alive=0.05)) as engine:
        lab.answer(engine, [1], 2, model="a")
        lab.until(lambda: models.made["a"].closed)
        lab.until(lambda: engine.stats().models == ())
        engine.hold(1, "a")
        lab.answer(engine, [1], 2, model="a")
        time.sleep(0.3)
        assert not models.made["a"].closed  # a context of somebody's is in it
        engine.hold(-1, "a")
        lab.until(lambda: models.made["a"].closed)
    assert models.loads == ["a", "a"]


def test_closing_while_a_model_is_loaded(lab) -> None:
    models = Models(lab)
    models.gate = threading.Event()
    engine = Engine(models.open)
    ticket = engine.submit(lab.request([1], 2))
    assert models.asked.wait(60)
    lab.close_held(engine, models.gate)
    assert isinstance(lab.listen(ticket).final, Failed)
    assert all(model.closed for model in models.made.values())


def test_others_go_on_while_a_model_is_loaded(lab) -> None:
    models = Models(lab)
    with Engine(models.open, Bounds(loaded=2)) as engine:
        lab.answer(engine, [1], 1, model="a")
        models.gate = threading.Event()
        waiting = engine.submit(lab.request([1], 1, model="b"))
        done = lab.answer(engine, [1, 2], 50, model="a").done
        assert isinstance(done, Done) and waiting.get(timeout=0) is None
        models.gate.set()
        lab.listen(waiting)
