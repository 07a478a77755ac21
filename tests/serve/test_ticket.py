"""The clock of a ticket: parts of a time are no longer than it."""

import pytest

from llamay.serve import ticket
from llamay.serve.ticket import Clock


def test_steps_that_gave_nobody_a_token_are_not_of_decode(monkeypatch: pytest.MonkeyPatch) -> None:
    """One submission is under way when the last token comes, and nobody hears what it gives."""
    now = 100.0
    monkeypatch.setattr(ticket.time, "perf_counter", lambda: now)
    clock = Clock()
    clock.admit(0)
    clock.submitted_steps(1.0)
    now = 105.0
    clock.waited(3.0)
    clock.sampled(1)
    clock.submitted_steps(2.0)
    now = 110.0
    clock.waited(3.0)
    clock.sampled(4)
    clock.submitted_steps(7.0)
    now = 120.0
    clock.waited(2.0)
    times = clock.timings()
    assert (times.prompt_seconds, times.decode_seconds) == (5.0, 5.0)
    assert (times.submissions, times.submit_seconds, times.collect_seconds) == (3, 2.0, 3.0)
