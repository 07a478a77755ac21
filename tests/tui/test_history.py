"""History: rates between snapshots, requests that end, and a server that was started anew."""

from typing import Any

import msgspec

from llamay.tui.history import History
from llamay.tui.moment import Over, Snapshot


def over(id: int, outcome: str = "end") -> Over:
    return Over(id, "tiny", outcome, 10, 0, 5, 0.1, 0.2, 0.4)


def test_rates_are_of_what_lies_between(moments: Any) -> None:
    history = History()
    history.hear(moments())
    history.hear(moments(0.5))
    rates = history.rates["tiny"]
    assert (round(rates.decode), round(rates.steps)) == (120, 40)
    assert [round(part * 1e4, 3) for part in rates.parts] == [1, 4, 200, 2, 1]
    history.hear(moments(0.75, running=False))
    assert history.step("tiny").step > 0.02


def test_requests_are_told_once_when_they_end(moments: Any) -> None:
    history = History()
    assert [(entry.key, entry.state) for entry in history.hear(moments())] == [("3", "done"), ("4", "failed"), ("5", "cancelled")]
    assert history.hear(moments(0.25)) == ()
    assert [entry.key for entry in history.entries] == ["9", "8", "7", "5", "4", "3"]
    gone = history.hear(moments(0.5, running=False))
    assert {entry.key for entry in gone} == {"7", "8", "9"} and not any(entry.live for entry in history.entries)


def test_ten_thousand_are_remembered_and_no_more(moments: Any) -> None:
    history = History(100)
    for first in range(0, 1000, 50):
        history.hear(Snapshot(first, first, finished=first, ended=tuple(over(id) for id in range(first, first + 50))))
    assert [entry.id for entry in history.entries] == list(range(999, 899, -1))


def test_ids_of_a_server_that_was_started_anew_are_others(moments: Any) -> None:
    history = History()
    history.hear(Snapshot(1, 100, finished=9, ended=(over(1),)))
    history.hear(Snapshot(2, 0.5, finished=1, ended=(over(1, "length"),)))
    assert [(entry.key, entry.outcome) for entry in history.entries] == [("1.1", "length"), ("1", "end")]
    assert history.find("1.1") is not None


def test_a_wire_value_is_a_snapshot(moments: Any) -> None:
    found = moments()
    assert msgspec.json.decode(msgspec.json.encode(found), type=Snapshot) == found
