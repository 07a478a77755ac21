"""How long tokens of running answers wait while a long prompt is read beside them.

    python -m pytest bench/test_interleave.py --model NAME
"""

import itertools
import time
from dataclasses import dataclass, field

import numpy as np
import pytest

from llamay import settings
from llamay.bench.shared import Room, open_shared
from llamay.cli import models
from llamay.sample import Sampling
from llamay.serve.request import Limits, Request
from llamay.serve.scheduling.together import Together
from llamay.serve.ticket import Ticket

LONG = 2000  # tokens of the prompt that arrives
ANSWERS = 4
ALONE = 24  # tokens of each answer before it does
GREEDY = Sampling(temperature=0.0)


@dataclass
class Watch:
    """When tokens of tickets came, seen after each turn of the scheduler."""

    crowd: Together
    tickets: list[Ticket]
    came: list[list[float]] = field(init=False)

    def __post_init__(self) -> None:
        self.came = [[] for _ in self.tickets]

    def turn(self) -> None:
        before = [ticket.clock.generated for ticket in self.tickets]
        self.crowd.turn()
        now = time.perf_counter()
        for count, ticket, times in zip(before, self.tickets, self.came, strict=True):
            if ticket.clock.generated > count:
                times.append(now)

    def gaps(self, since: float) -> list[float]:
        """Seconds between tokens of one answer, of those that came after `since`."""
        return [at - last for times in self.came for last, at in itertools.pairwise(times) if last >= since]


def _chunks(crowd: Together, prompt: tuple[int, ...]) -> list[float]:
    """Seconds of each turn while a prompt is read with nobody beside it."""
    ticket = crowd.submit(Request(prompt, GREEDY, Limits(tokens=1)))
    seconds = []
    while not ticket.clock.generated:
        start = time.perf_counter()
        crowd.turn()
        seconds.append(time.perf_counter() - start)
    crowd.until(lambda: False)
    return seconds


@pytest.mark.timeout(1800)
def test_a_long_prompt_beside_answers(request: pytest.FixtureRequest) -> None:
    """The longest wait of a token, in chunks: one chunk's time, and no more, may come to a token's own."""
    name = request.config.getoption("--model")
    if name is None:
        pytest.skip("no --model was given")
    in_force = settings.load()
    context = LONG + 64
    room = Room(context, 2, ANSWERS * (2 * context // 16))
    with open_shared(models.path(name, in_force), in_force, room) as target:
        draw = np.random.default_rng(0)
        alone, long = (tuple(draw.integers(0, target.program.vocabulary, LONG).tolist()) for _ in range(2))
        crowd = Together(target.executor, target.context)
        chunks = _chunks(crowd, alone)
        prompts = [tuple(draw.integers(0, target.program.vocabulary, 32).tolist()) for _ in range(ANSWERS)]
        tickets = [crowd.submit(Request(prompt, GREEDY, Limits(tokens=1500))) for prompt in prompts]
        watch = Watch(crowd, tickets)
        while min(ticket.clock.generated for ticket in tickets) < ALONE:
            watch.turn()
        calm = watch.gaps(0.0)
        start = time.perf_counter()
        arriving = crowd.submit(Request(long, GREEDY, Limits(tokens=1)))
        while not arriving.clock.generated:
            watch.turn()
        busy = watch.gaps(start)
        for ticket in tickets:
            ticket.cancel()
    own, longest = float(np.median(calm)), max(busy)
    print(
        f"\n{LONG} tokens beside {ANSWERS} answers: the longest wait of a token {longest * 1e3:.0f} ms, "
        f"its own time {own * 1e3:.0f} ms, the longest chunk alone {max(chunks) * 1e3:.0f} ms: "
        f"delayed by {(longest - own) / max(chunks):.2f} chunks; {len(busy)} tokens came meanwhile"
    )
    assert busy
